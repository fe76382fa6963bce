"""Sums and their kin: many values to fewer."""

from math import prod
from typing import Any

from telegrad.rules.primitive import LINEAR, Primitive


def reduced_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """Return the axes that a reduction removes, each from 0 to ndim."""
    if axis is None:
        return tuple(range(ndim))
    axes = axis if isinstance(axis, tuple) else (axis,)
    return tuple(a % ndim for a in axes)


def reduced_count(s: Any) -> int:
    """Return how many values a reduction combines into one."""
    return prod(s.x_shape[axis] for axis in reduced_axes(s.axis, len(s.x_shape)))


def kept(xp: Any, value: Any, s: Any) -> Any:
    """Return `value` with the reduced axes back as axes of length 1."""
    if s.keepdims:
        return value
    axes = reduced_axes(s.axis, len(s.x_shape))
    shape = tuple(1 if a in axes else n for a, n in enumerate(s.x_shape))
    return xp.reshape(value, shape)


def spread(xp: Any, value: Any, s: Any) -> Any:
    """Return a reduced value stretched over the shape it was reduced from."""
    if s.axis is not None:
        value = kept(xp, value, s)
    # The sum of everything has no axes, or only axes of length 1, and so fits any shape.
    return xp.broadcast_to(value, s.x_shape)


SUM = Primitive(
    "sum",
    saves=("x.shape",),
    vjp=(spread,),
    jvp=(LINEAR,),
    exact=True,
    options=("axis", "keepdims"),
)


def _share(s: Any) -> float:
    count = reduced_count(s)
    return 1.0 / count if count else float("nan")


MEAN = Primitive(
    "mean",
    saves=("x.shape",),
    vjp=(lambda xp, g, s: spread(xp, g * _share(s), s),),
    jvp=(LINEAR,),
    options=("axis", "keepdims"),
    floating=True,
    exact=True,
)


def _extreme_vjp(xp: Any, g: Any, s: Any) -> Any:
    # Equal largest values share the gradient, as PyTorch's amax does.
    hit = xp.astype(s.x == kept(xp, s.out, s), g.dtype)
    count = xp.sum(hit, axis=s.axis, keepdims=True)
    return kept(xp, g, s) * hit / count


def _extreme_jvp(xp: Any, t: Any, s: Any) -> Any:
    hit = xp.astype(s.x == kept(xp, s.out, s), t.dtype)
    count = xp.sum(hit, axis=s.axis, keepdims=s.keepdims)
    return xp.sum(t * hit, axis=s.axis, keepdims=s.keepdims) / count


def _extreme(name: str) -> Primitive:
    return Primitive(
        name,
        saves=("x out x.shape",),
        vjp=(_extreme_vjp,),
        jvp=(_extreme_jvp,),
        options=("axis", "keepdims"),
    )


AMAX, AMIN = _extreme("max"), _extreme("min")
