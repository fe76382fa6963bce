"""Trigonometric and hyperbolic functions, and their inverses."""

from typing import Any

from telegrad.rules.primitive import of_slopes

SIN = of_slopes("sin", ("x",), lambda xp, v, s: v * xp.cos(s.x))
COS = of_slopes("cos", ("x",), lambda xp, v, s: -v * xp.sin(s.x))
TAN = of_slopes("tan", ("out",), lambda xp, v, s: v * (s.out * s.out + 1))
ASIN = of_slopes("asin", ("x",), lambda xp, v, s: v / xp.sqrt(1 - s.x * s.x), poles=True)
ACOS = of_slopes("acos", ("x",), lambda xp, v, s: -v / xp.sqrt(1 - s.x * s.x), poles=True)
ATAN = of_slopes("atan", ("x",), lambda xp, v, s: v / (s.x * s.x + 1))
SINH = of_slopes("sinh", ("x",), lambda xp, v, s: v * xp.cosh(s.x))
COSH = of_slopes("cosh", ("x",), lambda xp, v, s: v * xp.sinh(s.x))
TANH = of_slopes("tanh", ("out",), lambda xp, v, s: v * (1 - s.out * s.out))
ASINH = of_slopes("asinh", ("x",), lambda xp, v, s: v / xp.sqrt(s.x * s.x + 1))
# Divided twice: of a product of roots, the second slope at 1 would be NaN, and it is -inf.
ACOSH = of_slopes(
    "acosh", ("x",), lambda xp, v, s: v / xp.sqrt(s.x - 1) / xp.sqrt(s.x + 1), poles=True
)
ATANH = of_slopes("atanh", ("x",), lambda xp, v, s: v / (1 - s.x * s.x))


def _around(xp: Any, v: Any, s: Any, side: Any) -> Any:
    # Divided twice by the distance, whose square may be too small or too large for a number. At the
    # origin there is no angle: the slope is taken as 0, as in PyTorch.
    distance = xp.hypot(s.x, s.y)
    distance = xp.where(distance == 0, xp.ones_like(distance), distance)
    return v * (side / distance / distance)


ATAN2 = of_slopes(
    "atan2",
    ("x y", "x y"),
    lambda xp, v, s: _around(xp, v, s, s.y),
    lambda xp, v, s: _around(xp, v, s, -s.x),
)

HYPOT = of_slopes(
    "hypot",
    ("x out", "y out"),
    lambda xp, v, s: v * (s.x / s.out),
    lambda xp, v, s: v * (s.y / s.out),
    poles=True,
)
