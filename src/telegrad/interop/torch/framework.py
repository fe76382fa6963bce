"""PyTorch as a `Framework` of telegrad's distributed autograd; importing this module registers it.

A worker imports it when it first meets a PyTorch value (``distributed/worker_autograd.py``). There
is one for each process, since types belong to the process.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, cast

import numpy as np
import torch

from telegrad.autograd.roots import Start
from telegrad.distributed import frameworks
from telegrad.distributed.contexts.dual_levels import LevelRegistry
from telegrad.distributed.contexts.tensor_kind import CarriedDual, flatten, through
from telegrad.errors import DTypeError, GradientError
from telegrad.interop.torch.bridge import Crossing, Entry, entry_of, from_torch, join
from telegrad.interop.torch.devices import placement
from telegrad.interop.torch.graph import partial_pass, successors
from telegrad.interop.torch.graph.accumulation import are_plain, completed
from telegrad.interop.torch.graph.cut import cut
from telegrad.interop.torch.graph.ends import Tap, WantedLeaf
from telegrad.interop.torch.graph.replicas import has_replicas, lend, module_of
from telegrad.interop.torch.modes import default_modes, is_recording, run_ordinarily
from telegrad.interop.torch.values import duals, tensors, views
from telegrad.interop.torch.values.arrays import CPU, is_transformed
from telegrad.interop.torch.values.levels import is_open, make_dual, tangent_of
from telegrad.rpc.membership.environment import usable_cores
from telegrad.rpc.worker import Worker
from telegrad.tensors import Tensor, wrap
from telegrad.tensors.recording.modes import MODE


class Torch(frameworks.Framework):
    """See ``frameworks.Framework``."""

    type: type = torch.Tensor
    namespace = torch
    devices = placement
    parameters = successors
    is_recording = staticmethod(is_recording)
    cut = staticmethod(cut)
    default_modes = staticmethod(default_modes)

    def adopted(self, value: torch.Tensor, is_gradient: bool) -> Tensor:
        if not is_gradient:
            # A pass may start in no-grad mode, as PyTorch's own passes may.
            return wrap(_facts_alone(value), entry_of(value, keeps=False))
        dense = value if value.layout is torch.strided else value.to_dense()
        return from_torch((dense.float() if dense.dtype is torch.bfloat16 else dense).cpu())

    def start(self, gradient: torch.Tensor, root: Any) -> Start | None:
        is_there = gradient.is_cuda and isinstance(root, torch.Tensor) and root.is_cuda
        is_plain = not is_transformed(gradient) and tangent_of(gradient) is None
        if not is_there or not is_plain or _dtype_of_cotangents(gradient.dtype) is None:
            return None
        is_recorded = MODE.get().recording and torch.is_grad_enabled()
        given = gradient if is_recorded else gradient.detach()
        # A copy: the pass may keep the tensor, or add to it in place, and so may the caller.
        own = run_ordinarily(given.clone if given.layout is torch.strided else given.to_dense)
        return Start(wrap(_facts_alone(gradient)), wrap(own))

    def leave(
        self, values: list[Any], worker: Worker, levels: LevelRegistry, to: str, is_recorded: bool
    ) -> list[Any]:
        # Asked once: tangents of a level that opens later are not in these values.
        may_be_dual = is_open()
        given = values
        if is_recorded:
            for i, value in enumerate(values):
                if isinstance(value, torch.Tensor):
                    # Before anything is recorded: what can't be sent leaves no message behind.
                    tensors.check(value)
                    if given is values:
                        given = values.copy()
                    if may_be_dual:
                        given[i], values[i] = _stand_in(value), _detached(value)
                    elif not value.requires_grad:
                        given[i] = _CONSTANT
                    else:
                        given[i] = wrap(None, _history_of(value))
                        if type(value) is not _PARAMETER:
                            # Only its values are read, and `data` skips the dispatcher.
                            values[i] = value.data
        has_own = placement.has_own(values)
        if has_own and given is values:
            given = values.copy()
        if may_be_dual:
            duals.carry(values, levels, to)
        if has_own or _is_cuda_in_use():
            through(values, lambda each: placement.carry(each, worker, to, is_recorded))
        if may_be_dual and is_recorded:
            for value, stand_in in zip(values, given):
                is_stand_in = stand_in is not value and stand_in.array is None
                if is_stand_in and not isinstance(value, CarriedDual):
                    # The level may have closed: a tangent that is not sent is not recorded.
                    stand_in.tangents = None
        if len(values) > 1:
            views.carry(values)
        return given

    def arrive(self, values: list[Any], worker: Worker, frm: str) -> Callable[[], None] | None:
        if _CARRIERS.isdisjoint(map(type, values)):
            return None
        views.land(values)
        return through(values, lambda each: placement.arrive(each, worker, frm))

    def join(self, value: torch.Tensor, stand_in: Tensor | None) -> Any:
        if stand_in is None:
            return _detached(value)
        # The level may have closed since the value arrived.
        if stand_in.tangents and (tangent := tangent_of(value)) is not None:
            return _joined_dual(value, tangent, stand_in)
        is_fresh = type(value) is torch.Tensor and not value.requires_grad
        return join(value if is_fresh else value.detach(), Crossing(stand_in.node))

    def node(self, value: torch.Tensor, name: str) -> WantedLeaf | Tap:
        if not value.requires_grad:
            raise GradientError(
                f"expected torch tensors that require grad as {name}, got one that does not; call "
                "requires_grad_() on it before computing with it"
            )
        return WantedLeaf(value) if value.is_leaf else Tap(value, (value.grad_fn, value.output_nr))

    def at_once(self) -> int:
        # Each region's kernels use as many threads as PyTorch is set to. On a GPU, regions would
        # only wait for each other.
        return 1 if _is_cuda_in_use() else usable_cores() // torch.get_num_threads()

    def completed(
        self,
        leaves: Sequence[torch.Tensor],
        gradients: Sequence[torch.Tensor | None],
        context: Mapping[Any, Any],
        loans: dict[Any, Any],
    ) -> dict[Any, Any]:
        found: dict[Any, Any] = dict(zip(leaves, gradients))
        if not has_replicas() and are_plain(leaves, gradients):
            return found
        for leaf, gradient in zip(leaves, gradients):
            if gradient is not None:
                found[leaf] = _completed(leaf, gradient, context, loans)
        return {leaf: gradient for leaf, gradient in found.items() if gradient is not None}


_PARAMETER: Final = torch.nn.Parameter
_is_cuda_in_use: Any = torch.cuda.is_initialized
_CARRIERS: Final = frozenset(
    (views.CarriedView, placement.Arriving, duals.CarriedTorchDual, CarriedDual)
)
"""The types that stand for tensors in a message; `arrive` replaces them by tensors."""


_CONSTANT: Final = wrap(None)
"""The stand-in for every tensor without history or tangent; it is never changed."""


def _stand_in(value: torch.Tensor) -> Tensor:
    """Return a Tensor without an array, with the history and tangent of `value`."""
    stand_in = wrap(None, _history_of(value))
    tangent = tangent_of(value)
    if tangent is not None:
        tensors.check(tangent)
        stand_in.tangents = duals.beside(_stand_in(tangent))
    return stand_in


def _history_of(value: torch.Tensor) -> Entry | None:
    """Return the entry for gradients of a tensor that is sent; None if it has no graph."""
    entry = entry_of(value, keeps=False) if torch.is_grad_enabled() else None
    if entry is not None and _dtype_of_cotangents(entry.dtype) is None:
        raise DTypeError(
            f"expected a dtype whose gradients can be sent, got {value.dtype} on a torch tensor "
            "that requires grad"
        )
    return entry


def _detached(value: torch.Tensor) -> torch.Tensor:
    tangent = tangent_of(value)
    if tangent is not None:
        return cast(torch.Tensor, make_dual(value.detach(), tangent.detach()))
    # A Parameter has no history, and stays one so that a module that is sent keeps its parameters.
    is_plain = not value.requires_grad or type(value) is _PARAMETER
    return value if is_plain else value.detach()


def _joined_dual(value: torch.Tensor, tangent: torch.Tensor, stand_in: Tensor) -> Any:
    parts = [value.detach(), tangent.detach()]
    nodes = [each.node for each in flatten(stand_in)]
    made = [
        part if node is None else join(part, Crossing(node)) for part, node in zip(parts, nodes)
    ]
    return make_dual(*made)


def _completed(
    leaf: torch.Tensor, gradient: torch.Tensor, context: Mapping[Any, Any], loans: dict[Any, Any]
) -> torch.Tensor | None:
    if not leaf.is_leaf:
        return gradient
    module = module_of(leaf)
    if module is None:
        return completed(leaf, gradient)
    lend(module, leaf, gradient, context, loans)
    return None


def _facts_alone(value: torch.Tensor) -> "np.ndarray[Any, Any]":
    """Return an array with the value's shape and its cotangents' dtype, and zero strides."""
    shape = tuple(value.shape)
    zero = _zero_of_cotangents(value.dtype)
    return np.ndarray(shape, zero.dtype, zero.data, strides=(0,) * len(shape)) if shape else zero


@cache
def _zero_of_cotangents(dtype: torch.dtype) -> "np.ndarray[Any, Any]":
    return np.zeros((), _dtype_of_cotangents(dtype) or np.float32)


@cache
def _dtype_of_cotangents(dtype: torch.dtype) -> "np.dtype[Any] | None":
    plain = torch.float32 if dtype is torch.bfloat16 else dtype
    try:
        # Outside of the current thread's modes, since the answer is cached for all threads.
        zero = run_ordinarily(lambda: torch.zeros((), dtype=plain, device=CPU).numpy())
    except TypeError:
        return None
    found: np.dtype[Any] = zero.dtype
    return found


# The framework first: once the serialiser knows torch tensors, passes must know them too.
frameworks.enlist(Torch())
partial_pass.install()
tensors.register()
placement.register()
duals.register()
views.register()
