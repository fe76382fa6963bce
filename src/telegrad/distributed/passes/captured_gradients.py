"""The gradients that ``grad`` returns: of inputs on this worker, and on others through RRefs.

The local pass on each input's worker captures and keeps the input's gradient. Before the commit,
the worker that started the pass collects the gradients, or RRefs to them.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from telegrad.distributed import frameworks
from telegrad.distributed.contexts.context import BACKWARD_PHASE, CURRENT, Context, ProgramPoint
from telegrad.distributed.current import autograd_of
from telegrad.distributed.passes.local_pass import LocalPass
from telegrad.errors import DTypeError
from telegrad.rpc.calls.call import Call
from telegrad.rpc.current import current_worker
from telegrad.rpc.references.rref import RRef
from telegrad.rpc.wire.functions import expose
from telegrad.tensors import Tensor
from telegrad.tensors.late_bound import late_bound
from telegrad.tensors.recording.modes import Recording


def targets_of(inputs: list[Any]) -> tuple[dict[Any, int], list[tuple[int, int]]]:
    """Return the numbered nodes of the inputs here, and (owner, reference) of each remote one."""
    targets: dict[Any, int] = {}
    remote: list[tuple[int, int]] = []
    for i, x in enumerate(inputs):
        if isinstance(x, RRef):
            remote.append((x.owner().id, x._rref))
        elif isinstance(x, Tensor) or frameworks.framework_of(x) is not None:
            targets.setdefault(frameworks.node_of_input(x, f"inputs[{i}]"), len(targets))
        else:
            raise DTypeError(
                f"expected a Tensor or an RRef to one as inputs[{i}], got {type(x).__name__}"
            )
    return targets, remote


def collect(
    context: Context,
    local_pass: LocalPass,
    inputs: list[Any],
    targets: dict[Any, int],
    how: tuple[bool, bool, bool],
) -> list[Any]:
    """Return the gradient captured for each input; `how` is for ``_captured_here``."""
    # This point comes after the calls that hooks of the pass made: see `LocalPass`.
    token = CURRENT.set(
        ProgramPoint(context, (BACKWARD_PHASE, *local_pass.plan.path, BACKWARD_PHASE + 2))
    )
    # Recorded whatever the caller's mode is, so that owners learn the context, and a recorded
    # gradient arrives with its history.
    scope: AbstractContextManager[Any] = Recording(True)
    asked: list[Any] = []
    try:
        with frameworks.default_modes(scope):
            for x in inputs:
                if isinstance(x, RRef):
                    args = (context.id, local_pass.plan.pass_id, x._rref, *how)
                    asked.append(current_worker().rpc_async(x.owner(), _captured_here, args))
                else:
                    node = frameworks.node_of_input(x, "inputs")
                    asked.append(local_pass.captured.get(targets[node]))
            return [each.wait() if isinstance(each, Call) else each for each in asked]
    finally:
        CURRENT.reset(token)


def make_known(references: Sequence[RRef]) -> None:
    """Wait until owners have made the values whose ``remote`` calls may still be under way.

    A pass names references by number, and may reach an owner before the ``remote`` call does.
    """
    worker = current_worker()
    early = [x for x in references if x._fork is not None and worker.references.is_early(x._fork)]
    # Not recorded: whether this call is made depends on timing, and paths must not depend on it.
    token = CURRENT.set(None)
    try:
        for call in [worker.rpc_async(x.owner(), _wait_for, (x,)) for x in early]:
            call.wait()
    finally:
        CURRENT.reset(token)


@expose
def _wait_for(reference: RRef) -> None:
    """Answer when the value has been made; sending the RRef makes the owner know it."""
    reference.local_value()


@expose
def _captured_here(
    context_id: int,
    pass_id: int,
    reference: int,
    as_rref: bool,
    materialize: bool,
    create_graph: bool,
) -> Any:
    """Return the gradient that the local pass captured for a reference, or None or zeros."""
    local_pass = autograd_of(current_worker()).contexts.get(context_id).passes.get(pass_id)
    gradient = None if local_pass is None else local_pass.captured_for(reference)
    if gradient is None:
        # Zeros are made here, at the value: fetching it would add a message to the context. The
        # value is also checked here, since the pass may never have come to this worker.
        value = current_worker().references.value(reference).wait()
        frameworks.node_of_referent(value)
        gradient = zeros_for(value, create_graph) if materialize else None
    return current_worker().make_rref(gradient) if as_rref and gradient is not None else gradient


def zeros_for(x: Any, create_graph: bool) -> Any:
    """Return the gradient of an input that no root depends on."""
    owner = None if isinstance(x, Tensor) else frameworks.framework_of(x)
    zeros = (late_bound.namespace if owner is None else owner.namespace).zeros_like(x)
    return zeros.requires_grad_() if create_graph else zeros
