"""Running sums and products, and the product of all.

No rule here divides, so products are exact where factors are zero, at any order. Every slope
of a product is a product of the other factors: those before (a prefix) times those after.
"""

from math import prod
from typing import Any

from telegrad.rules.primitive import LINEAR, Primitive
from telegrad.rules.reductions import kept, reduced_axes


def _along(axis: int, part: slice) -> tuple[Any, ...]:
    """Return the index of a part of one axis; `axis` counts from 0."""
    return (*(slice(None),) * axis, part, Ellipsis)


def _from_behind(xp: Any, function: Any, x: Any, axis: int) -> Any:
    return xp.flip(function(xp.flip(x, axis=axis), axis=axis), axis=axis)


def _without_initial(xp: Any, g: Any, s: Any) -> Any:
    return xp.getitem(g, index=_along(s.axis, slice(1, None))) if s.include_initial else g


CUMULATIVE_SUM = Primitive(
    "cumulative_sum",
    vjp=(lambda xp, g, s: _from_behind(xp, xp.cumulative_sum, _without_initial(xp, g, s), s.axis),),
    jvp=(LINEAR,),
    options=("axis", "include_initial"),
)


def _recurrence(xp: Any, start: Any, factor: Any, axis: int) -> Any:
    """r with ``r[j] = start[j] + factor[j] * r[j + 1]``; there is a factor for all but the last.

    By doubling: after each round r[j] has the terms of twice as many places, and factor[j] is the
    product of the factors over them. So it takes log2(n) rounds of whole arrays. Places without
    enough others behind them are left out, not filled with zeros: infinity times zero is NaN.
    """

    def part(x: Any, begin: int, end: int) -> Any:
        return xp.getitem(x, index=_along(axis, slice(begin, end)))

    length, steps = start.shape[axis], 1
    while steps < length:
        reaching = length - steps
        first = part(start, 0, reaching) + factor * part(start, steps, length)
        start = xp.concat([first, part(start, reaching, length)], axis=axis)
        if steps < reaching:
            factor = part(factor, 0, reaching - steps) * part(factor, steps, reaching)
        steps *= 2
    return start


def _before(xp: Any, x: Any, axis: int) -> Any:
    """Return for each place the product of all that stand before it."""
    products = xp.cumulative_prod(x, axis=axis, include_initial=True)
    return xp.getitem(products, index=_along(axis, slice(0, -1)))


def _later(xp: Any, s: Any) -> Any:
    """Return all factors but the first, which multiplies nothing before it."""
    return xp.getitem(s.x, index=_along(s.axis, slice(min(1, s.x.shape[s.axis]), None)))


def _cumulative_prod_vjp(xp: Any, g: Any, s: Any) -> Any:
    g = _without_initial(xp, g, s)
    return _before(xp, s.x, s.axis) * _recurrence(xp, g, _later(xp, s), s.axis)


def _cumulative_prod_jvp(xp: Any, t: Any, s: Any) -> Any:
    # d[k] = x[k] d[k - 1] + (product before k) t[k]: the same recurrence from behind.
    first = xp.flip(t * _before(xp, s.x, s.axis), axis=s.axis)
    out = xp.flip(_recurrence(xp, first, xp.flip(_later(xp, s), axis=s.axis), s.axis), axis=s.axis)
    if not s.include_initial:
        return out
    shape = tuple(1 if axis == s.axis else n for axis, n in enumerate(out.shape))
    return xp.concat([xp.zeros(shape, dtype=out.dtype), out], axis=s.axis)


CUMULATIVE_PROD = Primitive(
    "cumulative_prod",
    saves=("x",),
    vjp=(_cumulative_prod_vjp,),
    jvp=(_cumulative_prod_jvp,),
    options=("axis", "include_initial"),
)


def _others(xp: Any, s: Any) -> Any:
    """Return for each element the product of the others that it was multiplied with."""
    x, shape = s.x, s.x_shape
    reduced = reduced_axes(s.axis, len(shape))
    rest = tuple(axis for axis in range(len(shape)) if axis not in reduced)
    order = rest + reduced
    last = len(rest)
    rows = xp.permute_dims(x, order)
    turned = rows.shape
    rows = xp.reshape(rows, (*turned[:last], prod(turned[last:])))
    after = xp.flip(_before(xp, xp.flip(rows, axis=last), last), axis=last)
    products = xp.reshape(_before(xp, rows, last) * after, turned)
    return xp.permute_dims(products, tuple(order.index(axis) for axis in range(len(order))))


PROD = Primitive(
    "prod",
    saves=("x x.shape",),
    vjp=(lambda xp, g, s: kept(xp, g, s) * _others(xp, s),),
    jvp=(lambda xp, t, s: xp.sum(t * _others(xp, s), axis=s.axis, keepdims=s.keepdims),),
    options=("axis", "keepdims"),
)
