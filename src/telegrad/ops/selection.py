"""Choosing between values, element by element."""
# mypy: disable-error-code="empty-body"

from typing import Any, Never

from telegrad.ops.arguments import ArrayLike, as_matrix, as_tensor, promoted
from telegrad.ops.elementwise import elementwise
from telegrad.rules import selection as _primitives
from telegrad.tensors import Tensor, apply
from telegrad.tensors.inputs import as_inputs


def where(condition: ArrayLike, x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Return ``x1`` where the condition is true, ``x2`` elsewhere.

    Arguments:
        condition: Truth values.
        x1: The values where it is true.
        x2: The values where it is not.

    Examples:
        >>> tg.where(tg.tensor([True, False]), tg.tensor([1.0, 2.0]), 0.0)
        tensor([1., 0.])
    """
    if not (isinstance(x1, Tensor) and isinstance(x2, Tensor) and x1.dtype == x2.dtype):
        x1, x2 = promoted("where", (x1, x2))
    return apply(_primitives.WHERE, condition, x1, x2)


@elementwise(_primitives.WHERE_NONZERO)
def where_nonzero(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Return ``x1`` where ``x2`` is not zero, zero elsewhere; derivative rules need it."""


def clip(
    x: ArrayLike,
    /,
    min: ArrayLike | None = None,
    max: ArrayLike | None = None,
) -> Tensor:
    """Return each element, or the nearer bound where it lies outside.

    Arguments:
        x: The values.
        min: The lower bound; None is open.
        max: The upper bound; None is open.

    Examples:
        >>> tg.clip(tg.tensor([-2.0, 0.5, 2.0]), -1, 1)
        tensor([-1. ,  0.5,  1. ])
    """
    result = as_tensor(x, "clip")
    if min is not None:
        result = apply(_primitives.CLIP_LOW, result, _bound(min, result))
    if max is not None:
        result = apply(_primitives.CLIP_HIGH, result, _bound(max, result))
    return result.clone() if result is x else result


def _bound(bound: Any, x: Tensor) -> Tensor:
    """Return a bound as a Tensor beside x."""
    return as_inputs("clip", (x, bound))[1]


def tril(x: ArrayLike, /, k: int = 0, **unknown: Never) -> Tensor:
    """Return the part of each matrix on and below diagonal `k`, zeros above.

    Raises:
        ShapeError: If x has fewer than two axes.

    Examples:
        >>> tg.tril(tg.ones(2, 2))
        tensor([[1., 0.],
                [1., 1.]])
    """
    return apply(_primitives.TRIL, as_matrix(x, "tril", unknown), k=k)


def triu(x: ArrayLike, /, k: int = 0, **unknown: Never) -> Tensor:
    """Return the part of each matrix on and above diagonal `k`, zeros below.

    Raises:
        ShapeError: If x has fewer than two axes.

    Examples:
        >>> tg.triu(tg.ones(2, 2))
        tensor([[1., 1.],
                [0., 1.]])
    """
    return apply(_primitives.TRIU, as_matrix(x, "triu", unknown), k=k)
