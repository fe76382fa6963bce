"""Forward mode on raw arrays: one level, tangents without history. The fast path of ``duals.py``.

A jvp rule needs Tensors only where its own operations must be recorded or carry tangents of other
levels. Otherwise it runs on NumPy arrays, like the vjp rules of an ordinary backward pass: where
nothing is recorded at all, or at a level whose tangents have no history (``Level.records``), where
the call itself may be recorded. All other cases are left to ``duals.py``; a test compares the two.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from telegrad.arrays import scalar_like
from telegrad.graph import next_key
from telegrad.rules import Primitive
from telegrad.rules.primitive import Word
from telegrad.tensors.forward.raw_call import push_any
from telegrad.tensors.recording.op_node import OpNode, variant
from telegrad.tensors.tensor import LEAF, Tensor, wrap

_ndarray = np.ndarray
_FLOAT32, _FLOAT64 = np.dtype("float32"), np.dtype("float64")


def apply_raw_dual(
    primitive: Primitive, inputs: tuple[Any, ...], options: dict[str, Any], is_recording: bool
) -> Tensor | None:
    """Return the result with its tangent, or None where this is not the simple case."""
    if isinstance(primitive.jvp, Word) or isinstance(primitive.vjp, Word) or primitive.outputs:
        return None
    like = next(x.array for x in inputs if isinstance(x, Tensor))
    if type(like) is not _ndarray:
        return None
    dtype = like.dtype
    if dtype is not _FLOAT32 and dtype is not _FLOAT64:
        return None
    arrays: list[Any] = []
    held: list[Any] = []
    has_node = records = False
    for x in inputs:
        tangents = None
        if isinstance(x, Tensor):
            array, tangents = x.array, x.tangents
            if type(array) is not _ndarray or array.dtype is not dtype:
                return None
            if x.node is not None:
                has_node = is_recording
            for level in tangents or ():
                records = records or level.records
        elif type(x) is float or type(x) is int:
            array = np.asarray(scalar_like(x, like), dtype=dtype)
        else:
            return None
        arrays.append(array)
        held.append(tangents)
    if has_node and records:
        return None
    if primitive.push is None:
        primitive.push = push_any(primitive)
    made: Tensor | None = primitive.push(arrays, held, options)
    if made is not None and has_node:
        made.node = _node(primitive, inputs, arrays, made, options)
    return made


def _node(
    primitive: Primitive,
    inputs: Sequence[Any],
    arrays: list[Any],
    out: Tensor,
    options: dict[str, Any],
) -> OpNode:
    """Return the node of the call, whose saved values carry their tangents."""
    mask = 0
    for i, x in enumerate(inputs):
        if isinstance(x, Tensor) and x.node is not None:
            mask |= 1 << i
    kind = primitive.variants.get(mask) or variant(primitive, mask, False)
    wanted = kind.wanted
    edges = tuple([inputs[i] if inputs[i].node is LEAF else inputs[i].node for i in wanted])
    saved: list[Any] = []
    for i in kind.plan:
        if i == len(arrays):
            saved.append(wrap(out.array, None, out.tangents))
        else:
            x = inputs[i]
            saved.append(wrap(arrays[i], None, x.tangents if isinstance(x, Tensor) else None))
    for i, what in kind.facts_plan:
        saved.append(options[what] if i < 0 else getattr(arrays[i], what))
    node: OpNode = kind(edges, next_key(), *saved)
    node.is_stored = True
    node.fits = tuple([(arrays[i].shape, arrays[i].dtype) for i in wanted])
    return node
