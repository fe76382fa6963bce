"""Differentiating programs whose parts run on several workers.

The names and meaning of ``torch.distributed.autograd``, and beyond: any root, any order, inputs, and a pass
that is exact and ends whether or not every call was used. ``README.md`` beside this file has the
algorithm.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from telegrad.autograd.roots import checked_roots, listed, node_of
from telegrad.distributed.carrying import Carrier
from telegrad.distributed.contexts import CURRENT, Context, Place
from telegrad.distributed.passes import Plan
from telegrad.distributed.recording import Recorder
from telegrad.errors import ContextError, UsageError
from telegrad.rpc.current import current_worker
from telegrad.rpc.worker import Worker
from telegrad.tensors import Tensor

__all__ = ["backward", "context", "get_gradients", "grad"]

MODES = ("smart", "fast")


def recorder_of(worker: Worker) -> Recorder:
    """The recorder that ``equip`` installed on a worker."""
    recorder = worker.interceptor
    if not isinstance(recorder, Recorder):
        raise UsageError(f"worker {worker.name!r} was started without distributed autograd")
    return recorder


def _carrier() -> Carrier:
    carrier: Carrier = recorder_of(current_worker()).carrier
    return carrier


@contextmanager
def context() -> Iterator[int]:
    """Records the remote calls made inside; gives the id of a new context, released at the end."""
    made = _new_context()
    token = CURRENT.set(Place(made, ()))
    try:
        yield made.id
    finally:
        CURRENT.reset(token)
        _release_context(made.id)


def backward(
    context_id: int,
    roots: Tensor | Sequence[Tensor],
    retain_graph: bool | None = None,
    *,
    grad_tensors: Any = None,
    create_graph: bool = False,
    inputs: Any = None,
    mode: str = "smart",
) -> None:
    """Runs the backward pass over all workers that took part, and returns when it has ended.

    Gradients of leaves go to the context, on the worker of each leaf; see ``get_gradients``. With
    ``mode="fast"`` a call whose result was not used is an error instead of a correction.
    """
    found = _live(context_id)
    starts = checked_roots(listed(roots, "roots"), grad_tensors, "grad_tensors", create_graph)
    targets: dict[Any, Any] | None = None
    if inputs is not None:
        chosen = [inputs] if isinstance(inputs, Tensor) else list(inputs)
        if not chosen:
            raise UsageError("expected at least one tensor in inputs, got an empty sequence")
        targets = {node_of(x, "inputs"): x for x in chosen}
    run_pass(found, starts, retain_graph, create_graph, targets, mode)


def run_pass(
    found: Context,
    starts: dict[Any, Any],
    retain_graph: bool | None,
    create_graph: bool,
    targets: dict[Any, Any] | None,
    mode: str,
) -> Any:
    """Runs a pass from checked roots; the result's ``captured`` has the gradients of targets."""
    if mode not in MODES:
        raise UsageError(f"expected a mode of {MODES}, got {mode!r}")
    with found.lock:
        ordinal = found.pass_count
        found.pass_count += 1
    plan = Plan(
        found.id,
        current_worker().next_id(),
        ordinal,
        create_graph if retain_graph is None else retain_graph,
        create_graph,
        None if targets is None else [],
    )
    return _carrier().run(found, starts, plan, targets or {}, mode)


def get_gradients(context_id: int) -> Mapping[Tensor, Tensor]:
    """The gradients of this worker's leaves in a context, by leaf; waits for a pass to end."""
    found = _live(context_id)
    for part in list(found.passes.values()):
        part.ended.wait()
    with found.lock:
        return dict(found.gradients)


def grad(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError


def _live(context_id: int) -> Context:
    if not isinstance(context_id, int):
        raise ContextError(f"expected the id of a context, an int, got {type(context_id).__name__}")
    return recorder_of(current_worker()).contexts.get(context_id)


# The names that users of PyTorch know.


def _new_context() -> Context:
    if CURRENT.get() is not None:
        raise ContextError(
            "expected no context to be open here, got a nested one; leave the first before "
            "opening another"
        )
    worker = current_worker()
    return recorder_of(worker).contexts.open(worker.next_id(), None)


def _release_context(context_id: int) -> None:
    if not _carrier().release(context_id):
        raise ContextError(f"expected the id of a live context, got {context_id}")
