"""Derivatives of programs that run on several workers.

This module has the names and the meaning of ``torch.distributed.autograd``, and more: any root, any
order, chosen inputs, and passes that are exact and end also if the result of a call was not used.
``README.md`` beside this file describes the algorithm.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from telegrad.autograd.roots import checked_roots, listed
from telegrad.distributed import frameworks
from telegrad.distributed.contexts.context import CURRENT, Context, ProgramPoint
from telegrad.distributed.current import autograd_of
from telegrad.distributed.passes.captured_gradients import (
    collect,
    make_known,
    targets_of,
    zeros_for,
)
from telegrad.distributed.passes.local_pass import LocalPass
from telegrad.distributed.tools.gradient_summary import gradients
from telegrad.distributed.tools.graph_drawing import draw
from telegrad.errors import ContextError, DTypeError, GradientError, UsageError
from telegrad.rpc.current import current_worker
from telegrad.rpc.names import COUNTER_BITS
from telegrad.rpc.references.rref import RRef
from telegrad.rpc.wire.functions import expose
from telegrad.tensors import Tensor

if TYPE_CHECKING:
    from telegrad.distributed.worker_autograd import WorkerAutograd

__all__ = [
    "DistAutogradContext",
    "backward",
    "context",
    "draw",
    "get_gradients",
    "grad",
    "gradients",
]


class context:
    """Open a new context, which records the remote calls made inside; yield its id.

    Contexts don't nest. Open one for each step: leaving it frees all that it recorded.

    Examples:
        >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
        >>> with dist_autograd.context() as context_id:
        ...     dist_autograd.backward(context_id, [rpc.rpc_sync("ps", tg.square, (x,)).sum()])
        ...     print(dist_autograd.get_gradients(context_id)[x])
        tensor([2., 4.])
    """

    __slots__ = ("_here", "_id", "_token")

    def __repr__(self) -> str:
        if not hasattr(self, "_id"):
            return "<context: not entered>"
        state = "released" if self._here.contexts.find(self._id) is None else "open"
        return f"<context {self._id}: {state}>"

    def __enter__(self) -> int:
        current = CURRENT.get()
        if current is not None and not current.context.released:
            raise ContextError(
                f"expected no context to be open here, but {current.context.id} is, and contexts "
                "don't nest; leave it before opening another"
            )
        self._here = here = _here()
        made = here.contexts.new(here.worker.next_id())
        self._token = CURRENT.set(ProgramPoint(made, ()))
        self._id = made.id
        return made.id

    def __exit__(self, *exception: object) -> None:
        CURRENT.reset(self._token)
        self._here.leases.release(self._id)


def backward(
    context_id: int,
    # Optional, so that `backward([loss])` raises an error that asks for the id.
    roots: Tensor | Sequence[Tensor] = (),
    retain_graph: bool | None = None,
    *,
    grad_tensors: Any = None,
    create_graph: bool = False,
    inputs: Any = None,
    mode: str = "smart",
) -> None:
    """Run the backward pass over all workers that took part; return when it has ended.

    Gradients of leaves go to the context, on the worker of each leaf; see ``get_gradients``.

    Arguments:
        context_id: The id from ``with context() as context_id``.
        roots: Tensors of this worker.
        retain_graph: Whether to keep the graph for another pass; None for as `create_graph` says.
        grad_tensors: A weight for each root, of the root's shape; only scalars may have None.
        create_graph: Whether the gradients can be differentiated again.
        inputs: The tensors of this worker that receive a gradient; None for all leaves.
        mode: "smart", or "fast" to raise an error if a call's result was not used.

    Raises:
        ContextError: If the context is not live, or the roots were recorded in another.
        UsageError: If arguments don't fit together.
        GradientError: If a root does not require grad, or with "fast", if a call was not used.
        WorkerLost: If a worker that took part was lost.
        Exception: Any failure on any worker, with its own type and a note that names the worker.
            If a pass raises, no worker keeps any of its gradients.

    Examples:
        >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
        >>> with dist_autograd.context() as context_id:
        ...     dist_autograd.backward(context_id, [rpc.rpc_sync("ps", tg.exp, (x,)).sum()])
        ...     print(dist_autograd.get_gradients(context_id)[x])
        tensor([2.7183, 7.3891])
    """
    here = _here()
    found = here.contexts.get(context_id)
    if retain_graph is not None and not isinstance(retain_graph, int):
        # torch.autograd.backward takes the gradients of its roots in this position.
        raise UsageError(
            f"expected True or False as retain_graph, got {type(retain_graph).__name__}; gradients "
            "of the roots are given by name, grad_tensors=..."
        )
    weights = None if grad_tensors is None else frameworks.starts(grad_tensors, roots)
    chosen_roots = listed(roots, "roots", frameworks.adopted)
    starts = checked_roots(chosen_roots, weights, "grad_tensors", create_graph)
    targets = None
    if inputs is not None:
        chosen = frameworks.listed_inputs(inputs)
        if not chosen:
            raise UsageError("expected at least one tensor in inputs, got an empty sequence")
        targets = {frameworks.node_of_input(x, "inputs"): x for x in chosen}
    here.coordinator.run(
        found,
        starts,
        retain_graph=retain_graph,
        create_graph=create_graph,
        targets=targets,
        mode=mode,
        finish=None if targets is None else _keep_captured,
    )


def _keep_captured(local_pass: LocalPass) -> None:
    for x, gradient in local_pass.captured.items():
        local_pass.stage(x, gradient)


def get_gradients(context_id: int) -> Mapping[Tensor, Tensor]:
    """Return the gradients of this worker's leaves in a context, by leaf; wait for running passes.

    The gradients of another worker's leaves are on that worker. The KeyError for a tensor without a
    gradient says why it has none.

    Raises:
        ContextError: If there is no such context.
        WorkerLost: If this worker was frozen or cut off for so long that others took it for lost
            and dropped their gradients.

    Examples:
        >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
        >>> with dist_autograd.context() as context_id:
        ...     dist_autograd.backward(context_id, [rpc.rpc_sync("ps", tg.sum, (x,))])
        ...     print(dist_autograd.get_gradients(context_id)[x])
        tensor([1., 1.])
    """
    here = _here()
    found = here.contexts.get(context_id)
    gradients = found.committed_gradients()
    here.leases.check(found)
    # Checked again: the context, with its gradients, may have been released during the wait.
    here.contexts.get(context_id)
    return gradients


def grad(
    context_id: int,
    outputs: Tensor | Sequence[Tensor],
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
    materialize_grads: bool = False,
    *,
    mode: str = "smart",
    as_rrefs: bool = False,
) -> tuple[Any, ...]:
    """Return the gradient of the outputs' sum for each input; the context keeps none of them.

    Arguments:
        context_id: The id from ``with context() as context_id``.
        outputs: Tensors of this worker.
        inputs: Tensors of this worker, or RRefs to tensors on other workers.
        grad_outputs: A weight for each output, of the output's shape; only scalars may have None.
        retain_graph: As in ``backward``.
        create_graph: Whether the gradients can be differentiated again.
        allow_unused: Whether to return None for an unused input instead of raising an error.
        materialize_grads: Whether to return zeros for an unused input.
        mode: As in ``backward``.
        as_rrefs: Whether to leave the gradient of an RRef on its owner, and return an RRef to it.

    Raises:
        GradientError: If an input was not used, or for the reasons that ``backward`` gives.

    Examples:
        >>> x = tg.tensor(2.0, requires_grad=True)
        >>> with dist_autograd.context() as context_id:
        ...     y = rpc.rpc_sync("ps", tg.pow, (x, 3))
        ...     print(dist_autograd.grad(context_id, y, x))
        (tensor(12.),)
    """
    here = _here()
    found = here.contexts.get(context_id)
    chosen = [inputs] if isinstance(inputs, RRef) else frameworks.listed_inputs(inputs)
    if not chosen:
        raise UsageError("expected at least one tensor or RRef in inputs, got an empty sequence")
    weights = frameworks.starts(grad_outputs, outputs)
    chosen_outputs = listed(outputs, "outputs", frameworks.adopted)
    starts = checked_roots(chosen_outputs, weights, "grad_outputs", create_graph)
    chosen = [x.local_value() if isinstance(x, RRef) and x.is_owner() else x for x in chosen]
    targets, remote = targets_of(chosen)
    make_known([x for x in chosen if isinstance(x, RRef)])
    results: list[Any] = []

    def finish(local_pass: LocalPass) -> None:
        how = (as_rrefs, materialize_grads, create_graph)
        results.extend(collect(found, local_pass, chosen, targets, how))

    here.coordinator.run(
        found,
        starts,
        retain_graph=retain_graph,
        create_graph=create_graph,
        targets=targets,
        remote_targets=remote,
        captures=True,
        mode=mode,
        finish=finish,
    )
    missing = [i for i, result in enumerate(results) if result is None]
    if materialize_grads:
        for i in missing:
            results[i] = zeros_for(chosen[i], create_graph)
    elif missing and not allow_unused:
        raise GradientError(
            f"expected outputs that depend on every input, but inputs {missing} were not used in "
            "computing them; pass allow_unused=True to get None for those, or "
            "materialize_grads=True to get zeros"
        )
    return tuple(results)


@expose
def _backward_here(reference: RRef, context_id: int, retain_graph: bool) -> None:
    """Run a pass from an RRef's value, on its owner; see ``RRef.backward``."""
    value = reference.local_value()
    if not isinstance(value, Tensor) and frameworks.framework_of(value) is None:
        raise DTypeError(
            f"expected an RRef to a Tensor to run backward from, got one to {type(value).__name__}"
        )
    if context_id == -1:
        value.backward(retain_graph=retain_graph)
    else:
        backward(context_id, [value], retain_graph)


