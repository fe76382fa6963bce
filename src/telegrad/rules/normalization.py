"""Values brought to mean 0 and variance 1 over some axes: the heart of layer and batch norms.

The second result of ``normalize``, ``scale``, is one divided by the standard deviation. Both rules
read only the results, so the argument need not be kept. ``layer_norm`` is the same over the last
axes, with a weight and a bias for each place on them. NumPy has kernels of its own for that
primitive and its plain pull-back (``arrays/numpy/layer_norm.py``).
"""

from math import prod
from typing import Any

from telegrad.rules.primitive import Primitive


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
    """Say whether the axes are the last ones of a plain real array, where sums are quicker."""
    return _is_plain(xp, x) and axes == _last(x, len(axes))


def _is_plain(xp: Any, x: Any) -> bool:
    return bool(xp.is_numpy and x.size and x.dtype.kind == "f")


def _last(x: Any, count: int) -> tuple[int, ...]:
    return tuple(range(x.ndim - count, x.ndim))


def _count(x: Any, axes: tuple[int, ...]) -> int:
    return prod(x.shape[axis] for axis in axes)


def _projected(xp: Any, v: Any, s: Any, axes: tuple[int, ...]) -> Any:
    """Return the derivative of the normal values in a direction; its matrix is symmetric."""
    along, centre = _mean_products(xp, v, s.normal, axes), _means(xp, v, axes)
    if xp.is_numpy and v.dtype == s.normal.dtype:
        # The same, in place: fresh memory takes longer to get than to fill.
        result = s.normal * -along
        result += v
        result -= centre
        result *= s.scale
        return result
    return s.scale * (v - centre - s.normal * along)


def _pulled(xp: Any, by_normal: Any, by_scale: Any, s: Any, axes: tuple[int, ...]) -> Any:
    """Return the argument's gradient from those of the two results; None stands for zeros."""
    result = None if by_normal is None else _projected(xp, by_normal, s, axes)
    if by_scale is not None:
        share = 1.0 / max(_count(s.normal, axes), 1)
        part = s.normal * (by_scale * s.scale * s.scale * -share)
        result = part if result is None else result + part
    return result


def _pushed(xp: Any, t: Any, s: Any, axes: tuple[int, ...]) -> tuple[Any, Any]:
    along = _mean_products(xp, t, s.normal, axes)
    return _projected(xp, t, s, axes), -s.scale * s.scale * along


NORMALIZE = Primitive(
    "normalize",
    forward=_normalize,
    vjp=(lambda xp, g, s: _pulled(xp, g[0], g[1], s, s.axes),),
    jvp=(lambda xp, t, s: _pushed(xp, t, s, s.axes),),
    options=("axes", "eps"),
    outputs=("normal", "scale"),
    exact=True,
    gaps=True,
)


def _layer_norm(xp: Any, x: Any, weight: Any, bias: Any, *, eps: float) -> tuple[Any, Any, Any]:
    if _is_plain(xp, x) and x.dtype == weight.dtype == bias.dtype:
        return xp.layer_norm(x, weight, bias, eps)  # type: ignore[no-any-return]
    normal, scale = _normalize(xp, x, axes=_last(x, weight.ndim), eps=eps)
    return normal * weight + bias, normal, scale


def _with_products(xp: Any, g: Any, s: Any) -> Any:
    by_value = g[0]
    return *g, None if by_value is None else by_value * s.normal


def _by_input(xp: Any, g: Any, s: Any) -> Any:
    by_value, by_normal, by_scale, products = g
    if by_value is not None:
        if by_normal is None and by_scale is None and _is_plain(xp, by_value):
            return xp.layer_norm_pull(by_value, products, s.weight, s.normal, s.scale)
        through = by_value * s.weight
        by_normal = through if by_normal is None else by_normal + through
    return _pulled(xp, by_normal, by_scale, s, _last(s.normal, s.weight.ndim))


def _sum_of_items(xp: Any, x: Any, shape: tuple[int, ...]) -> Any:
    """Return the sum over all axes but the last, which have this shape."""
    if x is None:
        return None
    if _is_plain(xp, x):
        return xp.column_sums(x.reshape(-1, prod(shape))).reshape(shape)
    return xp.sum(x, axis=tuple(range(x.ndim - len(shape))))


def _along_input(xp: Any, t: Any, s: Any) -> Any:
    along, by_scale = _pushed(xp, t, s, _last(s.normal, s.weight.ndim))
    return along * s.weight, along, by_scale


LAYER_NORM = Primitive(
    "layer_norm",
    forward=_layer_norm,
    inputs=("x", "weight", "bias"),
    saves=("weight", "weight.shape", "bias.shape"),
    begin=_with_products,
    vjp=(
        _by_input,
        lambda xp, g, s: _sum_of_items(xp, g[3], s.weight_shape),
        lambda xp, g, s: _sum_of_items(xp, g[0], s.bias_shape),
    ),
    jvp=(
        _along_input,
        lambda xp, t, s: (t * s.normal, None, None),
        lambda xp, t, s: (t + xp.zeros_like(s.value), None, None),
    ),
    options=("eps",),
    outputs=("value", "normal", "scale"),
    exact=True,
    gaps=True,
)
