"""Norms of vectors."""

from typing import Any

from telegrad.rules.primitive import Primitive
from telegrad.rules.reductions import kept


def _direction(xp: Any, s: Any) -> Any:
    """Return the gradient of the norm at x; zero, as in PyTorch, where the norm has a kink."""
    order, norm = s.ord, kept(xp, s.out, s)
    if order == 0:
        return xp.zeros_like(s.x)
    if order == 1:
        return xp.sign(s.x)
    if order == 2:
        return s.x * xp.where(norm == 0, xp.zeros_like(norm), 1.0 / _nonzero(xp, norm))
    size = xp.abs(s.x)
    if order in (float("inf"), float("-inf")):
        # Elements of the same extreme size share the gradient.
        hit = xp.astype(size == norm, xp.dtype_of(size))
        count = xp.sum(hit, axis=s.axis, keepdims=True)
        return xp.sign(s.x) * (hit / count)
    # sign(x) (|x| / norm)^(p - 1), with 0 for 0 also where p < 1 would make it infinite.
    share = _nonzero(xp, size) / _nonzero(xp, norm)
    slope = xp.sign(s.x) * share ** (order - 1.0)
    if order < 0:
        # One zero makes such a norm zero, whatever the other elements are.
        return xp.where(norm == 0, xp.zeros_like(slope), slope)
    return slope


def _nonzero(xp: Any, x: Any) -> Any:
    """Return the values with ones in place of zeros, to divide by."""
    return xp.where(x == 0, xp.ones_like(x), x)


def _jvp(xp: Any, t: Any, s: Any) -> Any:
    slope = xp.real(xp.conj(_direction(xp, s)) * t)
    return xp.sum(slope, axis=s.axis, keepdims=s.keepdims)


VECTOR_NORM = Primitive(
    "vector_norm",
    forward="linalg.vector_norm",
    saves=("x out x.shape",),
    vjp=(lambda xp, g, s: kept(xp, g, s) * _direction(xp, s),),
    jvp=(_jvp,),
    options=("axis", "keepdims", "ord"),
    holomorphic=False,
)
