"""Pooling as NumPy does it best: one pass over all windows for each element of a window."""

from typing import Any

import numpy as np

from telegrad.arrays.numpy.special import only_where
from telegrad.arrays.plain.placement import bordered_shape, inner, offsets
from telegrad.arrays.plain.pooling import result_shape

__all__ = ["pool_max", "pool_put", "pool_spread", "pool_sum", "pool_take"]


def _bordered(x: Any, pads: Any, value: float) -> Any:
    if not any(before or after for before, after in pads):
        return x
    widths = ((0, 0), (0, 0), *pads)
    out = np.full_like(x, value, shape=bordered_shape(x.shape, widths))
    out[inner(x.shape, widths)] = x
    return out


def _parts(shape: Any, how: dict[str, Any]) -> list[Any]:
    """Return, for each element of a window, where it lies for all windows at once."""
    axes = tuple(range(2, len(shape)))
    windows = (*shape, *how["sizes"])
    return [at for at, _ in offsets(windows, axes, how["strides"], how["dilations"])]


def pool_max(x: Any, **how: Any) -> tuple[Any, Any]:
    shape = result_shape(x.shape, how)
    places = x.shape[2:]
    x = _bordered(x, how["pads"], -np.inf)
    first, *others = _parts(shape, how)
    out = x[first].copy(order="K")
    which = np.zeros_like(out, dtype=np.uint8 if len(others) < 256 else np.int64)
    larger = np.empty_like(out, dtype=np.bool_)
    for i, at in enumerate(others, 1):
        part = x[at]
        np.greater(part, out, out=larger)
        np.maximum(out, part, out=out)
        np.copyto(which, i, where=larger)
    if not np.isfinite(out).all():
        inside = _bordered(np.ones((1, 1, *places), np.bool_), how["pads"], False)
        _choose_again(x, inside, out, which, how)
    return out, which


def _choose_again(x: Any, inside: Any, out: Any, which: Any, how: dict[str, Any]) -> None:
    """Set `which` where comparing did not tell: a NaN wins, the last one, a border never."""
    parts = list(enumerate(_parts(which.shape, how)))
    lowest = np.isneginf(out)
    for i, at in reversed(parts):
        np.copyto(which, i, where=lowest & inside[at])
    for i, at in parts:
        np.copyto(which, i, where=np.isnan(x[at]))


def pool_take(x: Any, which: Any, **how: Any) -> Any:
    parts = _parts(which.shape, how)
    x = _bordered(x, how["pads"], 0.0)
    out = np.zeros_like(which, dtype=x.dtype)
    for i, at in enumerate(parts):
        np.copyto(out, x[at], where=which == i)
    return out


def pool_sum(x: Any, **how: Any) -> Any:
    shape = result_shape(x.shape, how)
    x = _bordered(x, how["pads"], 0.0)
    first, *others = _parts(shape, how)
    out = x[first].copy(order="K")
    for at in others:
        out += x[at]
    return out


def pool_put(g: Any, which: Any, *, shape: Any, **how: Any) -> Any:
    return _laid_back(g, shape, how, lambda i: only_where(g, which == i))


def pool_spread(g: Any, *, shape: Any, **how: Any) -> Any:
    return _laid_back(g, shape, how, lambda i: g)


def _laid_back(g: Any, shape: Any, how: dict[str, Any], part: Any) -> Any:
    widths = ((0, 0), (0, 0), *how["pads"])
    out = np.zeros_like(g, shape=bordered_shape(shape, widths))
    apart = all(
        stride >= (size - 1) * dilation + 1
        for size, stride, dilation in zip(how["sizes"], how["strides"], how["dilations"])
    )
    for i, at in enumerate(_parts(g.shape, how)):
        if apart:
            out[at] = part(i)
        else:
            out[at] += part(i)
    return out[inner(shape, widths)]
