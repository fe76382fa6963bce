"""Exponentials, logarithms and roots."""

from telegrad.rules.primitive import Primitive

__all__ = ["EXP", "EXPM1", "LOG", "LOG1P", "LOG2", "LOG10", "LOGADDEXP", "ROWS", "SQRT"]

_LN_2 = 0.6931471805599453
_LN_10 = 2.302585092994046

EXP = Primitive(
    "exp",
    saves=("out",),
    vjp=(lambda xp, g, s: g * s.out,),
    jvp=(lambda xp, t, s: t * s.out,),
    elementwise=True,
    floating=True,
)

EXPM1 = Primitive(
    "expm1",
    saves=("out",),
    vjp=(lambda xp, g, s: g * (s.out + 1),),
    jvp=(lambda xp, t, s: t * (s.out + 1),),
    elementwise=True,
    floating=True,
)

LOG = Primitive(
    "log",
    saves=("x",),
    vjp=(lambda xp, g, s: g / s.x,),
    jvp=(lambda xp, t, s: t / s.x,),
    elementwise=True,
    floating=True,
)

LOG1P = Primitive(
    "log1p",
    saves=("x",),
    vjp=(lambda xp, g, s: g / (s.x + 1),),
    jvp=(lambda xp, t, s: t / (s.x + 1),),
    elementwise=True,
    floating=True,
)

LOG2 = Primitive(
    "log2",
    saves=("x",),
    vjp=(lambda xp, g, s: g / (s.x * _LN_2),),
    jvp=(lambda xp, t, s: t / (s.x * _LN_2),),
    elementwise=True,
    floating=True,
)

LOG10 = Primitive(
    "log10",
    saves=("x",),
    vjp=(lambda xp, g, s: g / (s.x * _LN_10),),
    jvp=(lambda xp, t, s: t / (s.x * _LN_10),),
    elementwise=True,
    floating=True,
)

SQRT = Primitive(
    "sqrt",
    saves=("out",),
    vjp=(lambda xp, g, s: g / (s.out + s.out),),
    jvp=(lambda xp, t, s: t / (s.out + s.out),),
    elementwise=True,
    floating=True,
    poles=True,
)

# The slope depends on the difference alone, so it is exact where both are huge, or one infinite.
LOGADDEXP = Primitive(
    "logaddexp",
    saves=("x y", "x y"),
    vjp=(lambda xp, g, s: g * xp.sigmoid(s.x - s.y), lambda xp, g, s: g * xp.sigmoid(s.y - s.x)),
    jvp=(lambda xp, t, s: t * xp.sigmoid(s.x - s.y), lambda xp, t, s: t * xp.sigmoid(s.y - s.x)),
    elementwise=True,
    floating=True,
)

ROWS = (EXP, EXPM1, LOG, LOG1P, LOG2, LOG10, SQRT, LOGADDEXP)
