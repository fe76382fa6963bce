"""The same values in another shape or dtype."""

from collections.abc import Sequence
from typing import Any, Never

import numpy as np

from telegrad.errors import DTypeError, ShapeError
from telegrad.ops.arguments import ArrayLike, Axis, as_tensor, normalized_axes, shape_of
from telegrad.ops.devices import to_device
from telegrad.rules import manipulation as _primitives
from telegrad.tensors import Tensor, apply
from telegrad.tensors.dtypes import as_dtype, refuse_complex


def reshape(x: ArrayLike, /, shape: int | tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """Return the same elements in another shape.

    Arguments:
        x: The values.
        shape: The lengths of the axes; one may be -1, which is what is left.
        copy: True copies, False raises where the memory cannot be shared.

    Raises:
        ShapeError: If the number of elements differs.

    Examples:
        >>> tg.reshape(tg.arange(6), (2, -1))
        tensor([[0, 1, 2],
                [3, 4, 5]])
    """
    x = as_tensor(x, "reshape")
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if copy is False and isinstance(x.array, np.ndarray):
        np.reshape(x.array, shape, copy=False)
    result: Tensor = apply(_primitives.RESHAPE, x, shape=shape)
    return result.clone() if copy else result


def permute_dims(x: ArrayLike, /, axes: tuple[int, ...]) -> Tensor:
    """Return the tensor with its axes in another order.

    Raises:
        ShapeError: If the axes don't name each axis once.

    Examples:
        >>> tg.permute_dims(tg.zeros(2, 3, 4), (2, 0, 1)).shape
        (4, 2, 3)
    """
    x = as_tensor(x, "permute_dims")
    ndim = x.ndim
    axes = tuple(a % ndim if -ndim <= a < ndim else a for a in axes)
    if sorted(axes) != list(range(ndim)):
        raise ShapeError(f"expected each of the {ndim} axes once in permute_dims, got {axes}")
    return apply(_primitives.PERMUTE_DIMS, x, axes=axes)


def moveaxis(
    x: ArrayLike, source: int | tuple[int, ...], destination: int | tuple[int, ...], /
) -> Tensor:
    """Move some axes to other places; the rest keep their order.

    Arguments:
        x: The values.
        source: The axis, or axes, to move.
        destination: Where each is to be.

    Raises:
        ShapeError: If there are not as many destinations as sources.

    Examples:
        >>> tg.moveaxis(tg.zeros(2, 3, 4), 0, -1).shape
        (3, 4, 2)
    """
    x = as_tensor(x, "moveaxis")
    taken = normalized_axes(source, x.ndim, "moveaxis")
    places = normalized_axes(destination, x.ndim, "moveaxis")
    if len(taken) != len(places):
        raise ShapeError(
            f"expected as many destinations as sources in moveaxis, got {source} and {destination}"
        )
    order = [axis for axis in range(x.ndim) if axis not in taken]
    for place, axis in sorted(zip(places, taken)):
        order.insert(place, axis)
    return permute_dims(x, tuple(order))


def broadcast_to(x: ArrayLike, /, shape: int | Sequence[int]) -> Tensor:
    """Stretch `x` to a larger shape.

    Raises:
        ShapeError: If x does not broadcast to it.

    Examples:
        >>> tg.broadcast_to(tg.tensor([1, 2]), (2, 2))
        tensor([[1, 2],
                [1, 2]])
    """
    x, shape = as_tensor(x, "broadcast_to"), shape_of(shape)
    if x.shape == shape:
        return x  # type: ignore[no-any-return]
    if x.ndim > len(shape):
        # An assignment, which the kernel may use, would silently drop axes of length 1.
        raise ShapeError(
            f"expected a shape with at least {x.ndim} axes in broadcast_to, got {shape}"
        )
    return apply(_primitives.BROADCAST_TO, x, shape=shape)


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that values of these shapes are stretched to when they are combined.

    Raises:
        ShapeError: If they don't broadcast together.

    Examples:
        >>> tg.broadcast_shapes((3, 1), (4,))
        (3, 4)
    """
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError as error:
        raise ShapeError(
            f"expected shapes that broadcast together, got {' and '.join(map(str, shapes))}; each "
            "pair of lengths, counted from the last axis, must be equal or 1"
        ) from error


def broadcast_arrays(*arrays: ArrayLike) -> list[Tensor]:
    """Stretch the tensors to their common shape.

    Raises:
        ShapeError: If they don't broadcast together.

    Examples:
        >>> tg.broadcast_arrays(tg.tensor([1, 2]), tg.tensor([[0]]))
        [tensor([[1, 2]]), tensor([[0, 0]])]
    """
    tensors = [as_tensor(x, "broadcast_arrays") for x in arrays]
    shape = broadcast_shapes(*(x.shape for x in tensors))
    return [broadcast_to(x, shape) for x in tensors]


def meshgrid(*arrays: ArrayLike, indexing: str = "xy") -> list[Tensor]:
    """Return the coordinates of a grid: each 1-d tensor stretched over the axes of all the others.

    Raises:
        ShapeError: If indexing is neither "xy" nor "ij".
        DTypeError: If the tensors differ in dtype.

    Examples:
        >>> rows, columns = tg.meshgrid(tg.arange(2), tg.arange(3), indexing="ij")
        >>> rows
        tensor([[0, 0, 0],
                [1, 1, 1]])
    """
    if indexing not in ("xy", "ij"):
        raise ShapeError(f"expected 'xy' or 'ij' as indexing in meshgrid, got {indexing!r}")
    tensors = [as_tensor(x, "meshgrid") for x in arrays]
    if len({x.dtype for x in tensors}) > 1:
        found = ", ".join(str(x.dtype) for x in tensors)
        raise DTypeError(f"expected tensors of one dtype in meshgrid, got {found}")
    ndim = len(tensors)
    order = list(range(ndim))
    if indexing == "xy" and ndim > 1:
        order[:2] = [1, 0]
    shape = tuple(tensors[order[axis]].size for axis in range(ndim))
    return [
        broadcast_to(
            reshape(x, tuple(-1 if axis == order[i] else 1 for axis in range(ndim))), shape
        )
        for i, x in enumerate(tensors)
    ]


def expand_dims(x: ArrayLike, /, axis: int = 0, **unknown: Never) -> Tensor:
    """Give `x` a new axis of length 1.

    Raises:
        IndexError: If there is no such place for an axis.

    Examples:
        >>> tg.expand_dims(tg.tensor([1, 2]), axis=1)
        tensor([[1],
                [2]])
    """
    x = as_tensor(x, "expand_dims", unknown)
    if not -x.ndim - 1 <= axis <= x.ndim:
        raise IndexError(
            f"expected an axis from {-x.ndim - 1} to {x.ndim} in expand_dims, got {axis}"
        )
    at = axis if axis >= 0 else axis + x.ndim + 1
    return reshape(x, (*x.shape[:at], 1, *x.shape[at:]))


def squeeze(x: ArrayLike, /, axis: Axis = None, **unknown: Never) -> Tensor:
    """Take some axes of length 1 away from `x`, or all of them.

    Raises:
        ShapeError: If one of the axes is not of length 1.

    Examples:
        >>> tg.squeeze(tg.zeros(1, 3, 1), axis=0).shape
        (3, 1)
    """
    x = as_tensor(x, "squeeze", unknown)
    if axis is None:
        axis = tuple(at for at, length in enumerate(x.shape) if length == 1)
    gone = normalized_axes(axis, x.ndim, "squeeze")
    for each in gone:
        if x.shape[each] != 1:
            raise ShapeError(
                f"expected axes of length 1 in squeeze, got axis {each} of shape {x.shape}"
            )
    return reshape(x, tuple(n for at, n in enumerate(x.shape) if at not in gone))


def astype(x: Tensor, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """Return `x` with another dtype.

    Arguments:
        x: The values.
        dtype: The dtype to convert to.
        copy: Whether x is copied where it has that dtype already.
        device: Where the result is to be; where x is by default.

    Raises:
        DTypeError: If x is complex and the dtype is not.

    Examples:
        >>> tg.astype(tg.tensor([1.5, 2.5]), tg.int64)
        tensor([1, 2])
    """
    dtype = as_dtype(dtype)
    refuse_complex(x.dtype, dtype)
    result: Tensor = (
        x if x.dtype == dtype and not copy else apply(_primitives.ASTYPE, x, dtype=dtype)
    )
    return result if device is None else to_device(result, device)


def clone(x: Tensor, /) -> Tensor:
    """Return a copy in memory of its own, with the same history.

    Examples:
        >>> tg.clone(tg.tensor([1.0, 2.0]))
        tensor([1., 2.])
    """
    return apply(_primitives.CLONE, x)
