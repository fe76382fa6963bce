"""Taking and putting values along one axis, each at its own index.

`indices` has as many axes as x. Along `axis` they name places of x; along every other axis the i-th
of them goes with the i-th part of x. All four functions are indexing with integer arrays, so
gradients are exact where an index repeats, at any order.
"""

from typing import Any

import numpy as np

from telegrad.errors import ShapeError
from telegrad.ops.arguments import ArrayLike, as_indices, as_tensor, normalized_axis
from telegrad.ops.indexing import getitem
from telegrad.ops.updates import at
from telegrad.rules.indexing import places_along
from telegrad.tensors import Tensor


def gather(x: ArrayLike, indices: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """Take the elements of x at `indices` along an axis, in the shape of `indices`.

    Unlike in ``take_along_axis``, the other axes of `indices` may be shorter than those of x.

    Arguments:
        x: The values.
        indices: Integers, with as many axes as x.
        axis: The axis to go along.

    Raises:
        ShapeError: If the shape of the indices does not fit that of x.
        IndexError: If an index is out of range.

    Examples:
        >>> tg.gather(tg.tensor([[1, 2], [3, 4]]), tg.tensor([[1], [0]]))
        tensor([[2],
                [3]])
    """
    tensor = as_tensor(x, "gather")
    return getitem(tensor, _grid(tensor, indices, axis, "gather"))


def scatter(x: ArrayLike, indices: ArrayLike, values: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """Return a copy of x with `values` at `indices` along an axis; of several the last one stays.

    Arguments:
        x: The tensor to copy.
        indices: Integers, with as many axes as x.
        values: What to put there; it broadcasts to the indices.
        axis: The axis to go along.

    Raises:
        ShapeError: If the shape of the indices does not fit that of x.
        IndexError: If an index is out of range.

    Examples:
        >>> tg.scatter(tg.zeros(2, 2), tg.tensor([[1], [0]]), 5.0)
        tensor([[0., 5.],
                [5., 0.]])
    """
    tensor = as_tensor(x, "scatter")
    return at(tensor)[_grid(tensor, indices, axis, "scatter")].set(values)


def scatter_add(
    x: ArrayLike, indices: ArrayLike, values: ArrayLike, /, *, axis: int = -1
) -> Tensor:
    """Return a copy of x with `values` added at `indices` along an axis; where one repeats, all.

    The other arguments are those of ``scatter``.

    Arguments:
        values: What to add; it broadcasts to the indices.

    Raises:
        ShapeError: If the shape of the indices does not fit that of x.
        IndexError: If an index is out of range.

    Examples:
        >>> tg.scatter_add(tg.zeros(3), tg.tensor([0, 0, 2]), tg.tensor([1.0, 2.0, 4.0]))
        tensor([3., 0., 4.])
    """
    tensor = as_tensor(x, "scatter_add")
    return at(tensor)[_grid(tensor, indices, axis, "scatter_add")].add(values)


def put_along_axis(
    x: ArrayLike, indices: ArrayLike, values: ArrayLike, /, *, axis: int = -1
) -> Tensor:
    """Return a copy of x with `values` where ``take_along_axis`` would take them from.

    The other axes of `indices` are broadcast against those of x.

    The arguments are those of ``scatter``.

    Raises:
        ShapeError: If the indices don't broadcast against x.
        IndexError: If an index is out of range.

    Examples:
        >>> tg.put_along_axis(tg.zeros(2, 2), tg.tensor([[1], [0]]), 5.0)
        tensor([[0., 5.],
                [5., 0.]])
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
    """Return the index of x that names the place of each of `indices`."""
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
