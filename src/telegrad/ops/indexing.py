"""Taking parts of a tensor, and putting parts into one."""

from collections.abc import Callable
from typing import Any, Never

import numpy as np

from telegrad.arrays import backend_of
from telegrad.arrays.cupy import is_cupy
from telegrad.errors import DTypeError, ShapeError
from telegrad.ops.arguments import ArrayLike, as_indices, as_tensor, normalized_axis
from telegrad.ops.manipulation import astype, broadcast_to, reshape
from telegrad.rules import indexing as _primitives
from telegrad.tensors import Tensor, apply
from telegrad.tensors.dtypes import fitting
from telegrad.tensors.inputs import as_inputs, fits_kind
from telegrad.tensors.shared import SharedArray
from telegrad.tensors.tensor import refuse_in_place

_PLAIN = frozenset({int, slice, type(None), type(...)})
"""The commonest parts of an index, which are immutable."""


def raw_index(index: Any) -> Any:
    """Return an index with raw arrays for its Tensors, which the caller can't write to.

    The backward pass uses it again, so the caller's own arrays and lists are copied. So are objects
    that only NumPy can convert, such as PyTorch's tensors: as an index, NumPy would take one with a
    single element for a number.
    """
    if type(index) in _PLAIN:
        return index
    if isinstance(index, Tensor):
        index = index.array
        return np.array(index) if isinstance(index, SharedArray) else index
    if isinstance(index, tuple):
        return tuple(raw_index(part) for part in index)
    if isinstance(index, list):
        made = np.array(index)
        return made if made.size else made.astype(np.int64)
    if isinstance(index, np.ndarray):
        return index.copy()
    if isinstance(index, np.generic):
        return index
    if is_cupy(index) or hasattr(index, "__array_namespace__"):
        return backend_of(index).asarray(index, copy=True)
    return np.asarray(index).copy() if hasattr(index, "__array__") else index


def getitem(x: Tensor, index: Any) -> Tensor:
    """Return ``x[index]``: integers, slices, ``None``, ``...``, masks and integer arrays."""
    return apply(_primitives.GETITEM, x, index=raw_index(index))


def index_add(x: Tensor, values: ArrayLike, *, index: Any) -> Tensor:
    """Return a copy of x with `values` added at `index`; a place named twice receives both.

    Arguments:
        x: The tensor to copy.
        values: What to add; it broadcasts to the places.
        index: As in ``x[index]``.

    Examples:
        >>> tg.index_add(tg.zeros(3), tg.tensor([1.0, 2.0, 4.0]), index=[0, 0, 2])
        tensor([3., 0., 4.])
    """
    return apply(_primitives.INDEX_ADD, x, values, index=raw_index(index))


def index_set(x: Tensor, values: ArrayLike, *, index: Any) -> Tensor:
    """Return a copy of x with `values` at `index`; of several for one place the last one stays.

    Arguments:
        x: The tensor to copy.
        values: What to put there; it broadcasts to the places.
        index: As in ``x[index]``.

    Examples:
        >>> tg.index_set(tg.zeros(3), 5.0, index=slice(1, None))
        tensor([0., 5., 5.])
    """
    index = raw_index(index)
    if isinstance(values, Tensor) and (values.requires_grad or values.is_dual):
        x = as_tensor(x, "index_set")
        values = _as_chosen(x, values, index)
        if _has_integers(index):
            return _set_once(x, values, index)
    return apply(_primitives.INDEX_SET, x, values, index=index)


def _as_chosen(x: Tensor, values: Tensor, index: Any) -> Tensor:
    """Return `values` without leading axes of length 1 that the replaced part does not have."""
    ndim = len(backend_of(x.array).getitem(x.array, index=index).shape)
    extra = values.ndim - ndim
    if extra > 0 and values.shape[:extra] == (1,) * extra:
        return reshape(values, values.shape[extra:])
    return values


def _has_integers(index: Any) -> bool:
    """Say whether an index holds integer arrays, which may name a place twice."""
    parts = index if isinstance(index, tuple) else (index,)
    return any(getattr(part, "shape", ()) != () and part.dtype.kind in "iu" for part in parts)


