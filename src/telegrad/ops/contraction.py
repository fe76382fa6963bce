"""Einstein's sum convention: the general form, reduced to products of two operands at a time.

1. The subscripts are made explicit: the ellipsis gets letters, the result is written out.
2. Axes of length 1 where other operands are longer are dropped (they broadcast).
3. Three and more operands are contracted pair by pair, in a cheap order. Axes that only the pair
   has are summed at once, so backward passes are as cheap as forward ones.
"""

from functools import lru_cache
from string import ascii_letters
from typing import Any

import numpy as np

from telegrad.errors import ShapeError, UsageError
from telegrad.ops.arguments import ArrayLike, promoted
from telegrad.ops.manipulation import reshape
from telegrad.rules import contraction as _primitives
from telegrad.tensors import Tensor, apply


def einsum(subscripts: str, /, *operands: ArrayLike) -> Tensor:
    """Sum products over named axes.

    Each letter names an axis; letters that the result does not have are summed over. A letter named
    twice for one operand takes its diagonal. ``...`` stands for any further axes, which broadcast.
    Without ``->`` the result has the letters that occur once, in alphabetical order.

    Arguments:
        subscripts: The axes of each operand, and those of the result: ``"bij,bjk->bik"``.
        *operands: One tensor for each term of the subscripts.

    Raises:
        UsageError: If the subscripts cannot be read, or don't fit the number of operands.
        ShapeError: If an axis does not have one length.

    Examples:
        >>> x, y = tg.tensor([[1.0, 2.0], [3.0, 4.0]]), tg.tensor([10.0, 100.0])
        >>> tg.einsum("ij,j->i", x, y)
        tensor([210., 430.])
    """
    if not isinstance(subscripts, str):
        raise UsageError(
            f"expected subscripts such as 'ij,jk->ik' as the first argument of einsum, got "
            f"{type(subscripts).__name__}"
        )
    if not operands:
        raise UsageError(f"expected an operand for {subscripts!r} in einsum, got none")
    tensors = promoted("einsum", operands)
    terms, result = _explicit(subscripts, tuple(x.ndim for x in tensors))
    return _contracted(*_unstretched(tensors, terms, subscripts), result)


@lru_cache(maxsize=4096)
def _explicit(subscripts: str, ndims: tuple[int, ...]) -> tuple[tuple[str, ...], str]:
    """Return one letter for each axis of each operand, and the letters of the result."""
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ndims):
        raise UsageError(
            f"expected {len(terms)} operands for {subscripts!r} in einsum, got {len(ndims)}"
        )
    used = set(subscripts)
    spare = [c for c in ascii_letters if c not in used]
    widest = 0
    hidden: list[int] = []
    for i, (term, ndim) in enumerate(zip(terms, ndims)):
        named = term.replace("...", "", 1)
        if not all(c in ascii_letters for c in named):
            raise UsageError(
                f"expected letters and at most one '...' for each operand in einsum, got {term!r} "
                f"in {subscripts!r}"
            )
        count = ndim - len(named)
        if count < 0 or (count and "..." not in term):
            raise ShapeError(
                f"expected operand {i} of {subscripts!r} to have {len(named)} axes in einsum, got "
                f"{ndim}"
            )
        hidden.append(count)
        widest = max(widest, count)
    if widest > len(spare):
        raise UsageError(f"expected at most 52 different axes in einsum, got {subscripts!r}")
    broadcast = "".join(spare[:widest])
    full = tuple(
        term.replace("...", broadcast[widest - count :]) for term, count in zip(terms, hidden)
    )
    if not arrow:
        named = "".join(terms).replace(".", "")
        once = sorted(c for c in set(named) if named.count(c) == 1)
        return full, broadcast + "".join(once)
    return full, _result(right.replace("...", broadcast, 1), full, subscripts)


def _result(result: str, terms: tuple[str, ...], subscripts: str) -> str:
    unknown = [c for c in result if not any(c in term for term in terms)]
    if unknown or len(set(result)) != len(result):
        raise UsageError(
            f"expected each letter of the result once, and of an operand, in einsum, got "
            f"{subscripts!r}"
        )
    return result


def _unstretched(
    tensors: list[Tensor], terms: tuple[str, ...], subscripts: str
) -> tuple[list[Tensor], list[str]]:
    """Drop the axes of length 1 where the same letter names longer ones."""
    lengths: dict[str, int] = {}
    for x, term in zip(tensors, terms):
        for label, length in zip(term, x.shape):
            known = lengths.setdefault(label, length)
            if known == 1:
                lengths[label] = length
            elif length not in (1, known):
                raise ShapeError(
                    f"expected axes of one length for a letter in einsum({subscripts!r}), got "
                    f"{known} and {length}; the shapes are {[y.shape for y in tensors]}"
                )
    kept: list[Tensor] = []
    labels: list[str] = []
    for x, term in zip(tensors, terms):
        stays = [n == lengths[c] for c, n in zip(term, x.shape)]
        if not all(stays):
            x = reshape(x, tuple(n for n, stay in zip(x.shape, stays) if stay))
            term = "".join(c for c, stay in zip(term, stays) if stay)
        kept.append(x)
        labels.append(term)
    return kept, labels


def _contracted(tensors: list[Tensor], terms: list[str], result: str) -> Tensor:
    if len(tensors) <= 2:
        return _step(tensors, terms, result)
    for pair in _order(tensors, terms, result):
        chosen = sorted(pair, reverse=True)
        taken = [(tensors.pop(i), terms.pop(i)) for i in chosen][::-1]
        still = set(result).union(*terms)
        named = "".join(term for _, term in taken)
        kept = result if not terms else "".join(c for c in dict.fromkeys(named) if c in still)
        tensors.append(_step([x for x, _ in taken], [term for _, term in taken], kept))
        terms.append(kept)
    return tensors[0]


def _step(tensors: list[Tensor], terms: list[str], result: str) -> Tensor:
    subscripts = f"{','.join(terms)}->{result}"
    primitive: Any = _primitives.EINSUM if len(tensors) == 2 else _primitives.EINSUM_ONE
    return apply(primitive, *tensors, subscripts=subscripts)


def _order(tensors: list[Tensor], terms: list[str], result: str) -> list[tuple[int, int]]:
    """Return which two operands to contract, step by step; a result goes to the end of the list."""
    shapes = [np.broadcast_to(np.float64(0), x.shape) for x in tensors]
    path: Any = np.einsum_path(f"{','.join(terms)}->{result}", *shapes, optimize="greedy")[0]
    steps: list[tuple[int, int]] = []
    for step in path[1:]:
        # A step of three or more is done from its end, so the places of the others stay.
        *rest, last = sorted(step)
        steps.append((rest.pop(), last))
        total = len(tensors) - len(steps)
        while rest:
            steps.append((rest.pop(), total - 1))
            total -= 1
    return steps
