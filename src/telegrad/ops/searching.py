"""Searching: functions that return positions, which have no derivative."""

from typing import Never

from telegrad.errors import ShapeError, UsageError
from telegrad.ops.arguments import ArrayLike, Unknown, as_tensor, check_keepdims, normalized_axis
from telegrad.rules import Primitive
from telegrad.rules import searching as _primitives
from telegrad.tensors import Tensor, apply, apply_several


def _place(
    primitive: Primitive, x: ArrayLike, axis: int | None, keepdims: bool, unknown: Unknown
) -> Tensor:
    x = as_tensor(x, primitive.name, unknown)
    check_keepdims(keepdims, primitive.name)
    if axis is not None:
        axis = normalized_axis(axis, x.ndim, primitive.name)
    return apply(primitive, x, axis=axis, keepdims=keepdims)


def argmax(
    x: ArrayLike, /, axis: int | None = None, keepdims: bool = False, **unknown: Never
) -> Tensor:
    """Return where the largest element along an axis is; the first of equal ones.

    Arguments:
        x: The values.
        axis: The axis to go along; by default x counts as flat.
        keepdims: Whether the axes gone over stay, with length 1.

    Examples:
        >>> tg.argmax(tg.tensor([[1.0, 4.0], [3.0, 2.0]]), axis=1)
        tensor([1, 0])
    """
    return _place(_primitives.ARGMAX, x, axis, keepdims, unknown)


def argmin(
    x: ArrayLike, /, axis: int | None = None, keepdims: bool = False, **unknown: Never
) -> Tensor:
    """Return where the smallest element along an axis is; the first of equal ones.

    The arguments are those of ``argmax``.

    Examples:
        >>> tg.argmin(tg.tensor([[1.0, 4.0], [3.0, 2.0]]), axis=1)
        tensor([0, 1])
    """
    return _place(_primitives.ARGMIN, x, axis, keepdims, unknown)


def nonzero(x: ArrayLike, /) -> tuple[Tensor, ...]:
    """Return where the elements that are not zero are: their indices, one tensor an axis.

    Raises:
        ShapeError: If x has no axes.

    Examples:
        >>> tg.nonzero(tg.tensor([0, 3, 0, 5]))
        (tensor([1, 3]),)
    """
    x = as_tensor(x, "nonzero")
    if not x.ndim:
        raise ShapeError("expected a tensor with axes in nonzero, got a 0-d tensor")
    return apply_several(_primitives.NONZERO, x)


def searchsorted(
    x1: ArrayLike, x2: ArrayLike, /, *, side: str = "left", sorter: Tensor | None = None
) -> Tensor:
    """Return where each of ``x2`` would have to stand in ``x1`` to keep its order.

    Arguments:
        x1: Numbers in rising order, or in any with `sorter`.
        x2: The numbers to find a place for.
        side: Before ("left") or after ("right") equal ones.
        sorter: The indices that put x1 in rising order.

    Raises:
        UsageError: If the side is neither "left" nor "right".

    Examples:
        >>> tg.searchsorted(tg.tensor([1, 3, 5]), tg.tensor([0, 3, 9]))
        tensor([0, 1, 3])
    """
    if side not in ("left", "right"):
        raise UsageError(f"expected 'left' or 'right' as side in searchsorted, got {side!r}")
    order = None if sorter is None else as_tensor(sorter, "searchsorted").array
    return apply(_primitives.SEARCHSORTED, x1, x2, side=side, sorter=order)
