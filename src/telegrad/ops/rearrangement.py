"""The elements in another order, or several times over."""

from collections.abc import Sequence
from typing import Any, Never

import numpy as np

from telegrad.errors import DTypeError, ShapeError
from telegrad.ops.arguments import (
    ArrayLike,
    Axis,
    as_tensor,
    normalized_axes,
    normalized_axis,
    shape_of,
)
from telegrad.ops.indexing import getitem
from telegrad.ops.manipulation import broadcast_to, expand_dims, reshape
from telegrad.rules import manipulation as _primitives
from telegrad.tensors import Tensor, apply


def flip(x: ArrayLike, /, axis: Axis = None, **unknown: Never) -> Tensor:
    """Reverse the order of the elements along some axes, or along all of them.

    Raises:
        ShapeError: If x does not have an axis, or one is named twice.

    Examples:
        >>> tg.flip(tg.tensor([[1, 2], [3, 4]]), axis=1)
        tensor([[2, 1],
                [4, 3]])
    """
    x = as_tensor(x, "flip", unknown)
    return apply(_primitives.FLIP, x, axis=normalized_axes(axis, x.ndim, "flip"))


def roll(
    x: ArrayLike, /, shift: int | tuple[int, ...], axis: Axis = None, **unknown: Never
) -> Tensor:
    """Move the elements along some axes; what leaves at the end enters at the start.

    Arguments:
        x: The values.
        shift: How many places to move by; several, one for each axis, as a tuple.
        axis: The axis, or axes, to move along; by default x counts as flat.

    Raises:
        ShapeError: If there is not one axis for each shift, or x does not have it.

    Examples:
        >>> tg.roll(tg.tensor([1, 2, 3, 4]), 1)
        tensor([4, 1, 2, 3])
    """
    x = as_tensor(x, "roll", unknown)
    if isinstance(shift, tuple) and not (isinstance(axis, tuple) and len(axis) == len(shift)):
        raise ShapeError(f"expected one axis for each shift in roll, got {shift} and {axis}")
    if isinstance(axis, tuple):
        # An axis named twice moves twice.
        axis = tuple(normalized_axis(each, x.ndim, "roll") for each in axis)
    elif axis is not None:
        axis = normalized_axis(axis, x.ndim, "roll")
    return apply(_primitives.ROLL, x, shift=shift, axis=axis)


def tile(x: ArrayLike, repetitions: int | tuple[int, ...], /) -> Tensor:
    """Repeat the whole tensor along each axis.

    Examples:
        >>> tg.tile(tg.tensor([1, 2]), 2)
        tensor([1, 2, 1, 2])
        >>> tg.tile(tg.tensor([1, 2]), (2, 2))
        tensor([[1, 2, 1, 2],
                [1, 2, 1, 2]])
    """
    x = as_tensor(x, "tile")
    times = shape_of(repetitions)
    ndim = max(x.ndim, len(times))
    times = (1,) * (ndim - len(times)) + times
    shape = (1,) * (ndim - x.ndim) + x.shape
    apart = reshape(x, tuple(n for length in shape for n in (1, length)))
    wide = broadcast_to(apart, tuple(n for pair in zip(times, shape) for n in pair))
    return reshape(wide, tuple(many * length for many, length in zip(times, shape)))


def repeat(
    x: ArrayLike, repeats: int | Sequence[int] | Tensor, /, axis: int | None = None
) -> Tensor:
    """Repeat each element, `repeats` times or its own number of times, along an axis.

    Arguments:
        x: The values.
        repeats: How often: one number, or one for each place of the axis.
        axis: The axis to go along; by default x is flattened first.

    Raises:
        ShapeError: If there are neither one nor as many numbers as places.
        DTypeError: If the numbers are not integers.

    Examples:
        >>> tg.repeat(tg.tensor([1, 2]), 2)
        tensor([1, 1, 2, 2])
        >>> tg.repeat(tg.tensor([1, 2]), [1, 3])
        tensor([1, 2, 2, 2])
    """
    x = as_tensor(x, "repeat")
    if axis is None:
        x, axis = reshape(x, (-1,)), 0
    axis = normalized_axis(axis, x.ndim, "repeat")
    length = x.shape[axis]
    counts = _counts(repeats)
    if counts.size != 1:
        if counts.shape != (length,):
            raise ShapeError(
                f"expected one number, or one for each of {length} places, as repeats, got shape "
                f"{counts.shape}"
            )
        places = np.repeat(np.arange(length), counts)
        return getitem(x, (*(slice(None),) * axis, places))
    many = int(counts.reshape(()))
    wide = (*x.shape[: axis + 1], many, *x.shape[axis + 1 :])
    shape = (*x.shape[:axis], length * many, *x.shape[axis + 1 :])
    return reshape(broadcast_to(expand_dims(x, axis=axis + 1), wide), shape)


def _counts(repeats: Any) -> Any:
    counts = np.asarray(repeats.array if isinstance(repeats, Tensor) else repeats)
    if counts.dtype.kind not in "iu":
        raise DTypeError(f"expected integers as repeats, got {counts.dtype}")
    return counts
