"""Sums of products by named axes, over the standard alone: one or two arrays, no ellipsis.

Two arrays become one batched matrix product, so the work is done where the backend is fastest.
The general form (any number of arrays, ellipsis, implied result) is reduced to this one by
``ops.contraction``. What follows from the letters alone is worked out once and kept.
"""

from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

__all__ = ["einsum"]


def einsum(xp: Any, subscripts: str, *operands: Any) -> Any:
    """``einsum("ij,jk->ik", x, y)``: each letter an axis; those not in the result are summed."""
    if len(operands) == 1:
        terms, _, result = subscripts.partition("->")
        return _reduced(xp, operands[0], _reduction(terms, result))
    x, y = operands
    plan = _product(subscripts)
    x, y = _reduced(xp, x, plan.left), _reduced(xp, y, plan.right)
    stack = x.shape[: plan.batch]
    rows = x.shape[plan.batch : plan.batch + plan.rows]
    inner = prod(x.shape[plan.batch + plan.rows :])
    columns = y.shape[plan.batch + plan.shared :]
    x = xp.reshape(x, (*stack, prod(rows), inner))
    y = xp.reshape(y, (*stack, inner, prod(columns)))
    # With nothing to sum over a matrix product is only a slower multiplication.
    out = xp.matmul(x, y) if plan.shared else xp.multiply(x, y)
    out = xp.reshape(out, (*stack, *rows, *columns))
    return out if plan.order is None else xp.permute_dims(out, plan.order)


class _Reduction(NamedTuple):
    """How one array is brought to the axes of a result."""

    diagonals: tuple[tuple[int, int], ...]
    """Pairs of axes to take the diagonal of, one after the other; it becomes the last axis."""
    summed: tuple[int, ...]
    order: tuple[int, ...] | None


class _Product(NamedTuple):
    """How two arrays become (batch, rows, shared) and (batch, shared, columns)."""

    left: _Reduction
    right: _Reduction
    batch: int
    rows: int
    shared: int
    order: tuple[int, ...] | None


def _reduced(xp: Any, x: Any, plan: _Reduction) -> Any:
    for pair in plan.diagonals:
        x = xp.linalg.diagonal(xp.moveaxis(x, pair, (-2, -1)))
    if plan.summed:
        x = xp.sum(x, axis=plan.summed, dtype=xp.dtype_of(x))
    return x if plan.order is None else xp.permute_dims(x, plan.order)


@lru_cache(maxsize=4096)
def _reduction(labels: str, result: str) -> _Reduction:
    diagonals = []
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            diagonals.append((first, second))
            labels = labels[:first] + labels[first + 1 : second] + labels[second + 1 :] + label
    summed = tuple(axis for axis, label in enumerate(labels) if label not in result)
    labels = "".join(label for label in labels if label in result)
    return _Reduction(tuple(diagonals), summed, _order(labels, result))


@lru_cache(maxsize=4096)
def _product(subscripts: str) -> _Product:
    terms, _, result = subscripts.partition("->")
    left, right = terms.split(",")
    batch = "".join(c for c in dict.fromkeys(left) if c in right and c in result)
    shared = "".join(c for c in dict.fromkeys(left) if c in right and c not in result)
    rows = "".join(c for c in dict.fromkeys(left) if c not in right and c in result)
    columns = "".join(c for c in dict.fromkeys(right) if c not in left and c in result)
    return _Product(
        _reduction(left, batch + rows + shared),
        _reduction(right, batch + shared + columns),
        len(batch),
        len(rows),
        len(shared),
        _order(batch + rows + columns, result),
    )


def _order(labels: str, result: str) -> tuple[int, ...] | None:
    return None if labels == result else tuple(labels.index(label) for label in result)
