"""The fast paths in front of ``apply``: elementwise functions, products of matrices, totals.

Each function here makes the function of one primitive. That handles NumPy arrays of one real
floating dtype, recorded or under ``no_grad``, with nothing special switched on, and hands
everything else to ``apply``; a test compares the two.

Tensor is bound late, since its own operators are made here.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from telegrad.arrays import scalar_like
from telegrad.arrays.backend import NUMPY
from telegrad.graph import LEAF, next_key
from telegrad.rules import Primitive
from telegrad.tensors.forward.raw_call import push_one, push_two
from telegrad.tensors.late_bound import late_bound
from telegrad.tensors.recording.modes import MODE, PLAIN, QUIET

if TYPE_CHECKING:
    from telegrad.tensors.tensor import Tensor

_ndarray = np.ndarray
# Without complex: 3 + 0j equals 3, and must not be taken for it.
_NUMBERS = frozenset((int, float, bool))
_FLOAT32, _FLOAT64 = np.dtype("float32"), np.dtype("float64")
_new = object.__new__
_mode = MODE.get


def binary(primitive: Primitive) -> Callable[[Any, Any], "Tensor"]:
    """Return the function of an elementwise primitive of two inputs."""
    if not primitive.differentiable:
        return _never_recorded(primitive)
    kernel, push = primitive.kernel(NUMPY), push_two(primitive)
    variants = primitive.variants

    def call(x: Any, y: Any, /) -> "Tensor":
        held_x = held_y = None
        if isinstance(y, late_bound.tensor_type):
            b, from_y, held_y = y.array, y.node, y.tangents
            if isinstance(x, late_bound.tensor_type):
                a, from_x, held_x = x.array, x.node, x.tangents
            elif type(x) in _NUMBERS:
                a, from_x = scalar_like(x, b), None
            else:
                return late_bound.apply(primitive, x, y)
        elif type(y) in _NUMBERS and isinstance(x, late_bound.tensor_type):
            a, from_x, held_x = x.array, x.node, x.tangents
            b, from_y = scalar_like(y, a), None
        else:
            return late_bound.apply(primitive, x, y)
        if (mode := _mode()) is not PLAIN:
            if mode is not QUIET:
                return late_bound.apply(primitive, x, y)
            from_x = from_y = None
        if type(a) is not _ndarray or type(b) is not _ndarray:
            return late_bound.apply(primitive, x, y)
        dtype = a.dtype
        if dtype is not b.dtype or (dtype is not _FLOAT32 and dtype is not _FLOAT64):
            return late_bound.apply(primitive, x, y)
        if held_x or held_y:
            dual = push(a, held_x, b, held_y) if from_x is from_y is None else None
            return late_bound.apply(primitive, x, y) if dual is None else dual
        try:
            out = kernel(a, b)
        except (ValueError, TypeError):
            return late_bound.apply(primitive, x, y)
        if type(out) is not _ndarray:
            out = np.asarray(out)
        made = _new(late_bound.tensor_type)
        made.array = out
        made.tangents = None
        made.meta = None
        if from_y is None:
            if from_x is None:
                made.node = None
                return made
            mask = 1
            edges: Any = (x if from_x is LEAF else from_x,)
            fits: Any = ((a.shape, dtype),) if b.ndim and a.shape != out.shape else None
        elif from_x is None:
            mask = 2
            edges = (y if from_y is LEAF else from_y,)
            fits = ((b.shape, dtype),) if a.ndim and b.shape != out.shape else None
        else:
            mask = 3
            edges = (x if from_x is LEAF else from_x, y if from_y is LEAF else from_y)
            fits = _fits(a, b, out) if a.shape != b.shape else None
        kind = variants.get(mask) or late_bound.variant(primitive, mask, False)
        saves = kind.saves  # A bit each for x, y and the result.
        if saves == 2:
            node = kind(edges, next_key(), b)
        elif saves == 0:
            node = kind(edges, next_key())
        elif saves == 3:
            node = kind(edges, next_key(), a, b)
        else:
            node = kind(edges, next_key(), *_picked(saves, a, b, out))
        if fits is not None:
            node.fits = fits
        made.node = node
        return made

    return call


def _fits(a: Any, b: Any, out: Any) -> tuple[Any, ...]:
    """Return the ``fits`` of a node: what broadcasting stretched, for both inputs."""
    return tuple([None if x.shape == out.shape else (x.shape, x.dtype) for x in (a, b)])


def _picked(saves: int, *values: Any) -> list[Any]:
    return [value for i, value in enumerate(values) if saves >> i & 1]


def unary(primitive: Primitive) -> Callable[[Any], "Tensor"]:
    """Return the function of an elementwise primitive of one input."""
    if not primitive.differentiable:
        return lambda x, /: late_bound.apply(primitive, x)
    kernel, push = primitive.kernel(NUMPY), push_one(primitive)
    variants = primitive.variants

    def call(x: Any, /) -> "Tensor":
        if not isinstance(x, late_bound.tensor_type):
            return late_bound.apply(primitive, x)
        a, node = x.array, x.node
        if (mode := _mode()) is not PLAIN:
            if mode is not QUIET:
                return late_bound.apply(primitive, x)
            node = None
        if type(a) is not _ndarray:
            return late_bound.apply(primitive, x)
        dtype = a.dtype
        if dtype is not _FLOAT32 and dtype is not _FLOAT64:
            return late_bound.apply(primitive, x)
        if x.tangents:
            dual = push(a, x.tangents) if node is None else None
            return late_bound.apply(primitive, x) if dual is None else dual
        out = kernel(a)
        if type(out) is not _ndarray:
            out = np.asarray(out)
        if node is not None:
            kind = variants.get(1) or late_bound.variant(primitive, 1, False)
            edges = (x if node is LEAF else node,)
            saves = kind.saves
            if saves == 1:
                node = kind(edges, next_key(), a)
            elif saves == 2:
                node = kind(edges, next_key(), out)
            else:
                node = kind(edges, next_key(), *_picked(saves, a, out))
        made = _new(late_bound.tensor_type)
        made.array = out
        made.node = node
        made.tangents = made.meta = None
        return made

    return call


def _never_recorded(primitive: Primitive) -> Callable[[Any, Any], "Tensor"]:
    """Return the function of a comparison or of logic, which is never recorded."""
    kernel = primitive.kernel(NUMPY)

    def call(x: Any, y: Any, /) -> "Tensor":
        if not isinstance(x, late_bound.tensor_type) or type(x.array) is not _ndarray:
            return late_bound.apply(primitive, x, y)
        a = x.array
        if isinstance(y, late_bound.tensor_type):
            b = y.array
        else:
            b = scalar_like(y, a) if type(y) in _NUMBERS else None
        if type(b) is not _ndarray or a.dtype is not b.dtype or _mode().inference:
            return late_bound.apply(primitive, x, y)
        try:
            return late_bound.wrap(np.asarray(kernel(a, b)))
        except (ValueError, TypeError):
            return late_bound.apply(primitive, x, y)

    return call


def product(primitive: Primitive) -> Callable[[Any, Any], "Tensor | None"]:
    """Return the function of a primitive of two matrices.

    It returns None where the fast path does not apply.
    """
    kernel, push = primitive.kernel(NUMPY), push_two(primitive)
    variants = primitive.variants

    def call(x: Any, y: Any, /) -> "Tensor | None":
        a, b = x.array, y.array
        if type(a) is not _ndarray or type(b) is not _ndarray:
            return None
        from_x, from_y = x.node, y.node
        if (mode := _mode()) is not PLAIN:
            if mode is not QUIET:
                return None
            from_x = from_y = None
        dtype = a.dtype
        if dtype is not b.dtype or (dtype is not _FLOAT32 and dtype is not _FLOAT64):
            return None
        if a.ndim != 2 or b.ndim != 2:
            return None
        if x.tangents or y.tangents:
            return push(a, x.tangents, b, y.tangents) if from_x is from_y is None else None
        try:
            out = kernel(a, b)
        except ValueError:
            return None
        made = _new(late_bound.tensor_type)
        made.array = out
        made.tangents = None
        made.meta = None
        if from_x is None:
            if from_y is None:
                made.node = None
                return made
            kind = variants.get(2) or late_bound.variant(primitive, 2, False)
            made.node = kind((y if from_y is LEAF else from_y,), next_key(), a)
        elif from_y is None:
            kind = variants.get(1) or late_bound.variant(primitive, 1, False)
            made.node = kind((x if from_x is LEAF else from_x,), next_key(), b)
        else:
            kind = variants.get(3) or late_bound.variant(primitive, 3, False)
            edges = (x if from_x is LEAF else from_x, y if from_y is LEAF else from_y)
            made.node = kind(edges, next_key(), a, b)
        return made

    return call


def total(primitive: Primitive) -> Callable[[Any, Any, bool], "Tensor | None"]:
    """Return the function of a primitive that saves only the shape of its input, as a sum does.

    It returns None where the fast path does not apply.
    """
    kernel = primitive.kernel(NUMPY)
    variants = primitive.variants

    def call(x: Any, axis: Any, keepdims: bool, /) -> "Tensor | None":
        a, node = x.array, x.node
        if (mode := _mode()) is not PLAIN:
            if mode is not QUIET:
                return None
            node = None
        if type(a) is not _ndarray or x.tangents:
            return None
        dtype = a.dtype
        if dtype is not _FLOAT32 and dtype is not _FLOAT64:
            return None
        out = kernel(a, axis=axis, keepdims=keepdims)
        if type(out) is not _ndarray:
            out = np.asarray(out)
        if node is not None:
            kind = variants.get(1) or late_bound.variant(primitive, 1, False)
            edges = (x if node is LEAF else node,)
            node = kind(edges, next_key(), a.shape, axis, keepdims)
        made = _new(late_bound.tensor_type)
        made.array = out
        made.node = node
        made.tangents = made.meta = None
        return made

    return call


def reversed_binary(primitive: Primitive) -> Callable[[Any, Any], "Tensor"]:
    """Return ``binary`` with the operands exchanged, for ``__rsub__`` and its kin."""
    function = binary(primitive)

    def call(y: Any, x: Any, /) -> "Tensor":
        return function(x, y)

    return call
