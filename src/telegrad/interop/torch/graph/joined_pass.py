"""A pass within one process through both graphs: telegrad's own, and PyTorch's by regions."""

from collections.abc import Callable
from typing import Any

from telegrad.autograd.anomaly import refuse_nan
from telegrad.distributed.frameworks import accumulate
from telegrad.engine import OrderedTask, are_captured, keep_retained
from telegrad.errors import InternalError
from telegrad.interop.torch.graph.accumulation import completed
from telegrad.interop.torch.graph.cut import cut_walk
from telegrad.interop.torch.graph.replicas import accumulate_replicated, module_of
from telegrad.interop.torch.graph.walk import Walk
from telegrad.tensors.recording.modes import MODE, ModeScope


def run_joined(
    roots: dict[Any, Any],
    deliver: Callable[[Any, Any, bool], None],
    keep_graph: bool,
    recorded: bool,
    targets: dict[Any, Any] | None,
) -> None:
    """Run a pass within this process through both graphs.

    Without targets, the gradients of PyTorch's leaves accumulate in their ``.grad``.
    """
    walk = Walk.of_both(roots, targets or ())
    if walk.boundaries:
        # Part of the graph is on another worker: the boundary runs a distributed pass.
        walk.boundaries[0].take_over(roots, deliver, keep_graph, recorded, targets)
        return
    joined = cut_walk(walk, keep_graph, targets or ())
    foreign: list[tuple[Any, Any]] = []

    def sort(node: Any, gradient: Any, is_alone: bool) -> None:
        if node in joined.leaves:
            foreign.append((joined.leaves[node], gradient))
        elif targets is None or node in targets:
            deliver(node, gradient, is_alone)

    def refuse(node: Any, cotangent: Any) -> bool:
        raise InternalError(f"a boundary that the walk did not see: {node.name()}")

    task = OrderedTask(
        sort, depart=refuse, keep_graph=keep_graph, recorded=recorded, targets=targets
    )
    task.joined = joined.edges
    task.captures = are_captured(targets)
    task.check = refuse_nan if MODE.get().check_nan else None
    with ModeScope(recording=recorded, inference=False):
        task.count(roots)
        for root, cotangent in roots.items():
            task.feed(root, cotangent)
        task.run()
        keep_retained(task.retained)
    if targets is None:
        finished: set[Any] = set()
        for leaf, gradient in foreign:
            module = module_of(leaf)
            if module is not None:
                accumulate_replicated(module, {leaf: gradient}, finished)
                continue
            final = completed(leaf, gradient)
            if final is not None:
                accumulate(leaf, final)
