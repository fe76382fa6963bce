"""Variance and its root."""

from typing import Any

from telegrad.rules.magnitude import real_product
from telegrad.rules.primitive import Primitive
from telegrad.rules.reductions import kept, reduced_count


def _per_degree(s: Any) -> float:
    """Return one over the degrees of freedom; infinity if there are none, as in the variance."""
    degrees = reduced_count(s) - s.correction
    return 1.0 / degrees if degrees > 0 else float("inf")


def _deviation(xp: Any, s: Any) -> Any:
    return s.x - xp.mean(s.x, axis=s.axis, keepdims=True)


def _var_jvp(xp: Any, t: Any, s: Any) -> Any:
    slopes = real_product(xp, _deviation(xp, s), t) * (2.0 * _per_degree(s))
    return xp.sum(slopes, axis=s.axis, keepdims=s.keepdims)


VAR = Primitive(
    "var",
    saves=("x x.shape",),
    vjp=(lambda xp, g, s: kept(xp, g, s) * (2.0 * _per_degree(s)) * _deviation(xp, s),),
    jvp=(_var_jvp,),
    options=("axis", "correction", "keepdims"),
    floating=True,
    holomorphic=False,
)


def _over_root(xp: Any, v: Any, out: Any) -> Any:
    # Equal values have no spread and a cusp there: the slope is taken as 0, as in PyTorch.
    flat = out == 0
    return xp.where(flat, xp.zeros_like(v), v / xp.where(flat, xp.ones_like(out), out))


def _std_vjp(xp: Any, g: Any, s: Any) -> Any:
    return kept(xp, _over_root(xp, g, s.out), s) * _per_degree(s) * _deviation(xp, s)


def _std_jvp(xp: Any, t: Any, s: Any) -> Any:
    slopes = real_product(xp, _deviation(xp, s), t) * _per_degree(s)
    return _over_root(xp, xp.sum(slopes, axis=s.axis, keepdims=s.keepdims), s.out)


STD = Primitive(
    "std",
    saves=("x x.shape out",),
    vjp=(_std_vjp,),
    jvp=(_std_jvp,),
    options=("axis", "correction", "keepdims"),
    floating=True,
    holomorphic=False,
)
