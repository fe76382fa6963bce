"""The error function and the logarithm of the gamma function, with their derivatives."""

import math
from typing import Any

from telegrad.rules.primitive import of_slopes

_SLOPE_AT_0 = 2 / math.sqrt(math.pi)

ERF = of_slopes("erf", ("x",), lambda xp, v, s: v * (xp.exp(-s.x * s.x) * _SLOPE_AT_0))
ERFC = of_slopes("erfc", ("x",), lambda xp, v, s: v * (xp.exp(-s.x * s.x) * -_SLOPE_AT_0))

_DENSITY_AT_0 = 1 / math.sqrt(2 * math.pi)


def normal_density(xp: Any, x: Any) -> Any:
    """Return the density of a normal distribution at x: the slope of ``ndtr``."""
    return xp.exp(x * x * -0.5) * _DENSITY_AT_0


NDTR = of_slopes("ndtr", ("x",), lambda xp, v, s: v * normal_density(xp, s.x))
LGAMMA = of_slopes("lgamma", ("x",), lambda xp, v, s: v * xp.digamma(s.x))
DIGAMMA = of_slopes("digamma", ("x",), lambda xp, v, s: v * xp.polygamma(1, s.x))

POLYGAMMA = of_slopes(
    "polygamma",
    ("x",),
    lambda xp, v, s: v * xp.polygamma(s.n + 1, s.x),
    forward=lambda xp, x, *, n: xp.polygamma(n, x),
    options=("n",),
)
