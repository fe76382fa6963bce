"""``backward`` and ``grad``, which start a backward pass.

All arguments are checked here before anything runs; then one GraphTask does the work.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from telegrad.autograd.anomaly import refuse_nan
from telegrad.autograd.roots import Gradients, Tensors, checked_roots, listed, node_of
from telegrad.autograd.staged_gradients import Staging
from telegrad.engine import BoundaryReached, GraphTask, are_captured, keep_retained
from telegrad.errors import GradientError, UsageError
from telegrad.tensors import Tensor, wrap
from telegrad.tensors.late_bound import late_bound
from telegrad.tensors.recording.accumulation import own
from telegrad.tensors.recording.modes import MODE, Recording


def backward(
    tensors: Tensors,
    grad_tensors: Gradients = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensors | None = None,
) -> None:
    """Add the gradients of the tensors' sum to ``.grad`` of the leaves they were computed from.

    Arguments:
        tensors: The tensor to differentiate, or several.
        grad_tensors: A weight for each tensor, of its shape; only scalars may have None.
        retain_graph: Whether to keep the graph for another pass; None for as `create_graph` says.
        create_graph: Whether the gradients can be differentiated again.
        inputs: The only tensors to receive a gradient; by default all leaves do.

    Raises:
        GradientError: If a tensor does not require grad, or `inputs` is empty.
        GraphFreedError: If an earlier pass has freed the graph.

    Examples:
        >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
        >>> tg.autograd.backward((x * x).sum())
        >>> x.grad
        tensor([2., 4.])
    """
    roots = checked_roots(listed(tensors, "tensors"), grad_tensors, "grad_tensors", create_graph)
    staging = Staging()
    if inputs is not None:
        chosen = listed(inputs, "inputs")
        if not chosen:
            raise GradientError(
                "expected at least one tensor in inputs, got an empty sequence; pass "
                "None to reach all leaves"
            )
        targets = {node_of(x, "inputs"): x for x in chosen}

        def deliver(node: Any, gradient: Any, is_alone: bool) -> None:
            # An input that is not a leaf retains its gradient, as in PyTorch.
            if node.is_leaf:
                staging.deliver(node, gradient, is_alone)

        retained = _run(roots, deliver, retain_graph, create_graph, targets, chosen)
    else:
        retained = _run(roots, staging.deliver, retain_graph, create_graph, None)
    with Recording(create_graph):
        keep_retained(retained)
        staging.commit()


def grad(
    outputs: Tensors,
    inputs: Tensors,
    grad_outputs: Gradients = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """Return the gradient of the outputs' sum for each input; ``.grad`` stays unchanged.

    Arguments:
        outputs: The tensor to differentiate, or several.
        inputs: The tensor to differentiate with respect to, or several.
        grad_outputs: A weight for each output, of its shape; only scalars may have None.
        retain_graph: Whether to keep the graph for another pass; None for as `create_graph` says.
        create_graph: Whether the gradients can be differentiated again.
        allow_unused: Whether to return None for an input that the outputs don't depend on, instead
            of raising an error.
        materialize_grads: Whether to return zeros for such an input; with `create_graph` they
            require grad, as the others do.

    Returns:
        A tuple with one gradient for each input, also for a single input.

    Raises:
        GradientError: If an output does not depend on an input, or `inputs` is empty.
        GraphFreedError: If an earlier pass has freed the graph.

    Examples:
        >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
        >>> (slope,) = tg.autograd.grad((x**3).sum(), x, create_graph=True)
        >>> tg.autograd.grad(slope.sum(), x)
        (tensor([ 6., 12.]),)
    """
    chosen = listed(inputs, "inputs")
    if not chosen:
        raise GradientError("expected at least one tensor in inputs, got an empty sequence")
    if materialize_grads and allow_unused is False:
        raise UsageError(
            "expected allow_unused to be True or unset with materialize_grads=True, got False"
        )
    roots = checked_roots(listed(outputs, "outputs"), grad_outputs, "grad_outputs", create_graph)
    nodes = [node_of(x, "inputs") for x in chosen]
    found: dict[Any, Any] = {}

    def deliver(node: Any, gradient: Any, is_alone: bool) -> None:
        owned = own(gradient, is_alone)
        found[node] = owned if isinstance(owned, Tensor) else wrap(owned)

    def check_used(reached: Collection[Any]) -> None:
        if allow_unused or materialize_grads:
            return
        unused = [i for i, node in enumerate(nodes) if node not in reached]
        if unused:
            raise GradientError(
                f"expected outputs that depend on every input, but inputs {unused} were not used "
                "in computing them; pass allow_unused=True to get None for those, or "
                "materialize_grads=True to get zeros"
            )

    targets = dict.fromkeys(nodes)
    retained = _run(roots, deliver, retain_graph, create_graph, targets, check=check_used)
    # Again, since a node may return no gradient, which only the pass itself shows.
    check_used(found)
    if retained:
        with Recording(create_graph):
            keep_retained(retained)
    if materialize_grads:
        zeros = late_bound.namespace.zeros_like
        return tuple(
            found[n] if n in found else zeros(x).requires_grad_(create_graph)
            for x, n in zip(chosen, nodes)
        )
    return tuple(found.get(node) for node in nodes)


def _run(
    roots: dict[Any, Any],
    deliver: Any,
    retain_graph: bool | None,
    create_graph: bool,
    targets: dict[Any, Any] | None,
    inputs: Sequence[Tensor] = (),
    check: Callable[[Collection[Any]], None] | None = None,
) -> list[Any]:
    """Run a pass; return the gradients to retain, for when nothing can fail any more."""
    keep_graph = create_graph if retain_graph is None else retain_graph
    task = GraphTask(
        deliver,
        keep_graph=keep_graph,
        recorded=create_graph,
        targets=targets,
        captures=are_captured(targets),
        check=refuse_nan if MODE.get().check_nan else None,
    )
    try:
        with Recording(create_graph):
            task.count(roots)
            if check is not None:
                check(task.needed or ())
            for x in inputs:
                x.retain_grad()
            task.run(roots)
        return task.retained
    except BoundaryReached as met:
        # Found before anything ran: part of the graph is elsewhere, so its node takes over.
        for x in inputs:
            x.retain_grad()
        met.node.take_over(roots, deliver, keep_graph, create_graph, targets)
        return []


late_bound.backward = backward
