"""Leaves of modules that PyTorch replicates (``DistributedDataParallel``), in telegrad's passes.

PyTorch averages the gradients of such a module over its processes: the module's *reducer* has C++
hooks on each parameter's accumulation, which Python can't see, and reads the gradients in
``.grad``. So PyTorch's own engine accumulates them, which runs the reducer. In a distributed pass
``.grad`` is lent to the reducer: from when the pass reaches the module's first parameter until the
pass ends, ``.grad`` of all its parameters is the gradient in the context. The reducer waits for the
other processes, so it gets the gradients of a local pass only when that pass has sent all its
gradients to other workers, which then continue while it waits.
"""

import gc
from collections.abc import Mapping
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch.autograd.graph import GradientEdge
from torch.nn.modules.module import register_module_module_registration_hook
from torch.nn.parallel import DistributedDataParallel

from telegrad.distributed.parameter_lock import alone_with
from telegrad.errors import GradientError
from telegrad.interop.torch.bridge import accumulator_of
from telegrad.interop.torch.graph.pytorch_engine import run_backward

_PARAMETERS: dict[ref[DistributedDataParallel], frozenset[int]] = {}
"""The ids of each replicated module's parameters."""

_LENT: WeakKeyDictionary[DistributedDataParallel, "Lending"] = WeakKeyDictionary()


def _note(module: torch.nn.Module, name: str, inner: Any) -> None:
    if isinstance(module, DistributedDataParallel) and name == "module":
        _PARAMETERS[ref(module, _PARAMETERS.pop)] = frozenset(map(id, inner.parameters()))


def _find_those_before() -> None:
    """Note the modules made before this import; only the garbage collector lists them."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        for each in gc.get_objects():
            if issubclass(type(each), DistributedDataParallel):
                _note(each, "module", each.module)


def _note_copies() -> None:
    """Note copied and unpickled modules, too, whose submodules are not registered again.

    An unknown module would give the gradients of one process alone. PyTorch has no hook for this. A
    global forward hook would see them, but takes every module's calls off PyTorch's fast path: 3.2
    µs instead of 0.9 for an Identity.
    """
    set_state: Any = DistributedDataParallel.__setstate__

    @wraps(set_state)
    def set_state_and_note(module: DistributedDataParallel, state: Any) -> None:
        set_state(module, state)
        _note(module, "module", module.module)

    DistributedDataParallel.__setstate__ = set_state_and_note  # type: ignore[method-assign]


register_module_module_registration_hook(_note)
_note_copies()
_find_those_before()


def has_replicas() -> bool:
    """Tell whether some leaf may be a parameter of a replicated module."""
    return bool(_PARAMETERS)


def module_of(leaf: torch.Tensor) -> DistributedDataParallel | None:
    """Return the replicated module that has a leaf as a parameter, if any."""
    if not _PARAMETERS:
        return None
    found = [module for module, ids in list(_PARAMETERS.items()) if id(leaf) in ids]
    return found[0]() if found else None


def accumulate_replicated(
    module: DistributedDataParallel,
    gradients: Mapping[torch.Tensor, torch.Tensor],
    finished: set[DistributedDataParallel],
) -> None:
    """Add complete gradients to ``.grad`` through PyTorch, which averages after the last one.

    `finished` has the modules averaged in this pass: PyTorch would silently ignore more gradients.
    """
    leaves = list(gradients)
    if module in finished:
        raise GradientError(
            f"expected no more gradients of a DistributedDataParallel module once all that it "
            f"waited for had come, got one of a parameter of shape {tuple(leaves[0].shape)}: with "
            "find_unused_parameters=True the module takes a parameter for unused that its own "
            "graph does not lead to, such as one behind a remote call that the module makes; "
            "leave find_unused_parameters out, or make the call outside of the module"
        )
    if module.static_graph:
        raise GradientError(
            "expected a DistributedDataParallel module without static_graph in a pass of telegrad: "
            "its reducer waits for the end of a pass of PyTorch's; leave static_graph out"
        )
    with alone_with(module.module.parameters()):
        # The tensors' own hooks have run already.
        hooks = [leaf._backward_hooks for leaf in leaves]
        try:
            for leaf in leaves:
                leaf._backward_hooks = None
            given = tuple(gradients.values())
            recorded = torch.is_grad_enabled() and any(each.requires_grad for each in given)
            edges = tuple(GradientEdge(accumulator_of(leaf), 0) for leaf in leaves)
            # keep_graph=False, create_graph, no inputs, allow_unreachable, accumulate_grad.
            run_backward(edges, given, False, recorded, (), True, True)
        finally:
            for leaf, before in zip(leaves, hooks):
                leaf._backward_hooks = before
        averages = module.find_unused_parameters and module.require_forward_param_sync
        if averages and not _is_waiting(module):
            finished.add(module)


def _is_waiting(module: DistributedDataParallel) -> bool:
    """Tell whether the reducer has received some of its expected gradients, but not all."""
    try:
        module.reducer._check_reducer_finalized()
    except RuntimeError:
        return True
    return False


class Lending:
    """``.grad`` of one module's parameters, lent to its reducer for one pass."""

    def __init__(self, module: DistributedDataParallel, context: Mapping[Any, Any]) -> None:
        if _LENT.setdefault(module, self) is not self:
            raise GradientError(
                "expected one pass at a time through a DistributedDataParallel module, got another "
                "before the first had ended: the module can't tell their gradients apart"
            )
        self.module = module
        self.waiting: dict[torch.Tensor, torch.Tensor] = {}
        """The gradients that the reducer has not been given yet."""
        self._finished: set[DistributedDataParallel] = set()
        self._before: dict[torch.Tensor, torch.Tensor | None] = {}
        for leaf in module.module.parameters():
            self._before[leaf] = leaf.grad
            earlier = context.get(leaf)
            # A copy: the reducer writes into it, and the context must not change if the pass fails.
            leaf.grad = None if earlier is None else earlier.clone()

    @property
    def is_waiting(self) -> bool:
        """Whether there are gradients for the reducer."""
        return bool(self.waiting)

    def run(self) -> None:
        """Give the reducer the waiting gradients; if they are the last, it averages here."""
        given, self.waiting = self.waiting, {}
        groups = [given] if given else []
        if self.module.find_unused_parameters:
            # One by one, to find one whose parameter the reducer has taken for unused by then.
            groups = [{leaf: gradient} for leaf, gradient in given.items()]
        for group in groups:
            accumulate_replicated(self.module, group, self._finished)

    def give_back(self) -> dict[Any, Any]:
        """Restore ``.grad``; return the gradients that the reducer left there."""
        found: dict[Any, Any] = {}
        for leaf, before in self._before.items():
            if leaf.grad is not None:
                is_buckets = self.module.gradient_as_bucket_view
                found[leaf] = leaf.grad.clone() if is_buckets else leaf.grad
            leaf.grad = before
        _LENT.pop(self.module, None)
        return found


def lend(
    module: DistributedDataParallel,
    leaf: torch.Tensor,
    gradient: torch.Tensor,
    context: Mapping[Any, Any],
    lent: dict[Any, Any],
) -> None:
    """Keep a gradient for the module's reducer; `lent` has the pass's lendings by module."""
    if module not in lent:
        lent[module] = Lending(module, context)
    lent[module].waiting[leaf] = gradient
