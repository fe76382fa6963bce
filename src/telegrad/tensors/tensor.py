"""Tensor: a value that remembers how it was computed.

``array`` is the raw array, ``node`` is None for a constant, LEAF for a tensor that the user asked
to be differentiated, and otherwise the node that recorded it. ``tangents`` holds forward-mode
tangents by level. ``meta`` holds what only few tensors have: a gradient, hooks.

A leaf is its own node: it implements the protocol of ``graph.node``, and graphs refer to the leaf
itself. Values do not alias: nothing writes into ``array`` while something else may see it;
assignment and in-place operators give the Tensor a new array and a new history.
"""

import math
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final, Self

import numpy as np

from telegrad.arrays import backend_of
from telegrad.arrays.cupy import is_cupy
from telegrad.arrays.devices import device_of, placed
from telegrad.arrays.host import in_host_memory
from telegrad.arrays.ownership import IS_LOCKED
from telegrad.errors import DTypeError, GradientError, UsageError
from telegrad.graph import LEAF, Handle, LeafNode, Node, NodeHooks, hooks_of
from telegrad.tensors import text
from telegrad.tensors.describe import no_tensor
from telegrad.tensors.exchange import Exchange
from telegrad.tensors.late_bound import late_bound
from telegrad.tensors.likeness import check_like
from telegrad.tensors.methods import Methods
from telegrad.tensors.numpy.protocols import NumpyProtocols
from telegrad.tensors.operators import Operators
from telegrad.tensors.recording.accumulate_grad import AccumulateGrad
from telegrad.tensors.recording.modes import MODE

__all__ = ["LEAF", "Tensor", "history_of", "wrap"]

# Threads that give a tensor its first gradient or hook at once must share one AutogradMeta.
# Reentrant, since a finalizer may run inside.
_making = threading.RLock()


def _count_held(holder: list[Any]) -> int:
    value = holder[0]
    return sys.getrefcount(value)


_HELD: Final = _count_held([object()]) if IS_LOCKED else 0
"""References to a value that a local and its Tensor know: note COUNTS in engine/local.py."""


class AutogradMeta:
    """What only few tensors have: a gradient, hooks, a name, the mark of ``inference_mode``."""

    __slots__ = ("grad", "hooks", "inference", "name")

    def __init__(self) -> None:
        self.grad: Tensor | None = None
        self.hooks: NodeHooks | None = None
        self.inference = False
        self.name: str | None = None


