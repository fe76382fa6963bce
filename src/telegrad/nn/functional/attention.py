"""Attention: averages of values, weighted by how well queries and keys agree."""

import math

import numpy as np

from telegrad.errors import DTypeError, ShapeError, UsageError
from telegrad.nn.functional.dropout import dropout
from telegrad.ops.products import matmul
from telegrad.ops.random import Generator
from telegrad.ops.selection import where
from telegrad.ops.softmax import softmax
from telegrad.tensors import Tensor, wrap


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """Return ``softmax(query @ key.mT * scale + mask) @ value``; axes (…, place, feature).

    Arguments:
        query: What looks.
        key: What is looked at.
        value: What is seen there.
        attn_mask: Truth values that say where to look, or numbers that are added.
        dropout_p: With which probability a weight is dropped.
        is_causal: Whether each place looks only back.
        scale: What the products are multiplied by; one over the root of the features by default.
        generator: Where dropout draws from; the generator of the process by default.

    Raises:
        UsageError: If there are both a mask and `is_causal`.
        ShapeError: If the shapes don't fit.

    Examples:
        >>> x = tg.eye(2)
        >>> tg.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
        tensor([[1.    , 0.    ],
                [0.3302, 0.6698]])
    """
    if is_causal:
        if attn_mask is not None:
            raise UsageError("expected attn_mask or is_causal, got both")
        attn_mask = causal_mask(query.shape[-2], key.shape[-2])
    weights = attention_weights(query, key, attn_mask, scale)
    return matmul(dropout(weights, dropout_p, generator=generator), value)


def attention_weights(
    query: Tensor, key: Tensor, mask: Tensor | None, scale: float | None = None
) -> Tensor:
    """Return how much each query looks at each key: rows sum to 1, or 0 if it may look nowhere."""
    if query.ndim < 2 or key.ndim < 2 or query.shape[-1] != key.shape[-1]:
        raise ShapeError(
            f"expected queries and keys of axes (…, place, feature) with equal last axes, got "
            f"{query.shape} and {key.shape}"
        )
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = matmul(query * factor, key.mT)
    if mask is None:
        return softmax(scores, axis=-1)
    scores = masked(scores, mask)
    blind = blind_queries(mask)
    if blind is None:
        return softmax(scores, axis=-1)
    return where(blind, 0.0, softmax(where(blind, 0.0, scores), axis=-1))


def masked(scores: Tensor, mask: Tensor) -> Tensor:
    """Put minus infinity where a mask of truth values is False; add any other mask."""
    if mask.dtype.kind == "b":
        return where(mask, scores, -math.inf)
    if mask.dtype.kind != "f":
        raise DTypeError(f"expected a mask of truth values or real numbers, got {mask.dtype}")
    return scores + mask


def blind_queries(mask: Tensor) -> Tensor | None:
    """Return True where a query may look nowhere, on a last axis of length 1; None if none."""
    sees = mask.array if mask.dtype.kind == "b" else mask.array != -math.inf
    if mask.ndim:
        sees = sees.any(axis=-1, keepdims=True)
    return None if sees.all() else wrap(~sees)


def causal_mask(queries: int, keys: int) -> Tensor:
    """Return True where a query may look: at its own place and before."""
    return wrap(np.tri(queries, keys, dtype=np.bool_))
