"""Self-attention and its pull-back, as NumPy does them best.

``rules/attention.py`` states the formulas. Here products are written straight to their places in
the result, so that nothing is joined or transposed afterwards, and intermediate values are
overwritten, since a fresh large array costs more to get than to fill.
"""

import math
from typing import Any

import numpy as np

from telegrad.arrays.numpy.powers import quickest_power
from telegrad.arrays.numpy.rows import row_dots, row_sums
from telegrad.arrays.numpy.special import softmax
from telegrad.arrays.scratch import scratch

__all__ = ["self_attention", "self_attention_pull"]

_NARROW = 30.0
"""Scores this near to zero need not have the largest of their row subtracted first."""


def _parts(packed: Any) -> Any:
    """Return queries, keys and values, each with axes (item, head, place, feature); a view."""
    return packed.transpose(2, 0, 3, 1, 4)


def _turned(x: Any, scale: float) -> Any:
    """Return the matrices transposed and scaled, in scratch: small ones are quicker so in BLAS."""
    items, heads, places, features = x.shape
    out = scratch("self_attention turned", x.size, x.dtype).reshape(items, heads, features, places)
    return np.multiply(x.mT, x.dtype.type(scale), out=out)


def self_attention(packed: Any, *, scale: float, mask: Any) -> tuple[Any, Any]:
    q, k, v = _parts(packed)
    items, places, _, heads, features = packed.shape
    weights = np.empty((items, heads, places, places), packed.dtype)
    _, unit = quickest_power(packed.dtype)
    np.matmul(q, _turned(k, scale * unit), out=weights)
    weights = _softmax(weights, mask)
    out = np.empty((items, places, heads, features), packed.dtype)
    np.matmul(weights, v, out=out.transpose(0, 2, 1, 3))
    return out, weights


def _softmax(scores: Any, mask: Any) -> Any:
    """Return the softmax over the last axis; overwrites the scores, in ``quickest_power`` units."""
    power, unit = quickest_power(scores.dtype)
    hides = mask is not None and mask.dtype.kind == "b"
    if mask is not None and not hides:
        scores += mask if unit == 1 else mask * unit
    if not scores.size:
        return scores
    if not max(scores.max(), -scores.min()) < _NARROW * unit:
        if unit != 1:
            scores /= unit
        if hides:
            scores = np.where(mask, scores, scores.dtype.type(-math.inf))
        return softmax(scores, axis=-1)
    power(scores, out=scores)
    if hides:
        scores *= mask
    scores /= row_sums(scores)
    return scores


def self_attention_pull(by_out: Any, packed: Any, weights: Any, scale: float) -> Any:
    """Return the gradient of the packed input from that of the result."""
    q, k, v = _parts(packed)
    result = np.empty(packed.shape, packed.dtype)
    by_q, by_k, by_v = _parts(result)
    heads = by_out.transpose(0, 2, 1, 3)
    np.matmul(weights.mT, heads, out=by_v)
    by_scores = scratch("self_attention_pull", weights.size, weights.dtype).reshape(weights.shape)
    np.matmul(heads, _turned(v, scale), out=by_scores)
    by_scores -= row_dots(by_scores, weights)
    by_scores *= weights
    np.matmul(by_scores, k, out=by_q)
    np.matmul(by_scores.mT, q, out=by_k)
    return result
