"""The base of every pass: its options, and how it runs nodes with hooks, targets or checks.

Most nodes have no hooks and no requested gradient: the loops in ``local.py`` and ``ordered.py`` run
these directly. All others go through ``before`` and ``run_with_hooks``.

No lock is needed: one thread runs a task at a time, and passes of several threads share only the
leaves, whose gradients ``deliver`` handles. If passes share a graph, one of them may free it while
another runs. A node sets ``freed`` before it drops its saved values, so ``freed`` is checked again
after the node has run.
"""

from collections.abc import Callable, Container, Mapping
from typing import Any, cast

import msgspec

from telegrad.errors import GraphFreedError
from telegrad.graph import Boundary, Contributions, Cotangent, Deliver, Node

Retain = Callable[[Cotangent], Callable[[], None]]
"""Keeps a gradient; returns a function that undoes this."""


class BoundaryReached(Exception):
    """A local pass met a node whose cotangent leaves this engine; nothing has run yet."""

    def __init__(self, node: Boundary) -> None:
        super().__init__(node)
        self.node = node


class Task(msgspec.Struct, eq=False):
    """The options of one pass, and the gradients it retains for its caller."""

    deliver: Deliver
    keep_graph: bool = False
    """Whether nodes keep their saved values for another pass."""
    recorded: bool = False
    """Whether rules run recorded, so that gradients can be differentiated again."""
    targets: Container[Node] | None = None
    """The nodes whose gradients are requested, leaves or not; None for all leaves."""
    captures: bool = False
    """Whether gradients of leaves are returned, not accumulated: the leaves' nodes don't run."""
    check: Callable[[Node, Contributions], None] | None = None
    """Called with each node that has run and its contributions."""
    retained: list[tuple[Retain, Cotangent]] = []
    """Gradients of values that retain theirs, for ``keep_retained`` when the pass succeeded."""

    def finish_hooked_leaf(self, leaf: Node, gradient: Cotangent) -> None:
        """Run a leaf's hooks on its complete gradient, and deliver the result."""
        gradient = leaf.before_capture(gradient)
        if not self.captures:
            gradient = leaf.before_run(gradient)
        self.deliver(leaf, gradient, False)

    def before(self, node: Node, cotangent: Cotangent) -> Cotangent | None:
        """Run a node's pre-hooks and deliver its gradient; return None if the node need not run."""
        hooks = node.hooks
        if hooks is not None:
            cotangent = node.before_capture(cotangent)
            if hooks.retain is not None:
                self.retained.append((hooks.retain, cotangent))
        if self.targets and node in self.targets:
            self.deliver(node, cotangent, False)
            if self.ends_at(node):
                if hooks is not None and not self.captures:
                    node.pass_by(cotangent)
                return None
        return cotangent if hooks is None else node.before_run(cotangent)

    def ends_at(self, target: Node) -> bool:
        """Tell whether no other target lies behind this one."""
        raise NotImplementedError

    def pull(self, node: Node, cotangent: Cotangent) -> Contributions:
        """Run the node itself."""
        return node.pull_recorded(cotangent) if self.recorded else node.pull(cotangent)

    def run_with_hooks(self, node: Node, cotangent: Cotangent) -> Contributions:
        """Run a node that ``before`` let through, then its hooks and checks; release it."""
        try:
            contributions = self.pull(node, cotangent)
        except Exception as error:
            if node.freed and not node.is_boundary:
                raise freed_error(node) from error
            raise
        if node.freed and not node.is_boundary:
            # Another pass freed it meanwhile: the contributions may be wrong.
            raise freed_error(node)
        if node.hooks is not None:
            contributions = node.after(contributions, cotangent)
        if self.check is not None:
            self.check(node, contributions)
        if not self.keep_graph:
            node.release()
        return contributions


def are_captured(targets: Mapping[Any, Any] | None) -> bool:
    """Tell whether gradients of leaves are returned, as by ``grad``, instead of accumulated.

    `targets` maps each node to its tensor for ``backward``, and to None for ``grad``.
    """
    return targets is not None and None in targets.values()


def keep_retained(retained: list[tuple[Retain, Cotangent]]) -> list[Callable[[], None]]:
    """Give each value that retains its gradient the one that a task has collected for it.

    Return functions that undo this.
    """
    kept = [retain(gradient) for retain, gradient in retained]
    retained.clear()
    return kept


def freed_error(node: Node) -> Exception:
    """Return the error for a pass that meets a node which can't run."""
    if node.is_boundary:
        return BoundaryReached(cast(Boundary, node))
    return GraphFreedError(
        f"expected a graph that still has its saved values, got {node.name()} whose values were "
        "freed by an earlier backward pass; pass retain_graph=True to that earlier call to go "
        "through the same graph twice, or detach() what one step keeps for the next"
    )
