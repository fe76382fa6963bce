"""A primitive on raw duals: one level, NumPy arrays, nothing recorded. See ``raw_duals.py``.

``push_one`` and ``push_two`` make the function of an elementwise primitive, or of a product, for
the fast paths; ``push_any`` makes that of any primitive. The functions give up, before anything is
computed, unless the inputs hold raw tangents of a single level.

Rules read a *point*: a struct with a field for each input, the result and each option, like the
slots that the nodes of ``op_node.py`` have for vjp rules.

Tensor is looked up at call time, since its own operators call what is made here.
"""

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from telegrad.arrays import silent
from telegrad.arrays.backend import NUMPY
from telegrad.rules import LINEAR, SAME, ZERO, Primitive
from telegrad.rules.primitive import Word
from telegrad.tensors.forward.levels import Level, Tangents
from telegrad.tensors.late_bound import late_bound

_ndarray = np.ndarray
_new, _empty, _ref = object.__new__, dict.__new__, weakref.ref


def push_one(primitive: Primitive) -> Callable[[Any, Any], Any]:
    """``push(a, held)``: the result for a raw value and the tangents it holds, or None."""
    kernel, point = primitive.kernel(NUMPY), _points(primitive)
    [rule] = _rules(primitive)

    def push(a: Any, held: Any) -> Any:
        level, t = _raw_tangent(held)
        if level is None:
            return None
        out = kernel(a)
        if type(out) is not _ndarray:
            out = np.asarray(out)
        if rule is LINEAR:
            t = kernel(t)
        elif rule is ZERO:
            t = np.zeros_like(out)
        elif rule is not SAME:
            t = rule(NUMPY, t, point(a, out))
        return _dual(out, level, t)

    return push


def push_two(primitive: Primitive) -> Callable[[Any, Any, Any, Any], Any]:
    """``push(a, held_a, b, held_b)``, where one or both hold tangents."""
    kernel, point = primitive.kernel(NUMPY), _points(primitive)
    first, second = _rules(primitive)

    def push(a: Any, held_a: Any, b: Any, held_b: Any) -> Any:
        level: Any = None
        t: Any = None
        u: Any = None
        if held_a:
            level, t = _raw_tangent(held_a)
            if level is None:
                return None
        if held_b:
            at, u = _raw_tangent(held_b)
            if at is None or (t is not None and at is not level):
                return None
            level = at
        try:
            out = kernel(a, b)
        except (ValueError, TypeError):
            return None
        if type(out) is not _ndarray:
            out = np.asarray(out)
        if t is not None:
            if first is LINEAR:
                t = kernel(t, b)
            elif first is ZERO:
                t = np.zeros_like(out)
            elif first is not SAME:
                t = first(NUMPY, t, point(a, b, out))
        if u is not None:
            if second is LINEAR:
                u = kernel(a, u)
            elif second is ZERO:
                u = np.zeros_like(out)
            elif second is not SAME:
                u = second(NUMPY, u, point(a, b, out))
            t = u if t is None else t + u
        return _dual(out, level, t)

    return push


def push_any(
    primitive: Primitive,
) -> Callable[[Sequence[Any], Sequence[Any], Mapping[str, Any]], Any]:
    """``push(arrays, held, options)``, for any number of inputs."""
    kernel, point = primitive.kernel(NUMPY), _points(primitive)
    rules = _rules(primitive)

    def push(arrays: Sequence[Any], held: Sequence[Any], options: Mapping[str, Any]) -> Any:
        level: Any = None
        moving: list[tuple[int, Any]] = []
        for i, tangents in enumerate(held):
            if tangents:
                at, t = _raw_tangent(tangents)
                if at is None or (level is not None and at is not level):
                    return None
                level = at
                moving.append((i, t))
        try:
            out = kernel(*arrays, **options)
        except (ValueError, TypeError):
            return None
        if type(out) is not _ndarray:
            out = np.asarray(out)
        if out.dtype is not arrays[0].dtype:
            return None
        total: Any = None
        for i, t in moving:
            rule = rules[i]
            if rule is LINEAR:
                moved = [*arrays]
                moved[i] = t
                t = kernel(*moved, **options)
            elif rule is ZERO:
                t = np.zeros_like(out)
            elif rule is not SAME:
                t = rule(NUMPY, t, point(*arrays, out, **options))
            total = t if total is None else total + t
        return late_bound.wrap(out) if total is None else _dual(out, level, total)

    return push


def _rules(primitive: Primitive) -> Sequence[Any]:
    """Return the jvp rules, silenced where they may meet a pole."""
    rules: Sequence[Any] = primitive.jvp  # type: ignore[assignment]
    if primitive.elementwise and not primitive.poles:
        return rules
    return [r if r is None or isinstance(r, Word) else silent(r) for r in rules]


def _raw_tangent(held: Tangents) -> tuple[Level, Any] | tuple[None, None]:
    """Return the level and the tangent, if there is one level and the tangent is just an array."""
    if len(held) != 1:
        return None, None
    [(level, carrier)] = held.items()
    t = carrier.array
    if type(t) is not _ndarray or carrier.tangents or (carrier.node is not None and level.records):
        return None, None
    return level, t


def _dual(out: Any, level: Level, t: Any) -> Any:
    """Return ``wrap(out, None, Tangents({level: wrap(t)}))``, inlined: every call makes one."""
    if type(t) is not _ndarray or t.dtype is not out.dtype:
        t = np.asarray(t, dtype=out.dtype)
    if t.shape != out.shape:
        t = np.broadcast_to(t, out.shape)
    carrier = _new(late_bound.tensor_type)
    carrier.array = t
    carrier.node = carrier.tangents = carrier.meta = None
    tangents = _empty(Tangents)
    tangents[level] = carrier
    holders = level.holders
    holders.append(_ref(tangents))
    if len(holders) > level.prune_at:
        level.prune()
    if not level.is_open:
        tangents.pop(level, None)
    made = _new(late_bound.tensor_type)
    made.array = out
    made.tangents = tangents
    made.node = made.meta = None
    return made


def _points(primitive: Primitive) -> Callable[..., Any]:
    """Return what makes the points of `primitive` from the arrays, the result and the options.

    The struct is made at the first call: most primitives never meet a dual.
    """
    made: Callable[..., Any] | None = None

    def point(*values: Any, **options: Any) -> Any:
        nonlocal made
        if made is None:
            made = _point_type(primitive)
        return made(*values, **options)

    return point


def _point_type(primitive: Primitive) -> Callable[..., Any]:
    facts = primitive.facts
    values = [(name, Any) for name in (*primitive.inputs, "out")]
    others = [(name, Any, None) for name in (*primitive.options, *(slot for slot, _, _ in facts))]
    struct = msgspec.defstruct(f"{primitive.name}_point", [*values, *others])
    if not facts:
        return struct

    def point(*values: Any, **options: Any) -> Any:
        s = struct(*values, **options)
        for slot, name, what in facts:
            setattr(s, slot, getattr(getattr(s, name), what))
        return s

    return point
