"""``backward`` and ``grad``: what users start a backward pass with.

Here arguments are checked, wholly, before anything runs; then one GraphTask does the work.
"""

from functools import partial
from typing import Any

from telegrad.autograd.anomaly import watcher
from telegrad.autograd.roots import Gradients, Tensors, checked_roots, listed, node_of
from telegrad.engine import BoundaryReached, GraphTask
from telegrad.errors import GradientError, UsageError
from telegrad.tensors import Tensor, wrap
from telegrad.tensors.accumulating import accumulate, own
from telegrad.tensors.lent import lent
from telegrad.tensors.modes import MODE, ModeScope

__all__ = ["backward", "grad"]


def backward(
    tensors: Tensors,
    grad_tensors: Gradients = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensors | None = None,
) -> None:
    """Adds the gradients of the tensors' sum to ``.grad`` of the leaves they were computed from.

    `grad_tensors` weights the tensors; only scalars may go without. `retain_graph` keeps the graph
    for another pass (default: as `create_graph`). With `create_graph` the gradients can be
    differentiated again. With `inputs` only those receive a gradient.
    """
    roots = checked_roots(listed(tensors, "tensors"), grad_tensors, "grad_tensors", create_graph)
    if inputs is not None:
        chosen = listed(inputs, "inputs")
        if not chosen:
            raise UsageError(
                "expected at least one tensor in inputs, got an empty sequence; pass "
                "None to reach all leaves"
            )
        targets = {node_of(x, "inputs"): x for x in chosen}

        _run(roots, partial(_accumulate_at, targets), retain_graph, create_graph, targets)
    else:
        _run(roots, accumulate, retain_graph, create_graph, None)


def grad(
    outputs: Tensors,
    inputs: Tensors,
    grad_outputs: Gradients = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of the outputs' sum with respect to each input; ``.grad`` stays untouched.

    An input that the outputs don't depend on is an error; with `allow_unused` its gradient is None, with
    `materialize_grads` zeros.
    """
    chosen = listed(inputs, "inputs")
    if not chosen:
        raise UsageError("expected at least one tensor in inputs, got an empty sequence")
    if materialize_grads and allow_unused is False:
        raise UsageError(
            "expected allow_unused to be True or unset with materialize_grads=True, got False"
        )
    roots = checked_roots(listed(outputs, "outputs"), grad_outputs, "grad_outputs", create_graph)
    nodes = [node_of(x, "inputs") for x in chosen]
    found: dict[Any, Any] = {}

    def deliver(node: Any, gradient: Any, is_alone: bool) -> None:
        found[node] = gradient if isinstance(gradient, Tensor) else wrap(own(gradient, is_alone))

    _run(roots, deliver, retain_graph, create_graph, dict.fromkeys(nodes))
    results = [found.get(node) for node in nodes]
    if any(result is None for result in results):
        if materialize_grads:
            zeros = lent.namespace.zeros_like
            results = [zeros(x) if r is None else r for x, r in zip(chosen, results)]
        elif not allow_unused:
            missing = [i for i, r in enumerate(results) if r is None]
            raise GradientError(
                f"expected outputs that depend on every input, but inputs {missing} were not used "
                "in computing them; pass allow_unused=True to get None for those, or "
                "materialize_grads=True to get zeros"
            )
    return tuple(results)


def _run(
    roots: dict[Any, Any],
    deliver: Any,
    retain_graph: bool | None,
    create_graph: bool,
    targets: dict[Any, Any] | None,
) -> None:
    keep = create_graph if retain_graph is None else retain_graph
    task = GraphTask(
        deliver,
        keep_graph=keep,
        recorded=create_graph,
        targets=targets,
        watch=watcher(MODE.get()),
    )
    try:
        with ModeScope(recording=create_graph):
            task.run_to_end(roots)
    except BoundaryReached as met:
        # Found before anything ran: part of the graph is elsewhere, and knows how to go on.
        met.node.take_over(roots, deliver, keep, create_graph, targets)


def _accumulate_at(targets: dict[Any, Tensor], node: Any, gradient: Any, is_alone: bool) -> None:
    accumulate(targets[node], gradient, is_alone)


lent.backward = backward
