"""Softmax, its logarithm, and the logarithm of a sum of exponentials.

Their rules read the result, which neither overflows nor underflows, instead of the exponentials.
"""

from typing import Any

from telegrad.rules.primitive import Primitive
from telegrad.rules.reductions import kept


def _softmax_rule(xp: Any, v: Any, s: Any) -> Any:
    # The Jacobian diag(out) - out out^T is symmetric, so both directions are the same.
    weighted = v * s.out
    return weighted - s.out * xp.sum(weighted, axis=s.axis, keepdims=True)


SOFTMAX = Primitive(
    "softmax",
    saves=("out",),
    vjp=(_softmax_rule,),
    jvp=(_softmax_rule,),
    options=("axis",),
    exact=True,
)

LOG_SOFTMAX = Primitive(
    "log_softmax",
    saves=("out",),
    vjp=(lambda xp, g, s: g - xp.exp(s.out) * xp.sum(g, axis=s.axis, keepdims=True),),
    jvp=(lambda xp, t, s: t - xp.sum(xp.exp(s.out) * t, axis=s.axis, keepdims=True),),
    options=("axis",),
    exact=True,
)


def _shares(xp: Any, s: Any) -> Any:
    """Return how much each element weighs in the sum: 0 where all are minus infinity."""
    # A finite change of minus infinity changes nothing; -inf - -inf would make NaN of that.
    out = kept(xp, s.out, s)
    return xp.exp(s.x - xp.where(out == -xp.inf, xp.zeros_like(out), out))


LOGSUMEXP = Primitive(
    "logsumexp",
    saves=("x out x.shape",),
    vjp=(lambda xp, g, s: kept(xp, g, s) * _shares(xp, s),),
    jvp=(lambda xp, t, s: xp.sum(t * _shares(xp, s), axis=s.axis, keepdims=s.keepdims),),
    options=("axis", "keepdims"),
    exact=True,
)
