"""Leaves of modules that PyTorch replicates (``DistributedDataParallel``), in telegrad's passes.

PyTorch averages the gradients of such a module over its processes: its *reducer* hangs on the
accumulation of each parameter, in C++, where nobody sees it, and finds the gradients in ``.grad``.
So they are accumulated by PyTorch's own engine, which runs the reducer. In a distributed pass
``.grad`` is lent to it: from the first parameter of the module that the pass reaches until the pass
has ended, ``.grad`` of all of them is the gradient in the context. The reducer waits for the other
processes, so it gets the gradients of a local pass when what that pass gives to other workers has
left: they go on while it waits.
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
"""The ids of the parameters of each replicated module there is."""

_LENT: WeakKeyDictionary[DistributedDataParallel, "Lending"] = WeakKeyDictionary()


def _note(module: torch.nn.Module, name: str, inner: Any) -> None:
    if isinstance(module, DistributedDataParallel) and name == "module":
        _PARAMETERS[ref(module, _PARAMETERS.pop)] = frozenset(map(id, inner.parameters()))


def _find_those_before() -> None:
    """Note the modules that were made before this was imported: nothing else lists them."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        for each in gc.get_objects():
            if issubclass(type(each), DistributedDataParallel):
                _note(each, "module", each.module)


def _note_copies() -> None:
    """Have copies and those from pickles noted as well: they come with their parts, which nobody
    registers. Unknown, they would give gradients of one process.

    PyTorch has no hook for that. A global hook of every module's forward would see them all, but
    takes each call of each module off PyTorch's fast path: 3.2 µs instead of 0.9 for an Identity.
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
    """Return the replicated module that a leaf is a parameter of."""
    if not _PARAMETERS:
        return None
    found = [module for module, ids in list(_PARAMETERS.items()) if id(leaf) in ids]
    return found[0]() if found else None


def accumulate_replicated(
    module: DistributedDataParallel,
    gradients: Mapping[torch.Tensor, torch.Tensor],
    finished: set[DistributedDataParallel],
) -> None:
    """Add whole gradients to ``.grad`` as PyTorch does: with the last one come the averages.

    `finished` has the modules whose averages have come in this pass: PyTorch would take nothing
    more, and not say so.
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
        # The hooks of the tensors themselves have run.
        hooks = [leaf._backward_hooks for leaf in leaves]
        try:
            for leaf in leaves:
                leaf._backward_hooks = None
            given = tuple(gradients.values())
            recorded = torch.is_grad_enabled() and any(each.requires_grad for each in given)
            edges = tuple(GradientEdge(accumulator_of(leaf), 0) for leaf in leaves)
            # By position: not keep_graph, whether it is recorded, to all ends, which accumulate.
            run_backward(edges, given, False, recorded, (), True, True)
        finally:
            for leaf, before in zip(leaves, hooks):
                leaf._backward_hooks = before
        averages = module.find_unused_parameters and module.require_forward_param_sync
        if averages and not _is_waiting(module):
            finished.add(module)


def _is_waiting(module: DistributedDataParallel) -> bool:
    """Tell whether the reducer has had some of the gradients that it expects, and not all."""
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
        """The gradients that the reducer is still to be given."""
        self._finished: set[DistributedDataParallel] = set()
        self._before: dict[torch.Tensor, torch.Tensor | None] = {}
        for leaf in module.module.parameters():
            self._before[leaf] = leaf.grad
            earlier = context.get(leaf)
            # A copy: the reducer writes into it, and the pass may fail.
            leaf.grad = None if earlier is None else earlier.clone()

    @property
    def is_waiting(self) -> bool:
        """Whether there is something for the reducer."""
        return bool(self.waiting)

    def run(self) -> None:
        """Give the reducer what has come; return with the averages if that was all."""
        given, self.waiting = self.waiting, {}
        groups = [given] if given else []
        if self.module.find_unused_parameters:
            # One by one: so one that the reducer has taken for unused by then is seen.
            groups = [{leaf: gradient} for leaf, gradient in given.items()]
        for group in groups:
            accumulate_replicated(self.module, group, self._finished)

    def give_back(self) -> dict[Any, Any]:
        """Put ``.grad`` back; return what the reducer left there."""
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
    """Keep a gradient for the reducer, beside those in the context; `lent` is the pass's."""
    if module not in lent:
        lent[module] = Lending(module, context)
    lent[module].waiting[leaf] = gradient
