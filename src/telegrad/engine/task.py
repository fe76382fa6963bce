"""One backward pass: all of its state, and the loop that runs it.

1. ``count(entries)`` walks everything the entries reach and counts, for each node, the edges that
   will contribute to it. With ``targets`` only nodes on a path to a target are counted, so only
   those run. A graph that was freed is found here, before anything has changed.
2. ``feed(node, cotangent)`` adds a cotangent from outside, at a root.
3. ``run()`` runs what is ready, newest key first, until nothing is. A node is ready when every
   counted edge into it has contributed. A leaf hands its gradient to ``deliver``, saying whether
   nothing else refers to it.

A boundary, behind which the graph goes on elsewhere, is found by ``count`` too: such a pass is not
for this engine (``BoundaryReached``).

Sums have a fixed order. The newest node that has not run yet is always ready (all that contribute
to it are newer), so nodes run by strictly falling key, and so do their contributions.

No lock is needed: one thread runs a task at a time; passes of several threads share nothing but
the leaves, whose gradients are up to ``deliver``. If they share a graph, one of them may free it
while another runs. A node sets ``freed`` before it drops its saved values, so ``freed`` is checked
again after the node has run.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from heapq import heappop, heappush, heappushpop
from operator import attrgetter
from sys import getrefcount
from typing import Any

from telegrad.arrays import silent
from telegrad.arrays.ownership import ALONE
from telegrad.errors import GraphFreedError
from telegrad.graph import Cotangent, reachable

__all__ = ["BoundaryReached", "GraphTask", "Retain", "are_captured", "freed_error", "keep_retained"]

Retain = Callable[[Cotangent], Callable[[], None]]
"""Keeps a gradient, and gives what takes it back."""


class BoundaryReached(Exception):
    """A local pass met a node whose cotangent leaves this engine; nothing has run yet."""

    def __init__(self, node: Any) -> None:
        super().__init__(node)
        self.node = node


_by_key = attrgetter("key")


class GraphTask:
    """The state of one pass; see the module's docstring for the steps."""

    __slots__ = (
        "_owned",
        "_ready",
        "buffers",
        "captures",
        "deliver",
        "keep_graph",
        "missing",
        "recorded",
        "retained",
        "targets",
        "watch",
    )

    def __init__(
        self,
        deliver: Callable[[Any, Cotangent, bool], None],
        *,
        keep_graph: bool = False,
        recorded: bool = False,
        targets: Collection[Any] | None = None,
        captures: bool = False,
        watch: Callable[[Any, Any], None] | None = None,
    ) -> None:
        self.deliver = deliver
        self.keep_graph = keep_graph
        self.recorded = recorded
        self.targets = targets
        self.captures = captures
        """Whether gradients of leaves are asked for, not accumulated: their nodes don't run."""
        self.watch = watch
        """Called with each node that has run and its contributions; None: nobody looks."""
        self.missing: dict[Any, int] = {}
        """How many contributions a node still waits for; in ``run_to_end``, only of leaves."""
        self.buffers: dict[Any, Cotangent] = {}
        """The sum of what has come, for nodes that have not run."""
        self.retained: list[tuple[Retain, Cotangent]] = []
        """Gradients of values that retain theirs, for ``keep_retained`` when the pass succeeded."""
        self._ready: list[tuple[int, Any]] = []
        self._owned: set[Any] = set()
        """Nodes whose sum was made here, so that it may be added to in place."""

    def count(self, entries: Iterable[Any]) -> None:
        """Counts the contributions that each node reached from the entries will receive."""
        if self.targets is not None:
            self._count_needed(entries, self.targets)
            return
        stack = list(entries)
        missing = self.missing = dict.fromkeys(stack, 0)
        while stack:
            node = stack.pop()
            if node.freed:
                raise freed_error(node)
            for edge in node.edges:
                if edge in missing:
                    missing[edge] += 1
                else:
                    missing[edge] = 1
                    stack.append(edge)

    def _count_needed(self, entries: Iterable[Any], targets: Collection[Any]) -> None:
        missing = self.missing
        for node in reversed(reachable(entries)):
            if node in targets:
                missing[node] = 0
                continue
            for edge in node.edges:
                if edge in missing:
                    missing[node] = 0
                    break
            else:
                if node.is_boundary:
                    # What lies behind it may well lead to a target.
                    raise BoundaryReached(node)
        for node in missing:
            if node in targets and self._ends_at(node):
                continue
            if node.freed:
                raise freed_error(node)
            for edge in node.edges:
                if edge in missing:
                    missing[edge] += 1

    def _ends_at(self, node: Any) -> bool:
        """Whether the pass stops at this node: a target that leads to no other one."""
        return node in (self.targets or ()) and not any(e in self.missing for e in node.edges)

    def feed(self, node: Any, cotangent: Cotangent) -> None:
        """Adds a cotangent that comes from outside; a node that misses nothing becomes ready."""
        if node not in self.missing:
            return
        if node in self.buffers:
            self.buffers[node] = self.buffers[node] + cotangent
            return
        self.buffers[node] = cotangent
        if self.missing[node]:
            return
        if node.key < 0:
            self._finish_leaf(node)
        else:
            heappush(self._ready, (-node.key, node))

    def _finish_leaf(self, leaf: Any) -> None:
        if leaf not in self.buffers:
            return
        gradient = self.buffers.pop(leaf)
        is_alone = getrefcount(gradient) <= ALONE
        if leaf.hooks is not None:
            run_hooks = leaf.before_capture if self.captures else leaf.before
            gradient = run_hooks(gradient)
            is_alone = False
        self.deliver(leaf, gradient, is_alone)

    @silent
    def run_to_end(self, roots: dict[Any, Cotangent]) -> None:
        """Counts, feeds and runs a pass whose every cotangent comes from these roots.

        The same as ``count``, ``feed`` and ``run``, with less to keep: since all that contributes
        to a node is newer than it, running the nodes sorted by key needs no counts but the leaves'.
        """
        if self.targets is not None or self.watch is not None:
            self.count(roots)
            for root, cotangent in roots.items():
                self.feed(root, cotangent)
            self.run()
            return
        buffers, missing, owned, keep = self.buffers, self.missing, self._owned, self.keep_graph
        recorded = self.recorded
        order = self._sorted(roots)
        buffers.update(roots)
        for root in roots:
            if root.key < 0 and root not in missing:
                self._finish_leaf(root)
        node: Any = None
        edges: Any
        finished: list[Any] = []
        try:
            while order:
                node = order.pop()
                cotangent = buffers.pop(node, None)
                if cotangent is None:
                    self._skip(node)
                    continue
                hooks = node.hooks
                if hooks is not None:
                    cotangent = node.before_capture(cotangent)
                    if hooks.retain is not None:
                        self.retained.append((hooks.retain, cotangent))
                    cotangent = node.before_run(cotangent)
                try:
                    contributions = (
                        node.pull_recorded(cotangent) if recorded else node.pull(cotangent)
                    )
                except Exception as error:
                    if node.freed:
                        raise freed_error(node) from error
                    raise
                if hooks is not None:
                    contributions = node.after(contributions, cotangent)
                # A node that nobody else refers to can't run again, and goes by itself.
                if keep or getrefcount(node) > ALONE:
                    if node.freed:
                        # Another pass freed it meanwhile: what was computed may be wrong.
                        raise freed_error(node)
                    if not keep:
                        node.release()
                cotangent = None
                edges = node.edges
                if len(edges) == 1 and edges[0].key >= 0 and edges[0] not in buffers:
                    # Most nodes: one edge, to a node that nothing has come to yet. None is nothing.
                    buffers[edges[0]] = contributions[0]
                    edges = None
                    continue
                for edge, contribution in zip(edges, contributions):
                    if contribution is not None:
                        before = buffers.get(edge)
                        if before is None:
                            buffers[edge] = contribution
                        elif edge in owned and type(contribution) is type(before):
                            before += contribution
                            buffers[edge] = before
                        else:
                            buffers[edge] = before + contribution
                            owned.add(edge)
                    if edge.key < 0:
                        missing[edge] = left = missing[edge] - 1
                        if not left:
                            finished.append(edge)
                edge = edges = None
                if finished:
                    # Only the buffers may know a leaf's gradient, so that it need not be copied.
                    contributions = contribution = before = None
                    for leaf in finished:
                        self._finish_leaf(leaf)
                    finished.clear()
        except Exception as error:
            if node is not None:
                node.explain(error)
            raise

    def _sorted(self, roots: Iterable[Any]) -> list[Any]:
        """All nodes that the roots reach, newest last; counts the contributions to each leaf."""
        missing = self.missing
        order = [root for root in roots if root.key >= 0]
        seen = set(order)
        for node in order:  # It grows as it is read, until nothing new is reached.
            if node.freed:
                raise freed_error(node)
            for edge in node.edges:
                if edge.key < 0:
                    missing[edge] = missing.get(edge, 0) + 1
                elif edge not in seen:
                    seen.add(edge)
                    order.append(edge)
        order.sort(key=_by_key)
        return order

    def _skip(self, node: Any) -> None:
        """Passes by a node that no contribution came to."""
        for edge in node.edges:
            if edge.key < 0:
                self.missing[edge] -= 1
                if not self.missing[edge]:
                    self._finish_leaf(edge)

    @silent
    def run(self) -> None:
        """Runs everything that is ready, and what that makes ready, in the order of the keys."""
        ready, missing, buffers, owned = self._ready, self.missing, self.buffers, self._owned
        keep, recorded, targets, watch = self.keep_graph, self.recorded, self.targets, self.watch
        following: tuple[int, Any] | None = None
        node: Any = None
        try:
            while following is not None or ready:
                node = (heappop(ready) if following is None else heappushpop(ready, following))[1]
                following = None
                cotangent = buffers.pop(node, None)
                contributions: Any
                if cotangent is None:
                    contributions = (None,) * len(node.edges)
                else:
                    hooks = node.hooks
                    if hooks is not None:
                        cotangent = node.before_capture(cotangent)
                        if hooks.retain is not None:
                            self.retained.append((hooks.retain, cotangent))
                    if targets is not None and node in targets:
                        self.deliver(node, cotangent, False)
                        if self._ends_at(node):
                            if hooks is not None and not self.captures:
                                node.pass_by(cotangent)
                            continue
                    if hooks is not None:
                        cotangent = node.before_run(cotangent)
                    try:
                        contributions = (
                            node.pull_recorded(cotangent) if recorded else node.pull(cotangent)
                        )
                    except Exception as error:
                        if node.freed:
                            raise freed_error(node) from error
                        raise
                    if hooks is not None:
                        contributions = node.after(contributions, cotangent)
                    if node.freed:
                        # Another pass freed it meanwhile: what was computed may be wrong.
                        raise freed_error(node)
                    if watch is not None:
                        watch(node, contributions)
                    if not keep:
                        node.release()
                for edge, contribution in zip(node.edges, contributions):
                    left = missing.get(edge)
                    if left is None:
                        continue
                    if contribution is not None:
                        if edge not in buffers:
                            buffers[edge] = contribution
                        elif edge in owned and type(contribution) is type(buffers[edge]):
                            buffers[edge] += contribution
                        else:
                            buffers[edge] = buffers[edge] + contribution
                            owned.add(edge)
                    missing[edge] = left = left - 1
                    if left:
                        continue
                    if edge.key < 0:
                        self._finish_leaf(edge)
                    elif following is None:
                        following = (-edge.key, edge)
                    else:
                        heappush(ready, (-edge.key, edge))
                cotangent = contributions = contribution = None
        except Exception as error:
            if node is not None:
                node.explain(error)
            raise


def are_captured(targets: Mapping[Any, Any] | None) -> bool:
    """Whether gradients of leaves are asked for, as by ``grad``, instead of accumulated.

    `targets` names the tensor of each node for ``backward``, and None for ``grad``.
    """
    return targets is not None and None in targets.values()


def keep_retained(retained: list[tuple[Retain, Cotangent]]) -> list[Callable[[], None]]:
    """Gives each value that retains its gradient what a task has collected for it.

    Returns what takes them back.
    """
    kept = [retain(gradient) for retain, gradient in retained]
    retained.clear()
    return kept


def freed_error(node: Any) -> Exception:
    """What is raised where a pass meets a node that can't run: each kind of node says why."""
    if node.is_boundary:
        return BoundaryReached(node)
    return GraphFreedError(
        f"expected a graph that still has its saved values, got {node.name()} whose values were "
        "freed by an earlier backward pass; pass retain_graph=True to that earlier call to go "
        "through the same graph twice, or detach() what one step keeps for the next"
    )
