"""Pooling over the place axes of images (item, channel, place, …), in plain form.

`sizes`, `strides`, `pads` (pairs) and `dilations` have one entry a place axis; borders never win a
maximum and add nothing to a sum. `which` names one element of each window; ``pool_max`` tells the
largest, the first of equal ones, or the last NaN. ``pool_take`` and ``pool_put`` are each other's
adjoint, as are ``pool_sum`` and ``pool_spread``.
"""

import math
from typing import Any

from telegrad.arrays.plain.placement import bordered_shape, inner, offsets, places

__all__ = ["pool_max", "pool_put", "pool_spread", "pool_sum", "pool_take"]


def _windows(xp: Any, x: Any, s: dict[str, Any], border: float) -> Any:
    """Return all windows, each as one last axis."""
    x = xp.pad(x, ((0, 0), (0, 0), *s["pads"]), constant_values=border)
    axes = tuple(range(2, len(x.shape)))
    taken = xp.windows(x, s["sizes"], axes=axes, strides=s["strides"], dilations=s["dilations"])
    return xp.reshape(taken, (*taken.shape[: len(x.shape)], math.prod(s["sizes"])))


def pool_max(xp: Any, x: Any, **how: Any) -> tuple[Any, Any]:
    """Return the largest element of each window, and which one it was."""
    taken = _windows(xp, x, how, -xp.inf)
    largest, which = xp.max(taken, axis=-1), xp.argmax(taken, axis=-1)
    inside = _windows(xp, xp.ones_like(x), how, 0.0)
    which = xp.where(largest == -xp.inf, xp.argmax(inside, axis=-1), which)
    is_nan = xp.flip(xp.astype(taken != taken, xp.dtype_of(which)), axis=-1)
    last = taken.shape[-1] - 1 - xp.argmax(is_nan, axis=-1)
    return largest, xp.where(largest != largest, last, which)


def pool_take(xp: Any, x: Any, which: Any, **how: Any) -> Any:
    """Return the element of each window that `which` names."""
    taken = _windows(xp, x, how, 0.0)
    place = xp.expand_dims(which, axis=-1)
    return xp.take_along_axis(taken, place, axis=-1)[..., 0]


def pool_sum(xp: Any, x: Any, **how: Any) -> Any:
    """Return the sum of each window."""
    return xp.sum(_windows(xp, x, how, 0.0), axis=-1)


def pool_put(xp: Any, g: Any, which: Any, *, shape: Any, **how: Any) -> Any:
    """Return the adjoint of ``pool_take``: each number to the place it was taken from."""

    def part(i: int) -> Any:
        return xp.where(which == i, g, xp.zeros_like(g))

    return _laid_back(xp, g, shape, how, part)


def pool_spread(xp: Any, g: Any, *, shape: Any, **how: Any) -> Any:
    """Return the adjoint of ``pool_sum``: each number to the whole of its window."""
    return _laid_back(xp, g, shape, how, lambda i: g)


def _laid_back(xp: Any, g: Any, shape: Any, s: dict[str, Any], part: Any) -> Any:
    """Return the sum of all windows put back; `part(i)` is element i of every window."""
    widths = ((0, 0), (0, 0), *s["pads"])
    out = xp.zeros(bordered_shape(shape, widths), dtype=xp.dtype_of(g))
    axes = tuple(range(2, len(shape)))
    windows = (*g.shape, *s["sizes"])
    for i, (at, _) in enumerate(offsets(windows, axes, s["strides"], s["dilations"])):
        out = xp.index_add(out, part(i), index=at)
    return out[inner(shape, widths)]


def result_shape(shape: Any, s: dict[str, Any]) -> tuple[int, ...]:
    """Return the shape of what pooling makes of this one."""
    found = list(shape[:2])
    lengths = bordered_shape(shape[2:], s["pads"])
    for how in zip(lengths, s["sizes"], s["strides"], s["dilations"]):
        found.append(places(*how))
    return tuple(found)
