"""The distinct elements of a tensor, in rising order. Not differentiable."""

from typing import NamedTuple

from telegrad.ops.arguments import ArrayLike, as_tensor
from telegrad.rules import sets as _rows
from telegrad.tensors import Tensor, apply

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
    return UniqueAll(*apply(_rows.UNIQUE_ALL, as_tensor(x, "unique_all")))


def unique_counts(x: ArrayLike, /) -> UniqueCounts:
    """The distinct elements and how often each occurs."""
    return UniqueCounts(*apply(_rows.UNIQUE_COUNTS, as_tensor(x, "unique_counts")))


def unique_inverse(x: ArrayLike, /) -> UniqueInverse:
    """The distinct elements and which of them each element is."""
    return UniqueInverse(*apply(_rows.UNIQUE_INVERSE, as_tensor(x, "unique_inverse")))


def unique_values(x: ArrayLike, /) -> Tensor:
    """The distinct elements."""
    return apply(_rows.UNIQUE_VALUES, as_tensor(x, "unique_values"))  # type: ignore[no-any-return]
