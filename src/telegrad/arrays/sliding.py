"""Borders around a value, windows that slide over it, and the sum of windows laid back.

In plain form, over the standard alone. ``windows`` and ``overlap_add`` are each other's adjoint.

Windows of lengths `sizes` slide over `axes`, `strides` apart, their own elements `dilations`
apart. Such an axis gets as many elements as a window has places on it; the windows' own axes come
last, in the order of `axes`.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

__all__ = ["inner", "offsets", "overlap_add", "pad", "places", "windows"]


def places(length: int, size: int, stride: int, dilation: int) -> int:
    """How many windows fit on an axis."""
    return max(0, (length - dilation * (size - 1) - 1) // stride + 1)


def inner(shape: Sequence[int], pad_width: Sequence[tuple[int, int]]) -> tuple[slice, ...]:
    """Where a value of this shape lies inside its borders."""
    return tuple(slice(before, before + n) for n, (before, _) in zip(shape, pad_width))


def pad(xp: Any, x: Any, pad_width: Any, *, constant_values: Any = 0) -> Any:
    """x with (before, after) more elements of one value on each axis."""
    shape = tuple(n + before + after for n, (before, after) in zip(x.shape, pad_width))
    border = xp.full(shape, constant_values, dtype=xp.dtype_of(x))
    return xp.index_set(border, x, index=inner(x.shape, pad_width))


def windows(xp: Any, x: Any, sizes: Any, *, axes: Any, strides: Any, dilations: Any) -> Any:
    """The windows over x; see the module's docstring."""
    for size, axis, stride, dilation in zip(sizes, axes, strides, dilations):
        count = places(x.shape[axis], size, stride, dilation)
        starts = xp.reshape(xp.arange(count) * stride, (count, 1))
        positions = xp.reshape(starts + xp.arange(size) * dilation, (count * size,))
        taken = xp.take(x, positions, axis=axis)
        taken = xp.reshape(taken, (*x.shape[:axis], count, size, *x.shape[axis + 1 :]))
        x = xp.moveaxis(taken, axis + 1, -1)
    return x


def overlap_add(xp: Any, x: Any, shape: Any, *, axes: Any, strides: Any, dilations: Any) -> Any:
    """A value of this shape: the windows x added where ``windows`` took them from."""
    out = xp.zeros(shape, dtype=xp.dtype_of(x))
    for at, offset in offsets(x.shape, axes, strides, dilations):
        out = xp.index_add(out, x[(..., *offset)], index=at)
    return out


def offsets(
    shape: Sequence[int], axes: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> Iterator[tuple[tuple[slice, ...], tuple[int, ...]]]:
    """For each element of a window: where it lies in the value for all windows, and which it is."""
    ndim = len(shape) - len(axes)
    if not all(shape[axis] for axis in axes):
        return
    for offset in product(*(range(size) for size in shape[ndim:])):
        at = [slice(None)] * ndim
        for k, axis, stride, dilation in zip(offset, axes, strides, dilations):
            first = k * dilation
            at[axis] = slice(first, first + stride * (shape[axis] - 1) + 1, stride)
        yield tuple(at), offset
