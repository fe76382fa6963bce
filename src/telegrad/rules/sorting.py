"""Sorting: the same values in another order, which the values themselves decide."""

from typing import Any

from telegrad.rules.primitive import Primitive


def _order(xp: Any, s: Any) -> Any:
    return xp.argsort(s.x, axis=s.axis, descending=s.descending, stable=s.stable)


def _sort_vjp(xp: Any, g: Any, s: Any) -> Any:
    # The order of an order is its inverse: nothing is scattered.
    back = xp.argsort(_order(xp, s), axis=s.axis)
    return xp.take_along_axis(g, back, axis=s.axis)


SORT = Primitive(
    "sort",
    saves=("x",),
    vjp=(_sort_vjp,),
    jvp=(lambda xp, t, s: xp.take_along_axis(t, _order(xp, s), axis=s.axis),),
    options=("axis", "descending", "stable"),
    exact=True,
)
