"""GELU that keeps its slope for the backward pass.

Both are made of the share of a normal distribution below each element, which costs ten times the
rest. So the slope is a second result, computed together with the value, and the backward pass is
one product. ``rules/activations.py`` has the GELU that computes it again, and keeps less.
"""

from typing import Any

from telegrad.rules.primitive import Primitive
from telegrad.rules.special import normal_density


def _forward(xp: Any, x: Any) -> tuple[Any, Any]:
    if xp.is_numpy:
        return xp.gelu_with_slope(x)  # type: ignore[no-any-return]
    share = xp.ndtr(x)
    return x * share, share + x * normal_density(xp, x)


def _bend(xp: Any, s: Any) -> Any:
    """Return the slope's own slope."""
    return normal_density(xp, s.x) * (2 - s.x * s.x)


def _vjp(xp: Any, g: Any, s: Any) -> Any:
    by_value, by_slope = g
    result = None if by_value is None else by_value * s.slope
    if by_slope is None:
        return result
    part = by_slope * _bend(xp, s)
    return part if result is None else result + part


GELU_WITH_SLOPE = Primitive(
    "gelu_with_slope",
    forward=_forward,
    saves=("x",),
    vjp=(_vjp,),
    jvp=(lambda xp, t, s: (t * s.slope, t * _bend(xp, s)),),
    outputs=("value", "slope"),
    gaps=True,
    exact=True,
)