class Tensor(Operators, Methods, Exchange, NumpyProtocols, LeafNode):
    """An n-dimensional array that remembers how it was computed. Made by ``telegrad.tensor``.

    Examples:
        >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> x.grad
        tensor([2., 4.])
    """

    __slots__ = ("__weakref__", "array", "meta", "node", "tangents")

    array: Any
    node: Any
    tangents: dict[Any, "Tensor"] | None
    meta: AutogradMeta | None

    def __init__(self, *data: Any, **options: Any) -> None:
        raise UsageError("a Tensor is made by telegrad.tensor(data) or telegrad.asarray(data)")

    # What it is

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes."""
        return tuple(self.array.shape)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.array.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.array.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""
        dtype: Any = self.array.dtype
        if isinstance(dtype, np.dtype):
            return dtype
        found: np.dtype[Any] = backend_of(self.array).dtype_of(self.array)
        return found

    @property
    def device(self) -> Any:
        """Where the elements are: "cpu", "cuda:0"."""
        return device_of(self.array)

    @property
    def nbytes(self) -> int:
        """The size of the elements in bytes."""
        return self.size * self.dtype.itemsize

    # How it is differentiated

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to or through this tensor."""
        return self.node is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Make this tensor a leaf that receives a gradient, or a constant again."""
        if self.node is not None and self.node is not LEAF:
            if requires_grad:
                return self
            raise GradientError(
                "expected a leaf, got a tensor that was computed from others; use detach() for a "
                "constant copy of it"
            )
        if requires_grad:
            if self.dtype.kind not in "fc":
                raise DTypeError(
                    f"expected a floating or complex dtype for a tensor that requires grad, got "
                    f"{self.dtype}; convert it first, e.g. with .to(telegrad.float32)"
                )
            if self.is_inference() and not MODE.get().inference:
                raise GradientError(
                    "expected an ordinary tensor, got one made under inference_mode; clone() it "
                    "outside of inference_mode first"
                )
        self.node = LEAF if requires_grad else None
        return self

    @property
    def grad(self) -> "Tensor | None":
        """The accumulated gradient of a leaf (or of any tensor after ``retain_grad``)."""
        return None if self.meta is None else self.meta.grad

    @grad.setter
    def grad(self, value: "Tensor | None") -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                raise no_tensor(value, "as .grad", "a Tensor or None")
            check_like(value, self, ".grad", "its tensor")
        self.ensure_meta().grad = value

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    @property
    def grad_fn(self) -> Any:
        """The node that recorded this tensor; None for leaves and constants."""
        return None if self.node is None or self.node is LEAF else self.node.as_function()

    @property
    def is_leaf(self) -> bool:
        """Whether the user made this tensor, or nothing was recorded for it."""
        return self.node is None or self.node is LEAF

    @property
    def is_dual(self) -> bool:
        """Whether this tensor carries a tangent of a level that is still open."""
        return bool(self.tangents)

    def ensure_meta(self) -> AutogradMeta:
        """Return ``meta``, made when first needed."""
        meta: AutogradMeta | None = self.meta
        if meta is None:
            with _making:
                meta = self.meta = self.meta or AutogradMeta()
        return meta

    def is_inference(self) -> bool:
        """Say whether this tensor was made under ``inference_mode``."""
        return self.meta is not None and self.meta.inference

    def detach(self) -> "Tensor":
        """Return the value as a constant: without history and, as in PyTorch, without tangents."""
        return wrap(self.array)

    def backward(
        self,
        gradient: "Tensor | None" = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Add the gradients of this tensor to ``.grad`` of the leaves it was computed from.

        Arguments:
            gradient: A weight of this tensor's shape; only a scalar may go without.
            retain_graph: Whether the graph is kept for another pass; None for as `create_graph`.
            create_graph: Whether the gradients can be differentiated again.
            inputs: The tensors that get gradients; all leaves by default.
        """
        late_bound.backward(self, gradient, retain_graph, create_graph, inputs)

    def retain_grad(self) -> None:
        """Keep the gradient of this tensor in ``.grad`` although it is not a leaf."""
        if self.node is None:
            raise GradientError(
                "expected a tensor that requires grad, got a constant; there is no gradient to keep"
            )
        if self.node is LEAF:
            return
        here = weakref.ref(self)

        def retain(gradient: Any) -> Callable[[], None]:
            tensor = here()
            meta = AutogradMeta() if tensor is None else tensor.ensure_meta()
            shown = gradient if isinstance(gradient, Tensor) else wrap(gradient)
            # Passes of other threads may retain the same gradient.
            with _making:
                before = meta.grad
                meta.grad = after = shown if before is None else before + shown

            def take_back() -> None:
                if meta.grad is after:
                    meta.grad = before

            return take_back

        hooks_of(self.node).retain = retain

    @property
    def retains_grad(self) -> bool:
        """Whether ``retain_grad`` was called on this tensor."""
        hooks = None if self.is_leaf else self.node.hooks
        return hooks is not None and hooks.retain is not None

    def register_hook(self, hook: Callable[["Tensor"], "Tensor | None"]) -> Handle:
        """Call ``hook(gradient)`` when this tensor's gradient is complete; it may replace it."""
        if self.node is None:
            raise GradientError(
                "expected a tensor that requires grad, got a constant; no gradient will pass here"
            )
        return Handle(hooks_of(history_of(self)).tensor, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[["Tensor"], None]) -> Handle:
        """Call ``hook(tensor)`` after a pass has added to this leaf's ``.grad``."""
        if self.node is not LEAF:
            raise GradientError(
                "expected a leaf that requires grad; only leaves accumulate, see register_hook"
            )
        return Handle(hooks_of(self).accumulated, hook)

    @property
    def hooks(self) -> NodeHooks | None:
        """The hooks of a leaf, as the engine's protocol wants them."""
        return None if self.meta is None else self.meta.hooks

    @hooks.setter
    def hooks(self, value: NodeHooks) -> None:
        self.ensure_meta().hooks = value

    def before_capture(self, cotangent: Any, /) -> Any:
        """Run the hooks of a leaf on its gradient; the engine calls it."""
        return late_bound.run_on_value(hooks_of(self), cotangent)

    def before_run(self, cotangent: Any, /) -> Any:
        """Run the hooks of a leaf's node, where its gradient accumulates."""
        return late_bound.run_on_node(hooks_of(self), cotangent)

    def name(self) -> str:
        """Return what the engine calls a leaf."""
        return "AccumulateGrad"

    def as_input(self) -> tuple[AccumulateGrad, int]:
        """Return what ``next_functions`` shows for a leaf."""
        return AccumulateGrad(self), 0

    # How it looks to Python

    def __len__(self) -> int:
        if not self.ndim:
            raise DTypeError("expected a tensor with axes for len(), got a 0-d tensor")
        return self.shape[0]

    def __repr__(self) -> str:
        return text.tensor_text(self)

    def __format__(self, how: str) -> str:
        return text.formatted(self, how)

    __hash__ = object.__hash__

    def __reduce__(self) -> Any:
        if not self.is_leaf:
            raise GradientError(
                "expected a leaf or a constant to copy or pickle, got a tensor that was computed "
                "from others; detach() it first"
            )
        if self.is_dual:
            raise GradientError(
                "expected a tensor without tangents to copy or pickle, got one that carries some; "
                "clone() keeps them, detach() leaves them behind on purpose"
            )
        if is_cupy(self.array):
            return rebuild, (in_host_memory(self.array), self.requires_grad, self.device)
        return rebuild, (np.asarray(self.array), self.requires_grad)

    # Changing it

    def copy_(self, source: Any) -> Self:
        """Give this tensor the value of `source`, in its own memory where nobody else holds it."""
        xp = late_bound.namespace
        source = source if isinstance(source, Tensor) else xp.asarray(source)
        array = self.array
        if is_cupy(array) or is_cupy(source.array):
            source = xp.to_device(source, self.device)
        records = MODE.get().recording and (self.node is not None or source.node is not None)
        if records or self.tangents or source.tangents or not isinstance(array, np.ndarray):
            refuse_in_place(self, "copy_")
            value = xp.broadcast_to(xp.astype(source, self.dtype), self.shape)
            if records and self.node is not None:
                # What it was computed from shall get a gradient of zeros, rather than none.
                value = xp.index_set(wrap(array, self.node), value, index=...)
            self.rebind(value)
            return self
        if source.dtype != self.dtype or source.shape != self.shape:
            source = xp.broadcast_to(xp.astype(source, self.dtype, copy=False), self.shape)
        # Held by this tensor, and by nobody else.
        if array.base is None and sys.getrefcount(array) <= _HELD:
            np.copyto(array, source.array)
        else:
            # Filled first: the source may be this tensor, and another thread may read it.
            fresh = np.empty(array.shape, array.dtype)
            np.copyto(fresh, source.array)
            self.array = fresh
        return self

    def rebind(self, other: "Tensor") -> None:
        """Give this Tensor another's value and history, as in-place operators do.

        Where nothing is recorded, it keeps its own history, as in PyTorch: only the value changes.
        """
        self.array = other.array
        self.tangents = other.tangents
        if not MODE.get().recording:
            return
        if self.retains_grad:
            # From now on, the gradient to keep is that of the new value.
            hooks = self.node.hooks
            hooks_of(other.node).retain, hooks.retain = hooks.retain, None
        self.node = other.node


