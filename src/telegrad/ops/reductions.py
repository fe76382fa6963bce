"""Sums and their kin."""

from typing import Any

from telegrad.ops.arguments import ArrayLike, Axis, as_tensor, normalized_axes
from telegrad.rules import reductions as _rows
from telegrad.tensors import Tensor, apply

__all__ = ["max", "mean", "min", "sum"]


def sum(x: ArrayLike, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The sum over some axes, or over all of them."""
    x = as_tensor(x, "sum")
    if dtype is not None:
        x = x.to(dtype)
    if axis is not None:
        axis = normalized_axes(axis, x.ndim, "sum")
    return apply(_rows.SUM, x, axis=axis, keepdims=keepdims)  # type: ignore[no-any-return]


def mean(x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The average over some axes, or over all of them."""
    x = as_tensor(x, "mean")
    if axis is not None:
        axis = normalized_axes(axis, x.ndim, "mean")
    return apply(_rows.MEAN, x, axis=axis, keepdims=keepdims)  # type: ignore[no-any-return]


def max(x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The largest element over some axes; equal ones share the gradient."""
    x = as_tensor(x, "max")
    if axis is not None:
        axis = normalized_axes(axis, x.ndim, "max")
    return apply(_rows.AMAX, x, axis=axis, keepdims=keepdims)  # type: ignore[no-any-return]


def min(x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The smallest element over some axes; equal ones share the gradient."""
    x = as_tensor(x, "min")
    if axis is not None:
        axis = normalized_axes(axis, x.ndim, "min")
    return apply(_rows.AMIN, x, axis=axis, keepdims=keepdims)  # type: ignore[no-any-return]
