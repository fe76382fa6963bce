"""Calling a primitive: run its forward function, record it, carry tangents.

``call`` does everything; ``fast_paths.py`` has quicker paths for the common cases.
"""

from collections.abc import Callable, Sequence
from typing import Any, Concatenate

import numpy as np

from telegrad.arrays.backend import NUMPY
from telegrad.errors import DTypeError, ShapeError, TelegradError
from telegrad.graph import next_key
from telegrad.rules import Primitive
from telegrad.tensors.forward.duals import carry_tangents
from telegrad.tensors.forward.raw_duals import apply_raw_dual
from telegrad.tensors.inputs import as_inputs, common_backend, joint_dtype
from telegrad.tensors.late_bound import late_bound
from telegrad.tensors.recording.anomaly import where_recorded
from telegrad.tensors.recording.modes import MODE, PLAIN, QUIET, Mode
from telegrad.tensors.recording.op_node import OpNode, OutputNode, variant
from telegrad.tensors.recording.saved_values import needs_storing, stored
from telegrad.tensors.shared import SharedArray, plain, shared_as
from telegrad.tensors.tensor import LEAF, Tensor, wrap

_mode = MODE.get
_ndarray = np.ndarray


def call(primitive: Primitive, *inputs: Any, **options: Any) -> Any:
    """Call a primitive on Tensors and Python numbers; several outputs come as a tuple."""
    mode = _mode()
    if mode is PLAIN or mode is QUIET:
        made = _apply_plain(primitive, inputs, options, mode is PLAIN)
        if made is not None:
            return made
    tensors = as_inputs(primitive.name, inputs, is_floating=primitive.floating)
    xp = common_backend(primitive.name, tensors)
    if primitive.floating or primitive.elementwise:
        tensors = _promoted(primitive, tensors, xp)
    arrays = [plain(x.array) for x in tensors]
    try:
        result = primitive.kernel(xp)(*arrays, **options)
    except TelegradError:
        raise
    except (ValueError, TypeError) as error:
        raise _explained(primitive, arrays, error) from error
    if xp.is_numpy:
        result = tuple(map(np.asarray, result)) if primitive.outputs else np.asarray(result)
        if any(type(x.array) is SharedArray for x in tensors):
            result = shared_as(result, [x.array for x in tensors])
    node = None
    if mode.recording and primitive.differentiable:
        node = _record(primitive, tensors, arrays, result, options, mode)
    if primitive.differentiable and any(x.tangents for x in tensors):
        return carry_tangents(primitive, tensors, result, node, options)
    made = _wrapped(primitive, result if primitive.outputs else (result,), node)
    if mode.inference:
        for tensor in made if primitive.outputs else (made,):
            tensor.ensure_meta().inference = True
    return made


def _apply_plain(
    primitive: Primitive, inputs: tuple[Any, ...], options: dict[str, Any], is_recording: bool
) -> Any:
    """Do the same as ``call`` for plain NumPy tensors with real results; else return None."""
    arrays: list[Any] = []
    edges: list[Any] = []
    mask, bit = 0, 1
    is_typed = primitive.elementwise or primitive.floating
    for x in inputs:
        if not isinstance(x, Tensor):
            if any(isinstance(y, Tensor) and y.tangents for y in inputs):
                return apply_raw_dual(primitive, inputs, options, is_recording)
            return None
        if x.tangents is not None:
            return apply_raw_dual(primitive, inputs, options, is_recording)
        array = x.array
        if type(array) is not _ndarray:
            return None
        if is_typed:
            dtype = array.dtype
            if primitive.elementwise and (
                dtype.kind != "f" or (arrays and dtype is not arrays[0].dtype)
            ):
                return None
            if primitive.floating and dtype.kind not in "fc":
                return None
        arrays.append(array)
        from_x = x.node
        if from_x is not None and is_recording:
            mask |= bit
            edges.append(x if from_x is LEAF else from_x)
        bit += bit
    try:
        result = primitive.kernel(NUMPY)(*arrays, **options)
    except (ValueError, TypeError):
        return None
    results = [np.asarray(part) for part in result] if primitive.outputs else [np.asarray(result)]
    node = None
    if mask and primitive.differentiable:
        kind = primitive.variants.get(mask)
        if kind is None:
            if any(mask >> i & 1 and rule is None for i, rule in enumerate(primitive.vjp)):  # type: ignore[arg-type]
                return None
            kind = variant(primitive, mask, False)
        if results[0].dtype.kind != "f":
            return None
        if primitive.outputs and any(part.dtype.kind == "c" for part in results):
            return None
        arrays += results
        saved: list[Any] = []
        for i in kind.plan:
            saved.append(arrays[i])
        for i, what in kind.facts_plan:
            saved.append(options[what] if i < 0 else getattr(arrays[i], what))
        node = kind(tuple(edges), next_key(), *saved)
        if not primitive.exact:
            node.fits = tuple([(arrays[i].shape, arrays[i].dtype) for i in kind.wanted])
    return _wrapped(primitive, results, node) if primitive.outputs else wrap(results[0], node)


