"""GELU that keeps its gate, the share of a normal distribution below each element.

The gate costs ten times the rest of it; kept as a second result, it is computed once, for both
directions. ``rules/activations.py`` has GELU for those who would rather compute than keep.
"""

import math
from typing import Any

from telegrad.rules.primitive import Primitive

__all__ = ["GATED_GELU", "ROWS"]

_DENSITY_AT_0 = 1 / math.sqrt(2 * math.pi)


def _forward(xp: Any, x: Any) -> tuple[Any, Any]:
    gate = xp.ndtr(x)
    return x * gate, gate


def _density(xp: Any, s: Any) -> Any:
    return xp.exp(s.x * s.x * -0.5) * _DENSITY_AT_0


def _vjp(xp: Any, g: Any, s: Any) -> Any:
    by_value, by_gate = g
    if xp.is_numpy and by_gate is None and s.x.shape and by_value.dtype == s.x.dtype:
        # The same in one piece of memory: fresh memory takes longer to get than to fill. (What is
        # computed from 0-d arrays is no array in NumPy.)
        slope = s.x * s.x
        slope *= -0.5
        xp.exp(slope, out=slope)
        slope *= s.x
        slope *= _DENSITY_AT_0
        slope += s.gate
        slope *= by_value
        return slope
    density = _density(xp, s)
    result = None if by_value is None else by_value * (s.gate + s.x * density)
    if by_gate is None:
        return result
    return by_gate * density if result is None else result + by_gate * density


def _jvp(xp: Any, t: Any, s: Any) -> tuple[Any, Any]:
    density = _density(xp, s)
    return t * (s.gate + s.x * density), t * density


GATED_GELU = Primitive(
    "gated_gelu",
    forward=_forward,
    saves=("x",),
    vjp=(_vjp,),
    jvp=(_jvp,),
    outputs=("value", "gate"),
    gaps=True,
    exact=True,
)

ROWS = (GATED_GELU,)
