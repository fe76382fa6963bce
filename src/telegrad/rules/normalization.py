"""Values brought to mean 0 and variance 1 over some axes: the heart of layer and batch norms.

The second result, ``scale``, is one divided by the standard deviation. Both rules read the results
alone, so the argument need not be kept. ``scale_and_shift`` is what a layer norm does next: each
place of the last axes has a weight and a bias of its own.
"""

from math import prod
from typing import Any

from telegrad.rules.primitive import Primitive

__all__ = ["NORMALIZE", "ROWS", "SCALE_AND_SHIFT"]


def _normalize(xp: Any, x: Any, *, axes: tuple[int, ...], eps: float) -> tuple[Any, Any]:
    centred = x - _means(xp, x, axes)
    scale = 1 / xp.sqrt(_mean_products(xp, centred, centred, axes) + eps)
    if xp.is_numpy:
        centred *= scale
        return centred, scale
    return centred * scale, scale


def _means(xp: Any, x: Any, axes: tuple[int, ...]) -> Any:
    if _has_rows(xp, x, axes):
        return xp.row_sums(x, len(axes)) / x.dtype.type(_count(x, axes))
    return xp.mean(x, axis=axes, keepdims=True)


def _mean_products(xp: Any, x: Any, y: Any, axes: tuple[int, ...]) -> Any:
    if _has_rows(xp, x, axes) and x.dtype == y.dtype:
        return xp.row_dots(x, y, len(axes)) / x.dtype.type(_count(x, axes))
    return xp.mean(x * y, axis=axes, keepdims=True)


def _has_rows(xp: Any, x: Any, axes: tuple[int, ...]) -> bool:
    """Whether the axes are the last ones of a plain real array, which has quicker sums."""
    last = tuple(range(x.ndim - len(axes), x.ndim))
    return bool(xp.is_numpy and x.size and x.dtype.kind == "f" and axes == last)


def _count(x: Any, axes: tuple[int, ...]) -> int:
    return prod(x.shape[axis] for axis in axes)


def _projected(xp: Any, v: Any, s: Any) -> Any:
    """The derivative of the normal values in a direction; its matrix is symmetric."""
    along, centre = _mean_products(xp, v, s.normal, s.axes), _means(xp, v, s.axes)
    if xp.is_numpy and v.dtype == s.normal.dtype:
        # The same in one piece of memory: fresh memory takes longer to get than to fill.
        result = s.normal * -along
        result += v
        result -= centre
        result *= s.scale
        return result
    return s.scale * (v - centre - s.normal * along)


def _normalize_vjp(xp: Any, g: Any, s: Any) -> Any:
    by_values, by_scale = g
    result = None if by_values is None else _projected(xp, by_values, s)
    if by_scale is not None:
        share = 1.0 / max(_count(s.normal, s.axes), 1)
        part = s.normal * (by_scale * s.scale * s.scale * -share)
        result = part if result is None else result + part
    return result


def _normalize_jvp(xp: Any, t: Any, s: Any) -> Any:
    along = _mean_products(xp, t, s.normal, s.axes)
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


def _scale_and_shift(xp: Any, x: Any, weight: Any, bias: Any) -> Any:
    out = x * weight
    if xp.is_numpy and out.shape and out.dtype == bias.dtype:
        out += bias
        return out
    return out + bias


def _sum_of_items(xp: Any, x: Any, shape: tuple[int, ...]) -> Any:
    """The sum over all axes but the last, which have this shape."""
    if xp.is_numpy and x.size and x.dtype.kind == "f":
        return xp.column_sums(x.reshape(-1, prod(shape))).reshape(shape)
    return xp.sum(x, axis=tuple(range(x.ndim - len(shape))))


SCALE_AND_SHIFT = Primitive(
    "scale_and_shift",
    forward=_scale_and_shift,
    inputs=("x", "weight", "bias"),
    saves=("weight", "x weight.shape", "bias.shape"),
    vjp=(
        lambda xp, g, s: g * s.weight,
        lambda xp, g, s: _sum_of_items(xp, g * s.x, s.weight_shape),
        lambda xp, g, s: _sum_of_items(xp, g, s.bias_shape),
    ),
    jvp=(
        lambda xp, t, s: t * s.weight,
        lambda xp, t, s: t * s.x,
        lambda xp, t, s: t + xp.zeros_like(s.out),
    ),
    exact=True,
)

ROWS = (NORMALIZE, SCALE_AND_SHIFT)
