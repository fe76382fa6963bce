"""Exponentials, logarithms and roots."""

from telegrad.rules.primitive import of_slopes

_LN_2 = 0.6931471805599453
_LN_10 = 2.302585092994046

EXP = of_slopes("exp", ("out",), lambda xp, v, s: v * s.out)
EXPM1 = of_slopes("expm1", ("out",), lambda xp, v, s: v * (s.out + 1))
LOG = of_slopes("log", ("x",), lambda xp, v, s: v / s.x)
LOG1P = of_slopes("log1p", ("x",), lambda xp, v, s: v / (s.x + 1))
LOG2 = of_slopes("log2", ("x",), lambda xp, v, s: v / (s.x * _LN_2))
LOG10 = of_slopes("log10", ("x",), lambda xp, v, s: v / (s.x * _LN_10))
SQRT = of_slopes("sqrt", ("out",), lambda xp, v, s: v / (s.out + s.out), poles=True)

# The slope depends on the difference alone, so it is exact where both are huge, or one infinite.
LOGADDEXP = of_slopes(
    "logaddexp",
    ("x y", "x y"),
    lambda xp, v, s: v * xp.sigmoid(s.x - s.y),
    lambda xp, v, s: v * xp.sigmoid(s.y - s.x),
)
