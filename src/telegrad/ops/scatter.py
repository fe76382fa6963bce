"""Taking and putting values along one axis, each at an index of its own.

`indices` has as many axes as x. On `axis` they say where; on every other axis the i-th index goes
with the i-th part of x. All four are indexing with integer arrays, so gradients are exact where an
index repeats, at any order.
"""

from typing import Any

import numpy as np

from telegrad.errors import ShapeError
from telegrad.ops.arguments import ArrayLike, as_indices, as_tensor, normalized_axis
from telegrad.ops.indexing import getitem
from telegrad.ops.updates import at
from telegrad.rules.indexing import places_along
from telegrad.tensors import Tensor

__all__ = ["gather", "put_along_axis", "scatter", "scatter_add"]


def gather(x: ArrayLike, indices: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """The elements of x at `indices` along an axis, in the shape of `indices`.

    Unlike ``take_along_axis``, the other axes of `indices` may be shorter than those of x.
    """
    tensor = as_tensor(x, "gather")
    return getitem(tensor, _grid(tensor, indices, axis, "gather"))


def scatter(x: ArrayLike, indices: ArrayLike, values: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """A copy of x with `values` at `indices` along an axis; where one repeats, the last value."""
    tensor = as_tensor(x, "scatter")
    return at(tensor)[_grid(tensor, indices, axis, "scatter")].set(values)


def scatter_add(
    x: ArrayLike, indices: ArrayLike, values: ArrayLike, /, *, axis: int = -1
) -> Tensor:
    """A copy of x with `values` added at `indices` along an axis; where one repeats, all."""
    tensor = as_tensor(x, "scatter_add")
    return at(tensor)[_grid(tensor, indices, axis, "scatter_add")].add(values)


def put_along_axis(
    x: ArrayLike, indices: ArrayLike, values: ArrayLike, /, *, axis: int = -1
) -> Tensor:
    """A copy of x with `values` where ``take_along_axis`` of the same indices would take them from.

    The other axes of `indices` are broadcast against those of x.
    """
    tensor = as_tensor(x, "put_along_axis")
    along = normalized_axis(axis, tensor.ndim, "put_along_axis")
    raw = np.asarray(as_indices(indices, "put_along_axis").array)
    if raw.ndim == tensor.ndim:
        shape = (*tensor.shape[:along], raw.shape[along], *tensor.shape[along + 1 :])
        try:
            raw = np.broadcast_to(raw, shape)
        except ValueError:
            raise ShapeError(
                f"expected indices that broadcast to {shape} in put_along_axis, got {raw.shape}"
            ) from None
    return at(tensor)[_grid(tensor, raw, along, "put_along_axis")].set(values)


def _grid(x: Tensor, indices: Any, axis: int, name: str) -> tuple[Any, ...]:
    """The index that names, for each of `indices`, its place in x."""
    along = normalized_axis(axis, x.ndim, name)
    raw = np.asarray(as_indices(indices, name).array)
    fits = raw.ndim == x.ndim and all(
        a == along or short <= long for a, (short, long) in enumerate(zip(raw.shape, x.shape))
    )
    if not fits:
        raise ShapeError(
            f"expected indices with {x.ndim} axes in {name}, none but axis {along} longer than "
            f"those of {x.shape}, got shape {raw.shape}"
        )
    length = x.shape[along]
    if raw.size and not (-length <= raw.min() and raw.max() < length):
        raise IndexError(
            f"expected indices from {-length} to {length - 1} on axis {along} in {name}, got "
            f"{raw.min()} to {raw.max()}"
        )
    return places_along(np, raw, along, raw.shape)