_new = object.__new__


def wrap(array: Any, node: Node | None = None, tangents: dict[Any, Tensor] | None = None) -> Tensor:
    """Return a Tensor around a raw array, without a copy or a check."""
    tensor = _new(Tensor)
    tensor.array = array
    tensor.node = node
    tensor.tangents = tangents
    tensor.meta = None
    return tensor


def history_of(x: Tensor) -> Node | None:
    """Return the node that gets gradients of `x`: `x` itself for a leaf, None for a constant."""
    return x if x.node is LEAF else x.node


def rebuild(array: Any, requires_grad: bool, device: str | None = None) -> Tensor:
    """Return a leaf or constant from a pickle."""
    # An array from a pickle has a dtype object of its own, which its results would have, too; the
    # fast paths compare identities with NumPy's own.
    own = array.astype(array.dtype.char)
    own = own if device is None else placed(own, device)
    return wrap(own, LEAF if requires_grad else None)


def refuse_in_place(tensor: Tensor, what: str) -> None:
    """Raise where an in-place change would change a leaf that is being differentiated."""
    if tensor.node is LEAF and MODE.get().recording:
        raise GradientError(
            f"expected a tensor that is not a leaf for {what}, got a leaf that requires grad; "
            "change it under telegrad.no_grad(), or use an operation that gives a new tensor"
        )


late_bound.tensor_type = Tensor
late_bound.wrap = wrap
