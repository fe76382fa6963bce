"""Taking parts of a tensor, and putting parts into one."""

from collections.abc import Callable
from typing import Any

from telegrad.errors import ShapeError
from telegrad.ops.arguments import ArrayLike, as_tensor
from telegrad.ops.shaping import astype
from telegrad.rules import indexing as _rows
from telegrad.rules import selection as _selection
from telegrad.tensors import Tensor, apply
from telegrad.tensors.tensor import refuse_in_place

__all__ = ["getitem", "in_place", "index_add", "index_set", "setitem", "where"]


def raw_index(index: Any) -> Any:
    """An index with its Tensors replaced by raw arrays."""
    if isinstance(index, Tensor):
        return index.array
    if isinstance(index, tuple):
        return tuple(raw_index(part) for part in index)
    return index


def getitem(x: Tensor, index: Any) -> Tensor:
    """``x[index]``: integers, slices, ``None``, ``...``, masks and integer arrays."""
    return apply(_rows.GETITEM, x, index=raw_index(index))  # type: ignore[no-any-return]


def index_add(x: Tensor, values: ArrayLike, *, index: Any) -> Tensor:
    """A copy of x with `values` added at `index`; a place named twice receives both."""
    return apply(_rows.INDEX_ADD, x, values, index=raw_index(index))  # type: ignore[no-any-return]


def index_set(x: Tensor, values: ArrayLike, *, index: Any) -> Tensor:
    """A copy of x with `values` at `index`."""
    return apply(_rows.INDEX_SET, x, values, index=raw_index(index))  # type: ignore[no-any-return]


def setitem(x: Tensor, index: Any, value: ArrayLike) -> None:
    """``x[index] = value``: gives x a new value and history."""
    refuse_in_place(x, "an assignment")
    value = as_tensor(value, "an assignment")
    x.rebind(index_set(x, astype(value, x.dtype, copy=False), index=index))


def in_place(x: Tensor, symbol: str, compute: Callable[[Tensor], Tensor]) -> Tensor:
    """``x += y`` and its kin: x gets the result as its new value and history."""
    refuse_in_place(x, symbol)
    result = compute(x)
    if result.shape != x.shape:
        raise ShapeError(
            f"expected a result of shape {x.shape} for {symbol}, got {result.shape}; the left side "
            "can't be stretched in place"
        )
    x.rebind(result if result.dtype == x.dtype else astype(result, x.dtype))
    return x


def where(condition: ArrayLike, x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``x1`` where the condition is true, ``x2`` elsewhere."""
    return apply(_selection.WHERE, condition, x1, x2)  # type: ignore[no-any-return]
