"""The error function and the logarithm of the gamma function, with their derivatives."""

import math
from typing import Any

from telegrad.rules.primitive import Primitive

__all__ = ["DIGAMMA", "ERF", "ERFC", "LGAMMA", "NDTR", "POLYGAMMA", "ROWS", "normal_density"]

_SLOPE_AT_0 = 2 / math.sqrt(math.pi)

ERF = Primitive(
    "erf",
    saves=("x",),
    vjp=(lambda xp, g, s: g * (xp.exp(-s.x * s.x) * _SLOPE_AT_0),),
    jvp=(lambda xp, t, s: t * (xp.exp(-s.x * s.x) * _SLOPE_AT_0),),
    elementwise=True,
    floating=True,
)

ERFC = Primitive(
    "erfc",
    saves=("x",),
    vjp=(lambda xp, g, s: g * (xp.exp(-s.x * s.x) * -_SLOPE_AT_0),),
    jvp=(lambda xp, t, s: t * (xp.exp(-s.x * s.x) * -_SLOPE_AT_0),),
    elementwise=True,
    floating=True,
)

_DENSITY_AT_0 = 1 / math.sqrt(2 * math.pi)


def normal_density(xp: Any, x: Any) -> Any:
    """The density of a normal distribution at x: the slope of ``ndtr``."""
    return xp.exp(x * x * -0.5) * _DENSITY_AT_0


NDTR = Primitive(
    "ndtr",
    saves=("x",),
    vjp=(lambda xp, g, s: g * normal_density(xp, s.x),),
    jvp=(lambda xp, t, s: t * normal_density(xp, s.x),),
    elementwise=True,
    floating=True,
)

LGAMMA = Primitive(
    "lgamma",
    saves=("x",),
    vjp=(lambda xp, g, s: g * xp.digamma(s.x),),
    jvp=(lambda xp, t, s: t * xp.digamma(s.x),),
    elementwise=True,
    floating=True,
)

DIGAMMA = Primitive(
    "digamma",
    saves=("x",),
    vjp=(lambda xp, g, s: g * xp.polygamma(1, s.x),),
    jvp=(lambda xp, t, s: t * xp.polygamma(1, s.x),),
    elementwise=True,
    floating=True,
)

POLYGAMMA = Primitive(
    "polygamma",
    forward=lambda xp, x, *, n: xp.polygamma(n, x),
    saves=("x",),
    vjp=(lambda xp, g, s: g * xp.polygamma(s.n + 1, s.x),),
    jvp=(lambda xp, t, s: t * xp.polygamma(s.n + 1, s.x),),
    options=("n",),
    elementwise=True,
    floating=True,
)

ROWS = (ERF, ERFC, NDTR, LGAMMA, DIGAMMA, POLYGAMMA)
