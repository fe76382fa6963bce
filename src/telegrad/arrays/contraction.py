"""Sums of products by named axes, over the standard alone: one or two arrays, no ellipsis.

Two arrays become one batched matrix product, so the work is done where the backend is fastest.
The general form (any number of arrays, ellipsis, implied result) is reduced to this one by
``ops.einsum``.
"""

from math import prod
from typing import Any

__all__ = ["einsum"]


def einsum(xp: Any, subscripts: str, *operands: Any) -> Any:
    """``einsum("ij,jk->ik", x, y)``: each letter an axis; those not in the result are summed."""
    terms, result = subscripts.split("->")
    if len(operands) == 1:
        return _one(xp, operands[0], terms, result)
    left, right = terms.split(",")
    return _two(xp, operands[0], left, operands[1], right, result)


def _one(xp: Any, x: Any, labels: str, result: str) -> Any:
    """Diagonals where a letter is repeated, sums over what is not in the result, then its order."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            x = xp.linalg.diagonal(xp.moveaxis(x, (first, second), (-2, -1)))
            labels = labels[:first] + labels[first + 1 : second] + labels[second + 1 :] + label
    summed = tuple(axis for axis, label in enumerate(labels) if label not in result)
    if summed:
        x = xp.sum(x, axis=summed, dtype=xp.dtype_of(x))
        labels = "".join(label for label in labels if label in result)
    return _ordered(xp, x, labels, result)


def _two(xp: Any, x: Any, left: str, y: Any, right: str, result: str) -> Any:
    batch = "".join(c for c in dict.fromkeys(left) if c in right and c in result)
    shared = "".join(c for c in dict.fromkeys(left) if c in right and c not in result)
    only_left = "".join(c for c in dict.fromkeys(left) if c not in right and c in result)
    only_right = "".join(c for c in dict.fromkeys(right) if c not in left and c in result)
    x = _one(xp, x, left, batch + only_left + shared)
    y = _one(xp, y, right, batch + shared + only_right)
    stack = x.shape[: len(batch)]
    rows = x.shape[len(batch) : len(batch) + len(only_left)]
    inner = x.shape[len(batch) + len(only_left) :]
    columns = y.shape[len(batch) + len(shared) :]
    if shared:
        x = xp.reshape(x, (*stack, prod(rows), prod(inner)))
        y = xp.reshape(y, (*stack, prod(inner), prod(columns)))
        out = xp.matmul(x, y)
    else:
        x = xp.reshape(x, (*stack, prod(rows), 1))
        y = xp.reshape(y, (*stack, 1, prod(columns)))
        out = xp.multiply(x, y)
    out = xp.reshape(out, (*stack, *rows, *columns))
    return _ordered(xp, out, batch + only_left + only_right, result)


def _ordered(xp: Any, x: Any, labels: str, result: str) -> Any:
    if labels == result:
        return x
    return xp.permute_dims(x, tuple(labels.index(label) for label in result))
