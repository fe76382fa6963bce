"""``backward`` and ``grad``: what users start a backward pass with.

Here arguments are checked, wholly, before anything runs; then one GraphTask does the work.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

from telegrad.arrays import backend_of
from telegrad.autograd.anomaly import watcher
from telegrad.engine import GraphTask
from telegrad.errors import DeviceError, DTypeError, GradientError, ShapeError, UsageError
from telegrad.tensors import LEAF, Tensor, wrap
from telegrad.tensors.accumulating import accumulate, own
from telegrad.tensors.lent import lent
from telegrad.tensors.modes import MODE, ModeScope

__all__ = ["backward", "grad"]

Tensors: TypeAlias = Tensor | Sequence[Tensor]
Gradients: TypeAlias = Tensor | None | Sequence[Tensor | None]


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
    roots = _roots(_listed(tensors, "tensors"), grad_tensors, "grad_tensors", create_graph)
    if inputs is not None:
        chosen = _listed(inputs, "inputs")
        if not chosen:
            raise UsageError(
                "expected at least one tensor in inputs, got an empty sequence; pass "
                "None to reach all leaves"
            )
        targets = {_node_of(x, "inputs"): x for x in chosen}

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
    chosen = _listed(inputs, "inputs")
    if not chosen:
        raise UsageError("expected at least one tensor in inputs, got an empty sequence")
    if materialize_grads and allow_unused is False:
        raise UsageError(
            "expected allow_unused to be True or unset with materialize_grads=True, got False"
        )
    roots = _roots(_listed(outputs, "outputs"), grad_outputs, "grad_outputs", create_graph)
    nodes = [_node_of(x, "inputs") for x in chosen]
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
    with ModeScope(recording=create_graph):
        task.run_to_end(roots)


def _listed(tensors: Any, name: str) -> list[Tensor]:
    if isinstance(tensors, Tensor):
        return [tensors]
    if not isinstance(tensors, Sequence) and not hasattr(tensors, "__iter__"):
        raise DTypeError(
            f"expected a Tensor or a sequence of Tensors as {name}, got {type(tensors).__name__}"
        )
    listed = list(tensors)
    for i, each in enumerate(listed):
        if not isinstance(each, Tensor):
            raise DTypeError(f"expected a Tensor as {name}[{i}], got {type(each).__name__}")
    return listed


def _node_of(x: Tensor, name: str) -> Any:
    if x.node is None:
        raise GradientError(
            f"expected tensors that require grad as {name}, got one that does not; call "
            "requires_grad_() on it before computing with it"
        )
    return x if x.node is LEAF else x.node


def _roots(
    tensors: list[Tensor], gradients: Gradients, name: str, recorded: bool
) -> dict[Any, Any]:
    """The cotangent to start with at each root's node; a tensor named twice counts twice."""
    if not tensors:
        raise UsageError("expected at least one tensor to differentiate, got none")
    given: Sequence[Any]
    if gradients is None:
        given = [None] * len(tensors)
    elif isinstance(gradients, Tensor):
        given = [gradients]
    else:
        given = list(gradients)
    if len(given) != len(tensors):
        raise UsageError(
            f"expected one gradient for each of the {len(tensors)} tensors in {name}, got "
            f"{len(given)}"
        )
    roots: dict[Any, Any] = {}
    for i, (x, gradient) in enumerate(zip(tensors, given)):
        if x.node is None:
            raise GradientError(
                "expected a tensor that requires grad to differentiate, got one that does not and "
                "has no grad_fn; was it computed under no_grad, or from constants only?"
            )
        node = x if x.node is LEAF else x.node
        start = _start(x, gradient, f"{name}[{i}]", recorded)
        roots[node] = roots[node] + start if node in roots else start
    return roots


def _start(x: Tensor, gradient: Tensor | None, name: str, recorded: bool) -> Any:
    if gradient is None:
        if x.size != 1:
            raise GradientError(
                f"expected a scalar, or a gradient for it, to start from, got a tensor of shape "
                f"{x.shape}; reduce it, e.g. with .sum(), or pass {name}"
            )
        if x.dtype.kind == "c":
            raise GradientError(
                f"expected a real scalar to differentiate, got dtype {x.dtype}; pass {name}"
            )
        xp = backend_of(x.array)
        start = xp.ones(x.shape, dtype=x.dtype)
        return wrap(start) if recorded or x.is_dual else start
    if not isinstance(gradient, Tensor):
        raise DTypeError(f"expected a Tensor or None as {name}, got {type(gradient).__name__}")
    if gradient.shape != x.shape:
        raise ShapeError(
            f"expected a gradient of shape {x.shape}, that of its tensor, as {name}, got "
            f"{gradient.shape}"
        )
    if gradient.dtype != x.dtype:
        if gradient.dtype.kind == "c" or x.dtype.kind != "c":
            raise DTypeError(
                f"expected a gradient of dtype {x.dtype}, that of its tensor, as {name}, got "
                f"{gradient.dtype}; convert it with .to({x.dtype})"
            )
        gradient = gradient.to(x.dtype)
    if backend_of(gradient.array) is not backend_of(x.array):
        raise DeviceError(
            f"expected a gradient on {x.device} as {name}, got one on {gradient.device}"
        )
    return gradient if recorded or gradient.is_dual else gradient.array


def _accumulate_at(targets: dict[Any, Tensor], node: Any, gradient: Any, is_alone: bool) -> None:
    accumulate(targets[node], gradient, is_alone)


lent.backward = backward
