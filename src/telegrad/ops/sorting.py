"""Sorting along an axis."""

from typing import Never

from telegrad.ops.arguments import ArrayLike, as_tensor, normalized_axis
from telegrad.rules import searching as _searching
from telegrad.rules import sorting as _primitives
from telegrad.tensors import Tensor, apply


def sort(
    x: ArrayLike,
    /,
    axis: int = -1,
    *,
    descending: bool = False,
    stable: bool = True,
    **unknown: Never,
) -> Tensor:
    """Return the elements in order along an axis.

    Arguments:
        x: The values.
        axis: The axis to go along.
        descending: Whether the largest comes first.
        stable: Whether equal elements keep their order.

    Examples:
        >>> tg.sort(tg.tensor([3, 1, 2]), descending=True)
        tensor([3, 2, 1])
    """
    x = as_tensor(x, "sort", unknown)
    axis = normalized_axis(axis, x.ndim, "sort")
    return apply(_primitives.SORT, x, axis=axis, descending=descending, stable=stable)


def argsort(
    x: ArrayLike,
    /,
    axis: int = -1,
    *,
    descending: bool = False,
    stable: bool = True,
    **unknown: Never,
) -> Tensor:
    """Return the indices that put an axis in order; not differentiable.

    The arguments are those of ``sort``.

    Examples:
        >>> tg.argsort(tg.tensor([3, 1, 2]))
        tensor([1, 2, 0])
    """
    x = as_tensor(x, "argsort", unknown)
    axis = normalized_axis(axis, x.ndim, "argsort")
    return apply(_searching.ARGSORT, x, axis=axis, descending=descending, stable=stable)
