"""The distinct elements of a tensor, in rising order.

Each is taken from the place where it occurs first, which gets its gradient.
"""

from typing import NamedTuple

from telegrad.ops.arguments import ArrayLike, as_tensor
from telegrad.ops.indexing import take
from telegrad.ops.manipulation import reshape
from telegrad.rules import searching as _primitives
from telegrad.tensors import Tensor, apply_several


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
    """Return the distinct elements, their first places, which one each element is, and how often.

    Examples:
        >>> tg.unique_all(tg.tensor([3, 1, 3])).indices
        tensor([1, 0])
    """
    x = as_tensor(x, "unique_all")
    _, indices, inverse_indices, counts = apply_several(_primitives.UNIQUE_ALL, x)
    values = take(reshape(x, (-1,)), indices, axis=0)
    return UniqueAll(values, indices, inverse_indices, counts)


def unique_counts(x: ArrayLike, /) -> UniqueCounts:
    """Return the distinct elements and how often each occurs.

    Examples:
        >>> values, counts = tg.unique_counts(tg.tensor([3, 1, 3]))
        >>> counts
        tensor([1, 2])
    """
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: ArrayLike, /) -> UniqueInverse:
    """Return the distinct elements and which of them each element is.

    Examples:
        >>> values, inverse = tg.unique_inverse(tg.tensor([3, 1, 3]))
        >>> inverse
        tensor([1, 0, 1])
    """
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: ArrayLike, /) -> Tensor:
    """Return the distinct elements, in rising order.

    Examples:
        >>> tg.unique_values(tg.tensor([3, 1, 3]))
        tensor([1, 3])
    """
    return unique_all(x).values
