"""The distinct elements of a tensor, in rising order.

Each is picked from the place where it occurs first, and there goes its gradient.
"""

from typing import NamedTuple

from telegrad.ops.arguments import ArrayLike, as_tensor
from telegrad.ops.indexing import take
from telegrad.ops.manipulation import reshape
from telegrad.rules import searching as _primitives
from telegrad.tensors import Tensor, apply_several

__all__ = [
    "UniqueAll",
    "UniqueCounts",
    "UniqueInverse",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
]


class UniqueAll(NamedTuple):
    """The result of ``unique_all``."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """The result of ``unique_counts``."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """The result of ``unique_inverse``."""

    values: Tensor
    inverse_indices: Tensor


def unique_all(x: ArrayLike, /) -> UniqueAll:
    """The distinct elements, where each occurs first, which of them each element is, how often."""
    x = as_tensor(x, "unique_all")
    _, indices, inverse_indices, counts = apply_several(_primitives.UNIQUE_ALL, x)
    values = take(reshape(x, (-1,)), indices, axis=0)
    return UniqueAll(values, indices, inverse_indices, counts)


def unique_counts(x: ArrayLike, /) -> UniqueCounts:
    """The distinct elements and how often each occurs."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: ArrayLike, /) -> UniqueInverse:
    """The distinct elements and which of them each element is."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: ArrayLike, /) -> Tensor:
    """The distinct elements."""
    return unique_all(x).values
