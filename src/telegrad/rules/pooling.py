"""Pooling: the largest element, or the sum, of each window.

Which element was the largest is a constant; taking it and putting it back are linear and each
other's adjoints. ``arrays/plain/pooling.py`` states the kernels.
"""

from typing import Any

from telegrad.rules.primitive import LINEAR, ZERO, Primitive

_OPTIONS = ("sizes", "strides", "pads", "dilations")


def _how(s: Any) -> dict[str, Any]:
    return {name: getattr(s, name) for name in _OPTIONS}


def _put_back(xp: Any, g: Any, s: Any) -> Any:
    if g[0] is None:
        # Only `which` was differentiated, by the rule of pool_put below.
        return xp.zeros(s.x_shape, dtype=xp.dtype_of(s.largest))
    return xp.pool_put(g[0], s.which, shape=s.x_shape, **_how(s))


def _zeros_of_which(xp: Any, g: Any, s: Any) -> Any:
    """Return zeros: apart from ties, a small change of the numbers changes no choice."""
    return xp.zeros(s.which_shape, dtype=xp.dtype_of(g))


POOL_MAX = Primitive(
    "pool_max",
    saves=("x.shape",),
    vjp=(_put_back,),
    jvp=(lambda xp, t, s: (xp.pool_take(t, s.which, **_how(s)), None),),
    options=_OPTIONS,
    outputs=("largest", "which"),
    gaps=True,
    exact=True,
)

POOL_TAKE = Primitive(
    "pool_take",
    inputs=("x", "which"),
    saves=("which x.shape", ""),
    vjp=(lambda xp, g, s: xp.pool_put(g, s.which, shape=s.x_shape, **_how(s)), None),
    jvp=(LINEAR, None),
    options=_OPTIONS,
    exact=True,
)

POOL_PUT = Primitive(
    "pool_put",
    inputs=("x", "which"),
    saves=("which", "which.shape"),
    vjp=(lambda xp, g, s: xp.pool_take(g, s.which, **_how(s)), _zeros_of_which),
    jvp=(LINEAR, ZERO),
    options=("shape", *_OPTIONS),
    exact=True,
)

POOL_SUM = Primitive(
    "pool_sum",
    saves=("x.shape",),
    vjp=(lambda xp, g, s: xp.pool_spread(g, shape=s.x_shape, **_how(s)),),
    jvp=(LINEAR,),
    options=_OPTIONS,
    exact=True,
    by_itself="zeros",
)

POOL_SPREAD = Primitive(
    "pool_spread",
    vjp=(lambda xp, g, s: xp.pool_sum(g, **_how(s)),),
    jvp=(LINEAR,),
    options=("shape", *_OPTIONS),
    exact=True,
)
