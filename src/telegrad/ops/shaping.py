"""The same values in another shape, order or dtype."""

from typing import Any

import numpy as np

from telegrad.errors import ShapeError
from telegrad.ops.arguments import ArrayLike, as_tensor
from telegrad.rules import shaping as _rows
from telegrad.tensors import Tensor, apply

__all__ = ["astype", "broadcast_to", "clone", "expand_dims", "permute_dims", "reshape"]


def reshape(x: ArrayLike, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """The same elements in another shape; one length may be -1."""
    x = as_tensor(x, "reshape")
    return apply(_rows.RESHAPE, x, shape=tuple(shape))  # type: ignore[no-any-return]


def permute_dims(x: ArrayLike, /, axes: tuple[int, ...]) -> Tensor:
    """The axes in another order."""
    x = as_tensor(x, "permute_dims")
    ndim = x.ndim
    axes = tuple(a % ndim if -ndim <= a < ndim else a for a in axes)
    if sorted(axes) != list(range(ndim)):
        raise ShapeError(f"expected each of the {ndim} axes once in permute_dims, got {axes}")
    return apply(_rows.PERMUTE_DIMS, x, axes=axes)  # type: ignore[no-any-return]


def broadcast_to(x: ArrayLike, /, shape: tuple[int, ...]) -> Tensor:
    """`x` stretched to a larger shape."""
    x = as_tensor(x, "broadcast_to")
    if x.shape == tuple(shape):
        return x
    return apply(_rows.BROADCAST_TO, x, shape=tuple(shape))  # type: ignore[no-any-return]


def expand_dims(x: ArrayLike, /, *, axis: int = 0) -> Tensor:
    """`x` with a new axis of length 1."""
    x = as_tensor(x, "expand_dims")
    if not -x.ndim - 1 <= axis <= x.ndim:
        raise IndexError(f"expected an axis from {-x.ndim - 1} to {x.ndim}, got {axis}")
    at = axis if axis >= 0 else axis + x.ndim + 1
    return reshape(x, (*x.shape[:at], 1, *x.shape[at:]))


def astype(x: Tensor, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """`x` with another dtype."""
    dtype = np.dtype(dtype)
    if x.dtype == dtype and not copy:
        return x
    return apply(_rows.ASTYPE, x, dtype=dtype)  # type: ignore[no-any-return]


def clone(x: Tensor, /) -> Tensor:
    """A copy in memory of its own, with the same history."""
    return apply(_rows.CLONE, x)  # type: ignore[no-any-return]
