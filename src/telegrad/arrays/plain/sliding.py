"""Borders around a value, windows that slide over it, and the sum of windows laid back.

In plain form, over the standard alone. ``windows`` and ``overlap_add`` are each other's adjoint;
``placement.py`` says where windows lie.
"""

from typing import Any

from telegrad.arrays.plain.placement import bordered_shape, inner, offsets, places

__all__ = ["overlap_add", "pad", "windows"]


def pad(xp: Any, x: Any, pad_width: Any, *, constant_values: Any = 0) -> Any:
    """Return x with (before, after) more elements of one value on each axis."""
    shape = bordered_shape(x.shape, pad_width)
    border = xp.full(shape, constant_values, dtype=xp.dtype_of(x))
    return xp.index_set(border, x, index=inner(x.shape, pad_width))


def windows(xp: Any, x: Any, sizes: Any, *, axes: Any, strides: Any, dilations: Any) -> Any:
    """Return the windows over x."""
    for size, axis, stride, dilation in zip(sizes, axes, strides, dilations):
        count = places(x.shape[axis], size, stride, dilation)
        starts = xp.reshape(xp.arange(count) * stride, (count, 1))
        positions = xp.reshape(starts + xp.arange(size) * dilation, (count * size,))
        taken = xp.take(x, positions, axis=axis)
        taken = xp.reshape(taken, (*x.shape[:axis], count, size, *x.shape[axis + 1 :]))
        x = xp.moveaxis(taken, axis + 1, -1)
    return x


def overlap_add(xp: Any, x: Any, shape: Any, *, axes: Any, strides: Any, dilations: Any) -> Any:
    """Return a value of this shape: the windows x added where ``windows`` took them from."""
    out = xp.zeros(shape, dtype=xp.dtype_of(x))
    for at, offset in offsets(x.shape, axes, strides, dilations):
        out = xp.index_add(out, x[(..., *offset)], index=at)
    return out
