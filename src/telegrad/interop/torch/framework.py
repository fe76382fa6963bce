"""What PyTorch does for telegrad's distributed autograd; importing this makes it known.

Loaded when a worker first meets a value of PyTorch's (``distributed/worker_autograd.py``). Each
process has one: types are the process's.
"""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, Final, cast

import numpy as np
import torch

from telegrad.distributed import frameworks
from telegrad.distributed.contexts.dual_levels import LevelRegistry
from telegrad.distributed.contexts.tensor_kind import flatten
from telegrad.errors import DTypeError, GradientError
from telegrad.interop.torch.bridge import Crossing, entry_of, from_torch, join
from telegrad.interop.torch.graph.accumulation import accumulate, completed
from telegrad.interop.torch.graph.cut import cut
from telegrad.interop.torch.graph.ends import Tap, WantedLeaf
from telegrad.interop.torch.graph.replicas import lend, module_of
from telegrad.interop.torch.modes import (
    is_ordinary,
    is_recording,
    ordinarily,
    run_ordinarily,
)
from telegrad.interop.torch.values import devices, duals, tensors
from telegrad.interop.torch.values.arrays import CPU
from telegrad.interop.torch.values.levels import is_open, make_dual, tangent_of
from telegrad.rpc.membership.environment import usable_cores
from telegrad.rpc.worker import Worker
from telegrad.tensors import Tensor, wrap
from telegrad.tensors.forward.levels import Level

__all__ = ["Torch"]


class Torch:
    """See ``foreign.Framework``."""

    type: type = torch.Tensor
    accumulate = staticmethod(accumulate)
    cut = staticmethod(cut)
    is_recording = staticmethod(is_recording)
    run = staticmethod(run_ordinarily)
    zeros_like = staticmethod(torch.zeros_like)

    def root(self, value: torch.Tensor) -> Tensor:
        # As PyTorch's own passes, one may start where nothing is recorded.
        return wrap(_facts_alone(value), entry_of(value, keeps=False))

    def stand_in(self, value: torch.Tensor) -> Tensor:
        # Before anything is recorded of it: what can't travel leaves no message behind.
        tensors.check(value)
        entry = entry_of(value, keeps=False) if torch.is_grad_enabled() else None
        if entry is not None and entry.dtype not in _CARRIED:
            _check_recorded(value)
        if not is_open():
            return wrap(None, entry)
        tangent = tangent_of(value)
        return wrap(None, entry, _beside(None if tangent is None else self.stand_in(tangent)))

    def empty_stand_in(self, value: torch.Tensor) -> Tensor:
        if not is_open():
            return wrap(None)
        return wrap(None, None, _beside(None if tangent_of(value) is None else wrap(None)))

    def joined(self, value: torch.Tensor, stand_in: Tensor) -> Any:
        if stand_in.tangents:
            return self._joined_dual(value, stand_in)
        is_fresh = type(value) is torch.Tensor and not value.requires_grad
        return join(value if is_fresh else value.detach(), Crossing(stand_in.node))

    def _joined_dual(self, value: torch.Tensor, stand_in: Tensor) -> Any:
        parts = [value.detach(), tangent_of(value).detach()]
        nodes = [each.node for each in flatten(stand_in)]
        made = [
            part if node is None else join(part, Crossing(node)) for part, node in zip(parts, nodes)
        ]
        return make_dual(*made)

    def carry(self, values: list[Any], worker: Worker, book: LevelRegistry, to: str) -> None:
        if _is_cuda_in_use():
            devices.carry(values, worker, to)
        if is_open():
            duals.carry(values, book, to)

    def serving(self, scope: AbstractContextManager[Any]) -> AbstractContextManager[Any]:
        return scope if is_ordinary() else ordinarily(scope)

    def at_once(self) -> int:
        # Each piece has as many threads for its kernels as PyTorch is told to use. On a GPU
        # pieces would only wait for each other.
        return 1 if _is_cuda_in_use() else usable_cores() // torch.get_num_threads()

    def detached(self, value: torch.Tensor) -> torch.Tensor:
        if is_open() and (tangent := tangent_of(value)) is not None:
            return cast(torch.Tensor, make_dual(value.detach(), tangent.detach()))
        # A Parameter has no history: it stays what it is, so that a module keeps its parameters.
        is_plain = not value.requires_grad or type(value) is torch.nn.Parameter
        return value if is_plain else value.detach()

    def as_gradient(self, value: torch.Tensor) -> Tensor:
        dense = value if value.layout is torch.strided else value.to_dense()
        return from_torch((dense.float() if dense.dtype is torch.bfloat16 else dense).cpu())

    def completed(
        self,
        leaf: torch.Tensor,
        gradient: torch.Tensor,
        context: Mapping[Any, Any],
        lent: dict[Any, Any],
    ) -> torch.Tensor | None:
        if not leaf.is_leaf:
            return gradient
        module = module_of(leaf)
        if module is None:
            return completed(leaf, gradient)
        lend(module, leaf, gradient, context, lent)
        return None

    def changed(self, leaf: torch.Tensor) -> None:
        # PyTorch's fused optimisers don't tell.
        torch.autograd.graph.increment_version(leaf)

    def named_parameters(self, value: Any) -> Iterable[tuple[str, torch.Tensor]]:
        if not isinstance(value, torch.nn.Module):
            return ()
        try:
            return list(value.named_parameters())
        except Exception:
            return ()  # A module of which some part is elsewhere refuses that.

    def target(self, value: torch.Tensor, name: str) -> WantedLeaf | Tap:
        if not value.requires_grad:
            raise GradientError(
                f"expected torch tensors that require grad as {name}, got one that does not; call "
                "requires_grad_() on it before computing with it"
            )
        return WantedLeaf(value) if value.is_leaf else Tap(value, (value.grad_fn, value.output_nr))


_is_cuda_in_use: Any = torch.cuda.is_initialized
_CARRIED: Final = frozenset((torch.float32, torch.float64))
"""The usual dtypes of gradients, which can travel."""
_SOME_LEVEL: Final = Level()
"""The level of all tangents of stand-ins: only the order of levels matters, and there is one."""


def _beside(tangent: Tensor | None) -> dict[Any, Tensor] | None:
    return None if tangent is None else {_SOME_LEVEL: tangent}


def _check_recorded(value: torch.Tensor) -> None:
    """Raises for a tensor that requires grad and whose gradients can't travel."""
    if _dtype_of_cotangents(value.dtype) is None:
        raise DTypeError(
            f"expected a dtype whose gradients can travel, got {value.dtype} on a torch tensor "
            "that requires grad"
        )


def _facts_alone(value: torch.Tensor) -> "np.ndarray[Any, Any]":
    """An array of the value's shape and of the dtype of its cotangents, which takes no memory."""
    shape = tuple(value.shape)
    zero = _zero_of_cotangents(value.dtype)
    return np.ndarray(shape, zero.dtype, zero.data, strides=(0,) * len(shape)) if shape else zero


@cache
def _zero_of_cotangents(dtype: torch.dtype) -> "np.ndarray[Any, Any]":
    return np.zeros((), _dtype_of_cotangents(dtype) or np.float32)


@cache
def _dtype_of_cotangents(dtype: torch.dtype) -> "np.dtype[Any] | None":
    try:
        plain = torch.float32 if dtype is torch.bfloat16 else dtype
        found: np.dtype[Any] = torch.zeros((), dtype=plain, device=CPU).numpy().dtype
    except TypeError:
        return None
    return found


# First: as soon as the serialiser knows torch tensors, a pass must know them too.
frameworks.enlist(Torch())
tensors.register()
devices.register()
duals.register()
