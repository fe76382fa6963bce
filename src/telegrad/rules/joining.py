"""Joining values, and taking them apart again.

A row has a fixed number of inputs and outputs, so there is one row for each number of parts,
made when first used. The table shows those of three parts for all.
"""

import functools
from typing import Any

from telegrad.rules.primitive import Primitive, Rule

__all__ = ["ROWS", "concat_of", "stack_of", "unstack_of"]


_KEPT = 256
"""How many rows of each kind are kept; programs join the same few numbers of parts again."""


def _names(stem: str, count: int) -> tuple[str, ...]:
    return tuple(f"{stem}{i}" for i in range(count))


def _stretch(s: Any, i: int) -> tuple[Any, ...]:
    """Where part `i` lies in the result; ``bounds`` are the ends of the parts."""
    start = s.bounds[i - 1] if i else 0
    return (*(slice(None),) * s.axis, slice(start, s.bounds[i]), Ellipsis)


def _concat(xp: Any, *parts: Any, axis: int, bounds: tuple[int, ...]) -> Any:
    return xp.concat(parts, axis=axis)


def _concat_rules(i: int) -> tuple[Rule, Rule]:
    def vjp(xp: Any, g: Any, s: Any) -> Any:
        return xp.getitem(g, index=_stretch(s, i))

    def jvp(xp: Any, t: Any, s: Any) -> Any:
        return xp.index_set(xp.zeros_like(s.out), xp.astype(t, s.out.dtype), index=_stretch(s, i))

    return vjp, jvp


@functools.lru_cache(_KEPT)
def concat_of(count: int) -> Primitive:
    """The row that joins `count` values along an axis they have."""
    rules = [_concat_rules(i) for i in range(count)]
    return Primitive(
        "concat",
        forward=_concat,
        inputs=_names("part", count),
        vjp=[vjp for vjp, _ in rules],
        jvp=[jvp for _, jvp in rules],
        options=("axis", "bounds"),
    )


def _layer(s: Any, i: int) -> tuple[Any, ...]:
    return (*(slice(None),) * s.axis, i, Ellipsis)


def _stack(xp: Any, *parts: Any, axis: int) -> Any:
    return xp.stack(parts, axis=axis)


def _stack_rules(i: int) -> tuple[Rule, Rule]:
    def vjp(xp: Any, g: Any, s: Any) -> Any:
        return xp.getitem(g, index=_layer(s, i))

    def jvp(xp: Any, t: Any, s: Any) -> Any:
        return xp.index_set(xp.zeros_like(s.out), xp.astype(t, s.out.dtype), index=_layer(s, i))

    return vjp, jvp


@functools.lru_cache(_KEPT)
def stack_of(count: int) -> Primitive:
    """The row that joins `count` values of one shape along a new axis."""
    rules = [_stack_rules(i) for i in range(count)]
    return Primitive(
        "stack",
        forward=_stack,
        inputs=_names("part", count),
        vjp=[vjp for vjp, _ in rules],
        jvp=[jvp for _, jvp in rules],
        options=("axis",),
    )


@functools.lru_cache(_KEPT)
def unstack_of(count: int) -> Primitive:
    """The row that gives the `count` layers along an axis."""
    return Primitive(
        "unstack",
        outputs=_names("part", count),
        vjp=(lambda xp, g, s: xp.stack(list(g), axis=s.axis),),
        jvp=(lambda xp, t, s: xp.unstack(t, axis=s.axis),),
        options=("axis",),
        exact=True,
    )


ROWS = (concat_of(3), stack_of(3), unstack_of(3))
