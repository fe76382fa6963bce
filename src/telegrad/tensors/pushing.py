"""Calling a row on raw duals: one level, NumPy arrays, nothing recorded. See ``raw_duals.py``.

``pusher`` makes the function of one row. It takes the tangents that the inputs hold as they are,
and gives up, before anything is computed, where there is more to it than one level of raw ones.

Rules read a *point*: a struct with a field for each input, the result and each option, as the nodes
of ``recorded.py`` have a slot for what vjp rules read.

Tensor is reached at call time: Tensor's own operators call what is made here.
"""

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np

from telegrad.arrays import silent
from telegrad.arrays.backend import NUMPY
from telegrad.rules import LINEAR, SAME, ZERO, Primitive
from telegrad.rules.primitive import Word
from telegrad.tensors import tensor
from telegrad.tensors.levels import Level, Tangents

__all__ = ["Push", "pusher"]

Push: TypeAlias = Callable[..., Any]
_ndarray = np.ndarray
_new, _empty, _ref = object.__new__, dict.__new__, weakref.ref
_NO_OPTIONS: Mapping[str, Any] = {}


def pusher(row: Primitive) -> Push:
    """The function that calls `row`, which has jvp rules and one result, on raw duals.

    ``push(arrays, held, options)``: `held` is what each input has as ``tangents``. The answer is
    the result, a Tensor without history; or None where this is not the simple case.
    """
    kernel = row.kernel(NUMPY)
    rules: Sequence[Any] = row.jvp  # type: ignore[assignment]
    if row.poles or not row.elementwise:
        rules = [r if r is None or isinstance(r, Word) else silent(r) for r in rules]
    point: Callable[..., Any] | None = None

    def push(
        arrays: Sequence[Any], held: Sequence[Any], options: Mapping[str, Any] = _NO_OPTIONS
    ) -> Any:
        nonlocal point
        level: Any = None
        moving: list[tuple[int, Any]] = []
        for i, tangents in enumerate(held):
            if not tangents:
                continue
            if len(tangents) != 1:
                return None
            [(at, carrier)] = tangents.items()
            if level is None:
                level = at
            t = carrier.array
            if at is not level or type(t) is not _ndarray or carrier.tangents:
                return None
            if carrier.node is not None and level.records:
                return None
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
        s: Any = None
        for i, t in moving:
            rule = rules[i]
            if rule is LINEAR:
                moved = [*arrays]
                moved[i] = t
                t = kernel(*moved, **options)
            elif rule is ZERO:
                t = np.zeros_like(out)
            elif rule is None:
                continue
            elif rule is not SAME:
                if s is None:
                    if point is None:
                        point = _point(row)
                    s = point(*arrays, out, **options)
                t = rule(NUMPY, t, s)
            total = t if total is None else total + t
        made = _new(tensor.Tensor)
        made.array = out
        made.node = made.tangents = made.state = None
        if total is not None:
            made.tangents = _carried(level, total, out)
        return made

    return push


def _carried(level: Level, t: Any, out: Any) -> Tangents:
    """``Tangents({level: wrap(t)})``, written out: every dual operation comes by here."""
    if type(t) is not _ndarray or t.dtype is not out.dtype:
        t = np.asarray(t, dtype=out.dtype)
    if t.shape != out.shape:
        t = np.broadcast_to(t, out.shape)
    carrier = _new(tensor.Tensor)
    carrier.array = t
    carrier.node = carrier.tangents = carrier.state = None
    carried = _empty(Tangents)
    carried[level] = carrier
    holders = level.holders
    holders.append(_ref(carried))
    if len(holders) > level.prune_at:
        level.prune()
    if not level.is_open:
        carried.pop(level, None)
    return carried


def _point(row: Primitive) -> Callable[..., Any]:
    """Makes what the jvp rules of `row` read, from the arrays, the result and the options."""
    named = sorted({f for saves in row.saves for f in saves.split() if "." in f})
    facts = [(f.replace(".", "_"), *f.split(".")) for f in named]
    values = [(name, Any) for name in (*row.inputs, "out")]
    others = [(name, Any, None) for name in (*row.options, *(slot for slot, _, _ in facts))]
    struct = msgspec.defstruct(f"{row.name}_point", [*values, *others])
    if not facts:
        return struct

    def made(*values: Any, **options: Any) -> Any:
        s = struct(*values, **options)
        for slot, name, what in facts:
            setattr(s, slot, getattr(getattr(s, name), what))
        return s

    return made
