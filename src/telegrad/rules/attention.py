"""Self-attention in one primitive, from the projected queries, keys and values to the heads.

``packed`` has axes (item, place, 3, head, feature), as one linear map gives them; the result has
axes (item, place, head, feature), and the second one, ``weights``, (item, head, query, key). All
three parts come as one input, because their gradients share most of the work. `mask` is None, truth
values that say where to look, or numbers to add to the scores. NumPy has kernels of its own for the
primitive and its plain pull-back (``arrays/numpy/attention.py``).
"""

from typing import Any

from telegrad.rules.primitive import Primitive


def _parts(xp: Any, packed: Any) -> tuple[Any, Any, Any]:
    """Return queries, keys and values with axes (item, head, place, feature)."""
    turned = xp.permute_dims(packed, (2, 0, 3, 1, 4))
    return turned[0, ...], turned[1, ...], turned[2, ...]


def _heads_last(xp: Any, x: Any) -> Any:
    return xp.permute_dims(x, (0, 2, 1, 3))


def _forward(xp: Any, packed: Any, *, scale: float, mask: Any) -> tuple[Any, Any]:
    if xp.is_numpy:
        return xp.self_attention(packed, scale=scale, mask=mask)  # type: ignore[no-any-return]
    q, k, v = _parts(xp, packed)
    weights = _softmax(xp, xp.matmul(q * scale, k.mT), mask)
    return _heads_last(xp, xp.matmul(weights, v)), weights


def _softmax(xp: Any, scores: Any, mask: Any) -> Any:
    if mask is not None:
        mask = xp.asarray(mask)
        if xp.isdtype(xp.dtype_of(mask), "bool"):
            scores = xp.where(mask, scores, xp.full_like(scores, -xp.inf))
        else:
            scores = scores + mask
    return xp.softmax(scores, axis=-1)


def _by_scores(xp: Any, by_weights: Any, s: Any) -> Any:
    """Go through the softmax and the scale, backwards or forwards: the Jacobian is symmetric."""
    along = xp.sum(by_weights * s.weights, axis=-1, keepdims=True)
    return s.weights * (by_weights - along) * s.scale


def _vjp(xp: Any, g: Any, s: Any) -> Any:
    by_out, by_weights = g
    if xp.is_numpy and by_weights is None and by_out.dtype == s.packed.dtype:
        return xp.self_attention_pull(by_out, s.packed, s.weights, s.scale)
    q, k, v = _parts(xp, s.packed)
    by_v = None
    if by_out is not None:
        heads = _heads_last(xp, by_out)
        through = xp.matmul(heads, v.mT)
        by_weights = through if by_weights is None else by_weights + through
        by_v = xp.matmul(s.weights.mT, heads)
    by_scores = _by_scores(xp, by_weights, s)
    by_q, by_k = xp.matmul(by_scores, k), xp.matmul(by_scores.mT, q)
    stacked = xp.stack([by_q, by_k, xp.zeros_like(v) if by_v is None else by_v])
    return xp.permute_dims(stacked, (1, 3, 0, 2, 4))


def _jvp(xp: Any, t: Any, s: Any) -> tuple[Any, Any]:
    q, k, v = _parts(xp, s.packed)
    along_q, along_k, along_v = _parts(xp, t)
    along = xp.matmul(along_q, k.mT) + xp.matmul(q, along_k.mT)
    along = _by_scores(xp, along, s)
    result = xp.matmul(along, v) + xp.matmul(s.weights, along_v)
    return _heads_last(xp, result), along


SELF_ATTENTION = Primitive(
    "self_attention",
    forward=_forward,
    inputs=("packed",),
    saves=("packed",),
    vjp=(_vjp,),
    jvp=(_jvp,),
    options=("scale", "mask"),
    outputs=("heads", "weights"),
    gaps=True,
    exact=True,
)
