"""Trigonometric and hyperbolic functions, and their inverses."""

from typing import Any

from telegrad.rules.primitive import Primitive, Rule

__all__ = [
    "ACOS",
    "ACOSH",
    "ASIN",
    "ASINH",
    "ATAN",
    "ATAN2",
    "ATANH",
    "COS",
    "COSH",
    "HYPOT",
    "ROWS",
    "SIN",
    "SINH",
    "TAN",
    "TANH",
]


def _slope(name: str, saves: str, slope: Rule, *, poles: bool = False) -> Primitive:
    """A function of one value from its derivative: the same in both modes."""
    return Primitive(
        name,
        saves=(saves,),
        vjp=(slope,),
        jvp=(slope,),
        elementwise=True,
        floating=True,
        poles=poles,
    )


SIN = _slope("sin", "x", lambda xp, v, s: v * xp.cos(s.x))
COS = _slope("cos", "x", lambda xp, v, s: -v * xp.sin(s.x))
TAN = _slope("tan", "out", lambda xp, v, s: v * (s.out * s.out + 1))
ASIN = _slope("asin", "x", lambda xp, v, s: v / xp.sqrt(1 - s.x * s.x), poles=True)
ACOS = _slope("acos", "x", lambda xp, v, s: -v / xp.sqrt(1 - s.x * s.x), poles=True)
ATAN = _slope("atan", "x", lambda xp, v, s: v / (s.x * s.x + 1))
SINH = _slope("sinh", "x", lambda xp, v, s: v * xp.cosh(s.x))
COSH = _slope("cosh", "x", lambda xp, v, s: v * xp.sinh(s.x))
TANH = _slope("tanh", "out", lambda xp, v, s: v * (1 - s.out * s.out))
ASINH = _slope("asinh", "x", lambda xp, v, s: v / xp.sqrt(s.x * s.x + 1))
# Divided twice: of a product of roots, the second slope at 1 would be NaN, and it is -inf.
ACOSH = _slope("acosh", "x", lambda xp, v, s: v / xp.sqrt(s.x - 1) / xp.sqrt(s.x + 1), poles=True)
ATANH = _slope("atanh", "x", lambda xp, v, s: v / (1 - s.x * s.x))


def _around(xp: Any, v: Any, s: Any, side: Any) -> Any:
    # Divided twice by the distance, whose square may be too small or too large for a number. At the
    # origin there is no angle: the slope is taken as 0, as in PyTorch.
    distance = xp.hypot(s.x, s.y)
    distance = xp.where(distance == 0, xp.ones_like(distance), distance)
    return v * (side / distance / distance)


def _by_first(xp: Any, v: Any, s: Any) -> Any:
    return _around(xp, v, s, s.y)


def _by_second(xp: Any, v: Any, s: Any) -> Any:
    return _around(xp, v, s, -s.x)


ATAN2 = Primitive(
    "atan2",
    saves=("x y", "x y"),
    vjp=(_by_first, _by_second),
    jvp=(_by_first, _by_second),
    elementwise=True,
    floating=True,
)

HYPOT = Primitive(
    "hypot",
    saves=("x out", "y out"),
    vjp=(lambda xp, g, s: g * (s.x / s.out), lambda xp, g, s: g * (s.y / s.out)),
    jvp=(lambda xp, t, s: t * (s.x / s.out), lambda xp, t, s: t * (s.y / s.out)),
    elementwise=True,
    floating=True,
    poles=True,
)

ROWS = (
    SIN,
    COS,
    TAN,
    ASIN,
    ACOS,
    ATAN,
    SINH,
    COSH,
    TANH,
    ASINH,
    ACOSH,
    ATANH,
    ATAN2,
    HYPOT,
)
