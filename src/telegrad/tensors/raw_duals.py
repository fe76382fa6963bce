"""Forward mode on raw arrays: one level, tangents without history. The hot path of ``duals.py``.

A jvp rule needs Tensors only where its own operations must be recorded or carry tangents of other
levels. Otherwise it runs on NumPy arrays, like the vjp rules of an ordinary backward pass: where
nothing is recorded at all, and at a level that keeps no history of its tangents
(``Level.records``); then the call itself may be recorded. What this does not recognise it leaves
alone; a test holds both ways to the same results.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from telegrad.arrays import scalar_like
from telegrad.arrays.backend import NUMPY
from telegrad.graph import next_key
from telegrad.rules import LINEAR, SAME, ZERO, Primitive
from telegrad.rules.primitive import Word
from telegrad.tensors.levels import Level, Tangents
from telegrad.tensors.recorded import RowNode, variant
from telegrad.tensors.saving import restored
from telegrad.tensors.tensor import LEAF, Tensor, wrap

__all__ = ["apply_raw_dual"]

_ndarray = np.ndarray
_FLOAT32, _FLOAT64 = np.dtype("float32"), np.dtype("float64")
_facts: dict[Primitive, tuple[tuple[str, str, str], ...]] = {}


def apply_raw_dual(
    row: Primitive, inputs: tuple[Any, ...], options: dict[str, Any], is_recording: bool
) -> Tensor | None:
    """The result with its tangent, or None where this is not the simple case."""
    jvp = row.jvp
    if isinstance(jvp, Word) or isinstance(row.vjp, Word) or row.outputs:
        return None
    found = _raw_parts(inputs, is_recording)
    if found is None:
        return None
    level, arrays, tangents = found
    kernel = row.kernel(NUMPY)
    try:
        out = kernel(*arrays, **options)
    except (ValueError, TypeError):
        return None
    if type(out) is not _ndarray:
        out = np.asarray(out)
    if out.dtype is not arrays[0].dtype:
        return None
    total = _raw_tangent(row, arrays, tangents, out, options)
    carried = None if total is None else Tangents({level: wrap(total)})
    if not is_recording:
        return wrap(out, None, carried)
    return wrap(out, _node(row, inputs, arrays, out, carried, options), carried)


def _node(
    row: Primitive,
    inputs: Sequence[Any],
    arrays: list[Any],
    out: Any,
    carried: Tangents | None,
    options: dict[str, Any],
) -> RowNode | None:
    """The node of the call, its saved values with their tangents; None where no input needs one."""
    mask = 0
    for i, (x, rule) in enumerate(zip(inputs, row.vjp)):  # type: ignore[arg-type]
        if rule is not None and isinstance(x, Tensor) and x.node is not None:
            mask |= 1 << i
    if not mask:
        return None
    kind = row.variants.get(mask) or variant(row, mask, False)
    wanted = kind.wanted
    edges = tuple([inputs[i] if inputs[i].node is LEAF else inputs[i].node for i in wanted])
    saved: list[Any] = []
    for i in kind.plan:
        if i == len(arrays):
            saved.append(wrap(out, None, carried))
        else:
            x = inputs[i]
            saved.append(wrap(arrays[i], None, x.tangents if isinstance(x, Tensor) else None))
    for i, what in kind.facts_plan:
        saved.append(options[what] if i < 0 else getattr(arrays[i], what))
    node: RowNode = kind(edges, next_key(), *saved)
    node.rare = restored
    node.fits = tuple([(arrays[i].shape, arrays[i].dtype) for i in wanted])
    return node


def _raw_tangent(
    row: Primitive, arrays: list[Any], tangents: list[Any], out: Any, options: dict[str, Any]
) -> Any:
    """The tangent of the result for raw primals and tangents; None where it has none."""
    jvp: Any = row.jvp
    s: Any = None
    total: Any = None
    for i, tangent in enumerate(tangents):
        rule = jvp[i]
        if tangent is None or rule is None:
            continue
        if rule is SAME:
            part = tangent
        elif rule is LINEAR:
            part = row.kernel(NUMPY)(*arrays[:i], tangent, *arrays[i + 1 :], **options)
        elif rule is ZERO:
            part = np.zeros_like(out)
        else:
            if s is None:
                s = _namespace(row, arrays, out, options)
            part = rule(NUMPY, tangent, s)
        total = part if total is None else total + part
    if total is None:
        return None
    if total.shape != out.shape:
        total = np.broadcast_to(total, out.shape)
    if type(total) is not _ndarray or total.dtype is not out.dtype:
        total = np.asarray(total, dtype=out.dtype)
    return total


def _raw_parts(
    inputs: Sequence[Any], is_recording: bool
) -> tuple[Level, list[Any], list[Any]] | None:
    """The one level and the raw primals and tangents; None where there is more to it."""
    level: Level | None = None
    arrays: list[Any] = []
    tangents: list[Any] = []
    dtype: Any = None
    has_history = False
    for x in inputs:
        if not isinstance(x, Tensor):
            arrays.append(x)
            tangents.append(None)
            continue
        array = x.array
        if type(array) is not _ndarray:
            return None
        if x.node is not None:
            has_history = True
        if dtype is None:
            dtype = array.dtype
            if dtype is not _FLOAT32 and dtype is not _FLOAT64:
                return None
        elif array.dtype is not dtype:
            return None
        arrays.append(array)
        if not x.tangents:
            tangents.append(None)
            continue
        if len(x.tangents) != 1:
            return None
        [(at, tangent)] = x.tangents.items()
        if level is None:
            level = at
        if at is not level or tangent.tangents or type(tangent.array) is not _ndarray:
            return None
        if tangent.node is not None:
            has_history = True
        tangents.append(tangent.array)
    if level is None or (has_history and is_recording and level.records):
        return None
    for i, value in enumerate(arrays):
        if type(value) is not _ndarray:
            if type(value) not in (int, float):
                return None
            arrays[i] = np.asarray(scalar_like(value, np.empty(0, dtype)), dtype=dtype)
    return level, arrays, tangents


def _namespace(
    row: Primitive, arrays: list[Any], out: Any, options: dict[str, Any]
) -> SimpleNamespace:
    s = SimpleNamespace(out=out, **dict(zip(row.inputs, arrays)), **options)
    facts = _facts.get(row)
    if facts is None:
        named = sorted({f for saves in row.saves for f in saves.split() if "." in f})
        facts = _facts[row] = tuple(
            (f.replace(".", "_"), f.partition(".")[0], f.partition(".")[2]) for f in named
        )
    for slot, name, what in facts:
        setattr(s, slot, getattr(getattr(s, name), what))
    return s
