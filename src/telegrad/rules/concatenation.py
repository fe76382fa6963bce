"""Joining values, and taking them apart again.

A primitive has a fixed number of inputs and outputs, so there is one primitive for each number of
parts, made when first used.
"""

import functools
from collections.abc import Callable
from typing import Any

from telegrad.rules.primitive import Primitive, Rule

_KEPT = 256
"""How many primitives of each kind are kept; programs join the same few numbers of parts again."""


def _names(count: int) -> tuple[str, ...]:
    return tuple(f"part{i}" for i in range(count))


def _stretch(s: Any, i: int) -> tuple[Any, ...]:
    """Return where part `i` lies in the result; ``bounds`` are the ends of the parts."""
    start = s.bounds[i - 1] if i else 0
    return (*(slice(None),) * s.axis, slice(start, s.bounds[i]), Ellipsis)


def _layer(s: Any, i: int) -> tuple[Any, ...]:
    """Return where part `i` lies in the result, of which it is one layer."""
    return (*(slice(None),) * s.axis, i, Ellipsis)


def _rules(place: Callable[[Any, int], tuple[Any, ...]], i: int) -> tuple[Rule, Rule]:
    """Part `i` is taken out of a gradient, and put into a tangent, where its `place` is."""

    def vjp(xp: Any, g: Any, s: Any) -> Any:
        return xp.getitem(g, index=place(s, i))

    def jvp(xp: Any, t: Any, s: Any) -> Any:
        return xp.index_set(xp.zeros_like(s.out), xp.astype(t, s.out.dtype), index=place(s, i))

    return vjp, jvp


@functools.lru_cache(_KEPT)
def concat_of(count: int) -> Primitive:
    """Return the primitive that joins `count` values along an axis they have."""
    rules = [_rules(_stretch, i) for i in range(count)]
    return Primitive(
        "concat",
        forward=lambda xp, *parts, axis, bounds: xp.concat(parts, axis=axis),
        inputs=_names(count),
        vjp=[vjp for vjp, _ in rules],
        jvp=[jvp for _, jvp in rules],
        options=("axis", "bounds"),
    )


@functools.lru_cache(_KEPT)
def stack_of(count: int) -> Primitive:
    """Return the primitive that joins `count` values of one shape along a new axis."""
    rules = [_rules(_layer, i) for i in range(count)]
    return Primitive(
        "stack",
        forward=lambda xp, *parts, axis: xp.stack(parts, axis=axis),
        inputs=_names(count),
        vjp=[vjp for vjp, _ in rules],
        jvp=[jvp for _, jvp in rules],
        options=("axis",),
    )


@functools.lru_cache(_KEPT)
def unstack_of(count: int) -> Primitive:
    """Return the primitive that gives the `count` layers along an axis."""
    return Primitive(
        "unstack",
        outputs=_names(count),
        vjp=(lambda xp, g, s: xp.stack(list(g), axis=s.axis),),
        jvp=(lambda xp, t, s: xp.unstack(t, axis=s.axis),),
        options=("axis",),
        exact=True,
    )
