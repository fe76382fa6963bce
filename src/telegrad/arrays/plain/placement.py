"""Where borders and windows lie: the arithmetic of their shapes, without any array.

Windows of lengths `sizes` slide over `axes`; neighbouring windows are `strides` apart, and the
elements of one window `dilations` apart. In the result such an axis counts the places of the
window; the windows' own axes come last, in the order of `axes`.
"""

from collections.abc import Iterator, Sequence
from itertools import product


def bordered_shape(shape: Sequence[int], pad_width: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Return the shape of a value of this shape with its borders."""
    return tuple(n + before + after for n, (before, after) in zip(shape, pad_width))


def inner(shape: Sequence[int], pad_width: Sequence[tuple[int, int]]) -> tuple[slice, ...]:
    """Return where a value of this shape lies inside its borders."""
    return tuple(slice(before, before + n) for n, (before, _) in zip(shape, pad_width))


def places(length: int, size: int, stride: int, dilation: int) -> int:
    """Return how many windows fit on an axis."""
    return max(0, (length - dilation * (size - 1) - 1) // stride + 1)


def offsets(
    shape: Sequence[int], axes: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> Iterator[tuple[tuple[slice, ...], tuple[int, ...]]]:
    """Return, for each element of a window, where it lies for all windows, and which it is."""
    ndim = len(shape) - len(axes)
    if not all(shape[axis] for axis in axes):
        return
    for offset in product(*(range(size) for size in shape[ndim:])):
        at = [slice(None)] * ndim
        for k, axis, stride, dilation in zip(offset, axes, strides, dilations):
            first = k * dilation
            at[axis] = slice(first, first + stride * (shape[axis] - 1) + 1, stride)
        yield tuple(at), offset