def _wrapped(primitive: Primitive, results: Sequence[Any], node: OpNode | None) -> Any:
    """Return the results as Tensors with their history: one, or a tuple of several."""
    if not primitive.outputs:
        return wrap(results[0], node)
    if node is None:
        return tuple([wrap(part) for part in results])
    return tuple([wrap(part, OutputNode.of(node, i)) for i, part in enumerate(results)])


def _promoted(primitive: Primitive, tensors: list[Tensor], xp: Any) -> list[Tensor]:
    """Return the tensors with integers made floating if the primitive or other inputs are."""
    dtypes = [x.dtype for x in tensors]
    joint = joint_dtype(dtypes)
    if joint.kind not in "fc":
        if not primitive.floating:
            return tensors
        joint = np.dtype("float32")
    return [
        wrap(xp.astype(x.array, joint)) if d.kind in "biu" else x for x, d in zip(tensors, dtypes)
    ]


def _record(
    primitive: Primitive,
    tensors: Sequence[Tensor],
    arrays: Sequence[Any],
    result: Any,
    options: dict[str, Any],
    mode: Mode,
) -> OpNode | None:
    """Return the node for a call, or None where no input needs a gradient."""
    mask = 0
    for i, x in enumerate(tensors):
        if x.node is not None and primitive.vjp[i] is not None:  # type: ignore[index]
            mask |= 1 << i
    if not mask:
        return None
    outputs = result if primitive.outputs else (result,)
    is_complex = any(np.dtype(_dtype(part)).kind == "c" for part in outputs)
    if not is_complex and _dtype(outputs[0]).kind not in "f":
        return None
    kind = variant(primitive, mask, is_complex)
    edges = tuple(tensors[i] if tensors[i].node is LEAF else tensors[i].node for i in kind.wanted)
    node = kind(edges, next_key())
    node.fits = tuple((tuple(arrays[i].shape), tensors[i].dtype) for i in kind.wanted)
    for fact, (i, what) in zip(kind.saved_facts, kind.facts_plan):
        setattr(node, fact, options[what] if i < 0 else getattr(tensors[i], what))
    _save(primitive, kind, node, tensors, arrays, result, mode)
    if mode.anomaly:
        node.metadata = {"traceback": where_recorded()}
    return node


def _save(
    primitive: Primitive,
    kind: type[OpNode],
    node: OpNode,
    tensors: Sequence[Tensor],
    arrays: Sequence[Any],
    result: Any,
    mode: Mode,
) -> None:
    """Put what the rules read into the slots of the node."""
    values: dict[str, Any] = dict(zip(primitive.inputs, tensors))
    plain_values: dict[str, Any] = dict(zip(primitive.inputs, arrays))
    if primitive.outputs:
        plain_values.update(zip(primitive.outputs, result))
    else:
        plain_values["out"] = result
    # A saved result has a tangent if any input does.
    saves_result = any(name not in values for name in kind.saved_values)
    node.is_stored = needs_storing(
        [x for name, x in values.items() if saves_result or name in kind.saved_values], mode
    )
    for name in kind.saved_values:
        if node.is_stored:
            tensor = values[name] if name in values else wrap(plain_values[name])
            setattr(node, name, stored(tensor, mode, primitive.name))
        else:
            setattr(node, name, plain_values[name])


def _dtype(array: Any) -> np.dtype[Any]:
    return array.dtype if isinstance(array.dtype, np.dtype) else wrap(array).dtype


def _explained(primitive: Primitive, arrays: Sequence[Any], error: Exception) -> Exception:
    shapes = " and ".join(str(tuple(a.shape)) for a in arrays)
    if isinstance(error, TypeError):
        dtypes = " and ".join(str(a.dtype) for a in arrays)
        return DTypeError(f"expected dtypes that {primitive.name} takes, got {dtypes}: {error}")
    if primitive.elementwise and not _broadcast(arrays):
        return ShapeError(
            f"expected shapes that broadcast together in {primitive.name}, got {shapes}; each pair "
            "of lengths, counted from the last axis, must be equal or 1"
        )
    if primitive.elementwise:
        dtypes = " and ".join(str(a.dtype) for a in arrays)
        return DTypeError(f"expected values that {primitive.name} takes, got {dtypes}: {error}")
    return ShapeError(f"expected shapes that {primitive.name} takes, got {shapes}: {error}")


def _broadcast(arrays: Sequence[Any]) -> bool:
    try:
        np.broadcast_shapes(*(tuple(a.shape) for a in arrays))
    except ValueError:
        return False
    return True


apply: Callable[Concatenate[Primitive, ...], Tensor] = call
"""``call``, for a primitive of one output."""
apply_several: Callable[Concatenate[Primitive, ...], tuple[Tensor, ...]] = call
"""``call``, for a primitive of several outputs."""

late_bound.apply = call
late_bound.variant = variant
