"""Where something is. Positions have no derivative."""

from typing import Never

from telegrad.errors import ShapeError, UsageError
from telegrad.ops.arguments import ArrayLike, as_tensor, check_keepdims, normalized_axis
from telegrad.rules import Primitive
from telegrad.rules import searching as _primitives
from telegrad.tensors import Tensor, apply, apply_several
from telegrad.tensors.torch_hints import unexpected

__all__ = ["argmax", "argmin", "nonzero", "searchsorted"]


def _place(
    primitive: Primitive, x: ArrayLike, axis: int | None, keepdims: bool, unknown: dict[str, Never]
) -> Tensor:
    if unknown:
        raise unexpected(primitive.name, unknown)
    check_keepdims(keepdims, primitive.name)
    x = as_tensor(x, primitive.name)
    if axis is not None:
        axis = normalized_axis(axis, x.ndim, primitive.name)
    return apply(primitive, x, axis=axis, keepdims=keepdims)


def argmax(
    x: ArrayLike, /, axis: int | None = None, keepdims: bool = False, **unknown: Never
) -> Tensor:
    """Where the largest element along an axis is; the first of equal ones."""
    return _place(_primitives.ARGMAX, x, axis, keepdims, unknown)


def argmin(
    x: ArrayLike, /, axis: int | None = None, keepdims: bool = False, **unknown: Never
) -> Tensor:
    """Where the smallest element along an axis is; the first of equal ones."""
    return _place(_primitives.ARGMIN, x, axis, keepdims, unknown)


def nonzero(x: ArrayLike, /) -> tuple[Tensor, ...]:
    """Where the elements that are not zero are: their indices, one tensor an axis."""
    x = as_tensor(x, "nonzero")
    if not x.ndim:
        raise ShapeError("expected a tensor with axes in nonzero, got a 0-d tensor")
    return apply_several(_primitives.NONZERO, x)


def searchsorted(
    x1: ArrayLike, x2: ArrayLike, /, *, side: str = "left", sorter: Tensor | None = None
) -> Tensor:
    """Where each of ``x2`` would have to stand in ``x1`` to keep its order."""
    if side not in ("left", "right"):
        raise UsageError(f"expected 'left' or 'right' as side in searchsorted, got {side!r}")
    order = None if sorter is None else as_tensor(sorter, "searchsorted").array
    return apply(_primitives.SEARCHSORTED, x1, x2, side=side, sorter=order)
