"""Sorting along an axis."""

from typing import Never

from telegrad.ops.arguments import ArrayLike, as_tensor, normalized_axis
from telegrad.rules import searching as _searching
from telegrad.rules import sorting as _primitives
from telegrad.tensors import Tensor, apply
from telegrad.tensors.torch_hints import unexpected

__all__ = ["argsort", "sort"]


def sort(
    x: ArrayLike,
    /,
    axis: int = -1,
    *,
    descending: bool = False,
    stable: bool = True,
    **unknown: Never,
) -> Tensor:
    """The elements in order along an axis."""
    if unknown:
        raise unexpected("sort", unknown)
    x = as_tensor(x, "sort")
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
    """The indices that put an axis in order; not differentiable."""
    if unknown:
        raise unexpected("argsort", unknown)
    x = as_tensor(x, "argsort")
    axis = normalized_axis(axis, x.ndim, "argsort")
    return apply(_searching.ARGSORT, x, axis=axis, descending=descending, stable=stable)
