"""Values brought to mean 0 and variance 1 over some axes: the heart of layer and batch norms.

The second result, ``scale``, is one divided by the standard deviation. Both rules read the results
alone, so the argument need not be kept.
"""

from math import prod
from typing import Any

from telegrad.rules.primitive import Primitive

__all__ = ["NORMALIZE", "ROWS"]


def _normalize(xp: Any, x: Any, *, axes: tuple[int, ...], eps: float) -> tuple[Any, Any]:
    centred = x - xp.mean(x, axis=axes, keepdims=True)
    scale = 1 / xp.sqrt(xp.mean(centred * centred, axis=axes, keepdims=True) + eps)
    if xp.is_numpy:
        centred *= scale
        return centred, scale
    return centred * scale, scale


def _count(s: Any) -> int:
    return prod(s.normal.shape[axis] for axis in s.axes)


def _projected(xp: Any, v: Any, s: Any) -> Any:
    """The derivative of the normal values in a direction; its matrix is symmetric."""
    along = xp.mean(v * s.normal, axis=s.axes, keepdims=True)
    centre = xp.mean(v, axis=s.axes, keepdims=True)
    if xp.is_numpy and v.dtype == s.normal.dtype:
        # The same in one piece of memory: fresh memory takes longer to get than to fill.
        result = v - centre
        result -= s.normal * along
        result *= s.scale
        return result
    return s.scale * (v - centre - s.normal * along)


def _normalize_vjp(xp: Any, g: Any, s: Any) -> Any:
    by_values, by_scale = g
    result = None if by_values is None else _projected(xp, by_values, s)
    if by_scale is not None:
        part = s.normal * (by_scale * s.scale * s.scale * (-1.0 / _count(s)))
        result = part if result is None else result + part
    return result


def _normalize_jvp(xp: Any, t: Any, s: Any) -> Any:
    along = xp.mean(t * s.normal, axis=s.axes, keepdims=True)
    return _projected(xp, t, s), -s.scale * s.scale * along


NORMALIZE = Primitive(
    "normalize",
    forward=_normalize,
    vjp=(_normalize_vjp,),
    jvp=(_normalize_jvp,),
    options=("axes", "eps"),
    outputs=("normal", "scale"),
    exact=True,
    gaps=True,
)

ROWS = (NORMALIZE,)