def _here() -> "WorkerAutograd":
    return autograd_of(current_worker())


def _live(context_id: int) -> Context:
    return _here().contexts.get(context_id)


# Names of PyTorch's distributed autograd.


class DistAutogradContext:
    """A context with the methods of PyTorch's contexts; ``_retrieve_context`` returns it.

    Examples:
        >>> with dist_autograd.context() as context_id:
        ...     print(dist_autograd._retrieve_context(context_id)._context_id() == context_id)
        True
    """

    def __init__(self, found: Context) -> None:
        self._found = found

    def _context_id(self) -> int:
        return self._found.id

    def _send_functions(self) -> dict[int, Any]:
        """Return the send nodes of this worker, by message id."""
        return {**self._found.spent, **self._found.sends}

    def _recv_functions(self) -> dict[int, Any]:
        """Return the recv nodes of this worker, by message id."""
        return dict(self._found.recvs)

    def _known_worker_ids(self) -> set[int]:
        """Return the ids of the workers that this context has exchanged messages with."""
        return {worker.id for worker in list(self._found.known.values())}


def _new_context() -> DistAutogradContext:
    """Open a context in this thread until ``_release_context``."""
    return DistAutogradContext(_live(context().__enter__()))


def _release_context(context_id: int) -> None:
    """Release a context on all workers."""
    _live(context_id)
    _here().leases.release(context_id)
    current = CURRENT.get()
    if current is not None and current.context.id == context_id:
        CURRENT.set(None)


def _retrieve_context(context_id: int) -> DistAutogradContext:
    """Return the context of that id on this worker."""
    return DistAutogradContext(_live(context_id))


def _current_context() -> DistAutogradContext:
    """Return the context that records this thread's calls."""
    current = CURRENT.get()
    if current is None or current.context.released:
        raise ContextError("expected a context to be open here; use `with context() as context_id`")
    return DistAutogradContext(current.context)


def _is_valid_context(context_id: int) -> bool:
    """Return True; as in PyTorch, raise if the context is not live on this worker."""
    _live(context_id)
    return True


def _get_max_id() -> int:
    """Return the largest id that a context of this worker can have."""
    return current_worker().id << COUNTER_BITS | (1 << COUNTER_BITS) - 1


def _init(worker_id: int) -> None:
    """Do nothing: every worker starts with distributed autograd."""


def _get_debug_info() -> dict[str, int]:
    """Return the numbers of local passes and of contexts on this worker."""
    contexts = _here().contexts.all()
    return {
        "num_current_backward_passes": sum(len(each.passes) for each in contexts),
        "num_autograd_contexts": len(contexts),
    }