def _set_once(x: Tensor, values: Tensor, index: Any) -> Tensor:
    """Do ``index_set`` where a place may be named twice: only values that stay get a gradient."""
    places = np.arange(x.size).reshape(x.shape)[index]
    flat = places.reshape(-1)
    _, last = np.unique(flat[::-1], return_index=True)
    if last.size == flat.size:
        return apply(_primitives.INDEX_SET, x, values, index=index)
    stays = np.sort(flat.size - 1 - last)
    chosen = getitem(reshape(broadcast_to(values, places.shape), (-1,)), stays)
    result = apply(_primitives.INDEX_SET, reshape(x, (-1,)), chosen, index=flat[stays])
    return reshape(result, x.shape)


def setitem(x: Tensor, index: Any, value: ArrayLike) -> None:
    """Assign ``x[index] = value``: give x a new value and history."""
    refuse_in_place(x, "an assignment")
    value = fitting(value, x.dtype)
    _, value = as_inputs("an assignment", (x, value))
    x.rebind(index_set(x, astype(value, x.dtype, copy=False), index=index))


def in_place(x: Tensor, symbol: str, compute: Callable[[Any, Any], Tensor], other: Any) -> Tensor:
    """Do ``x += other`` and the like: give x the result as its new value and history."""
    refuse_in_place(x, symbol)
    result = compute(x, other)
    if result.shape != x.shape:
        raise ShapeError(
            f"expected a result of shape {x.shape} for {symbol}, got {result.shape}; the left side "
            "can't be stretched in place"
        )
    if not fits_kind(result.dtype, x.dtype):
        raise DTypeError(
            f"expected a result that fits {x.dtype} for {symbol}, got {result.dtype}; convert the "
            "left side first"
        )
    x.rebind(astype(result, x.dtype, copy=False))
    return x


def take(x: ArrayLike, indices: ArrayLike, /, axis: int | None = None, **unknown: Never) -> Tensor:
    """Take the elements or layers at some places along an axis; a place may be named twice.

    Arguments:
        x: The values.
        indices: The places, integers.
        axis: The axis to take from; may be left out where there is one.

    Returns:
        A tensor with the axes of the indices in the place of that axis.

    Raises:
        ShapeError: If x has several axes and none is named.
        DTypeError: If the indices are not integers.

    Examples:
        >>> tg.take(tg.tensor([10, 20, 30]), tg.tensor([2, 0, 2]))
        tensor([30, 10, 30])
    """
    x = as_tensor(x, "take", unknown)
    if axis is None:
        if x.ndim != 1:
            raise ShapeError(f"expected one axis, or the axis to take from, got shape {x.shape}")
        axis = 0
    axis = normalized_axis(axis, x.ndim, "take")
    return getitem(x, (*(slice(None),) * axis, as_indices(indices, "take")))


def take_along_axis(
    x: ArrayLike, indices: ArrayLike, /, axis: int = -1, **unknown: Never
) -> Tensor:
    """Take, for each place of `indices`, the element at that index of the axis in the same line.

    Arguments:
        x: The values.
        indices: Integers, with as many axes as x.
        axis: The axis to go along.

    Returns:
        A tensor of the shape of the indices, broadcast against x on the other axes.

    Raises:
        ShapeError: If the indices have another number of axes than x.
        DTypeError: If the indices are not integers.

    Examples:
        >>> tg.take_along_axis(tg.tensor([[1, 2], [3, 4]]), tg.tensor([[1], [0]]))
        tensor([[2],
                [3]])
    """
    x = as_tensor(x, "take_along_axis", unknown)
    indices = as_indices(indices, "take_along_axis")
    if indices.ndim != x.ndim:
        raise ShapeError(
            f"expected as many axes in indices as in x, {x.ndim}, in take_along_axis, got "
            f"{indices.ndim}"
        )
    axis = normalized_axis(axis, x.ndim, "take_along_axis")
    return apply(_primitives.TAKE_ALONG_AXIS, x, indices, axis=axis)
