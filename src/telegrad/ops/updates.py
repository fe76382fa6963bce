"""``x.at[index].add(values)`` and the like: copies of x with some places changed.

Unlike ``x[index] += values``, a place that the index names several times is changed several times,
in the order of the index; ``set`` leaves the last value there. Gradients follow exactly.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from telegrad.errors import DTypeError, ShapeError
from telegrad.ops.arguments import ArrayLike, as_tensor
from telegrad.ops.arithmetic import divide, maximum, minimum, multiply, negative, pow
from telegrad.ops.indexing import getitem, index_add, index_set, raw_index
from telegrad.ops.manipulation import astype, broadcast_to, reshape
from telegrad.tensors import Tensor
from telegrad.tensors.dtypes import fitting
from telegrad.tensors.inputs import as_inputs, fits_kind


def at(x: ArrayLike, /) -> "At":
    """Return ``x.at``: index it, then say what happens to these places of a copy of x.

    ``set``, ``add``, ``subtract``, ``multiply``, ``divide``, ``power``, ``min`` and ``max`` take
    the new values; ``apply`` takes a function; ``get`` returns what is there.

    Examples:
        >>> tg.at(tg.zeros(3))[[0, 0, 2]].add(1.0)
        tensor([2., 0., 1.])
        >>> tg.tensor([1.0, 2.0, 3.0]).at[1:].set(0.0)
        tensor([1., 0., 0.])
    """
    return At(as_tensor(x, "at"))


class At:
    """A tensor that waits for an index."""

    __slots__ = ("_tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def __getitem__(self, index: Any) -> "Places":
        return Places(self._tensor, index)


class Places:
    """Some places of a tensor. Every method but ``get`` gives a changed copy of the tensor."""

    __slots__ = ("_index", "_tensor")

    def __init__(self, tensor: Tensor, index: Any) -> None:
        self._tensor = tensor
        self._index = raw_index(index)

    def get(self) -> Tensor:
        """Return the values at these places."""
        return getitem(self._tensor, self._index)

    def set(self, values: ArrayLike) -> Tensor:
        """Put `values` in place of what is there."""
        values = fitting(values, self._tensor.dtype)
        return index_set(self._tensor, self._fitting(values, "set"), index=self._index)

    def add(self, values: ArrayLike) -> Tensor:
        """Add `values` to what is there."""
        return index_add(self._tensor, self._fitting(values, "add"), index=self._index)

    def subtract(self, values: ArrayLike) -> Tensor:
        """Subtract `values` from what is there."""
        new = self._fitting(values, "subtract")
        return index_add(self._tensor, negative(new), index=self._index)

    def multiply(self, values: ArrayLike) -> Tensor:
        """Multiply what is there by `values`."""
        return self._changed(self._fitting(values, "multiply"), multiply)

    def divide(self, values: ArrayLike) -> Tensor:
        """Divide what is there by `values`."""
        return self._changed(self._fitting(values, "divide"), divide)

    def power(self, values: ArrayLike) -> Tensor:
        """Raise what is there to the power of `values`."""
        return self._changed(self._fitting(values, "power"), pow)

    def min(self, values: ArrayLike) -> Tensor:
        """Keep the smaller of what is there and `values`."""
        return self._changed(self._fitting(values, "min"), minimum)

    def max(self, values: ArrayLike) -> Tensor:
        """Keep the larger of what is there and `values`."""
        return self._changed(self._fitting(values, "max"), maximum)

    def apply(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Put ``function`` of what is there, once for each time that the index names a place."""
        return self._changed(self.get(), lambda old, _: function(old))

    def _fitting(self, values: ArrayLike, name: str) -> Tensor:
        """`values` in the dtype of the tensor, which must be able to hold them."""
        x, new = as_inputs(f"at[...].{name}", (self._tensor, values))
        if not fits_kind(new.dtype, x.dtype):
            raise DTypeError(
                f"expected values that a tensor of {x.dtype} can hold in at[...].{name}, got "
                f"{new.dtype}; convert one of them first"
            )
        return astype(new, x.dtype, copy=False)

    def _changed(self, values: Tensor, change: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Change each place, in rounds: within one, no place is named twice."""
        x = self._tensor
        places = np.arange(x.size).reshape(x.shape)[self._index]
        try:
            flat_values = reshape(broadcast_to(values, places.shape), (-1,))
        except ShapeError:
            raise ShapeError(
                f"expected values that broadcast to the {places.shape} places of at[...], got "
                f"shape {values.shape}"
            ) from None
        flat = reshape(x, (-1,))
        for chosen in _rounds(places.reshape(-1)):
            there = places.reshape(-1)[chosen]
            changed = change(getitem(flat, there), getitem(flat_values, chosen))
            flat = index_set(flat, astype(changed, x.dtype, copy=False), index=there)
        return reshape(flat, x.shape)


def _rounds(places: Any) -> Iterator[Any]:
    """Return which values come in each round: the first for every place, then the second, …"""
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    lengths = np.diff(starts, append=len(ordered))
    turn = np.arange(len(ordered)) - np.repeat(starts, lengths)
    for k in range(int(lengths.max(initial=0))):
        yield np.sort(order[turn == k])
