"""One backward pass of a graph that is all here: all of its state, and the loop that runs it.

1. ``count(roots)`` walks everything the roots reach, sorts the nodes by key and counts, for each
   leaf, the edges that will contribute to it. With ``targets`` only nodes on a path to a target are
   *needed*, and only those run. A graph that was freed is found here, before anything has changed.
2. ``run(roots)`` runs the nodes, newest key first, from the roots' cotangents. A leaf hands its
   gradient to ``deliver`` when the last edge into it has contributed, saying whether nothing else
   refers to it.

A boundary, behind which the graph goes on elsewhere, is found by ``count`` too: such a pass is not
for this task (``BoundaryReached``).

Sums have a fixed order. All that contribute to a node are newer than it, so when nodes run by
falling key each cotangent is complete in its turn, and contributions are added by falling key, too.

Note COUNTS. Whether anybody else refers to a value, its reference count tells. Interpreters differ
in what they count for a local variable, and compiled code (Cython, mypyc) counts one less, since it
lends a function its arguments. So each module that looks at a count measures once what it sees
itself of a value that is its own. Measured elsewhere, a value that somebody else has could be taken
for one's own, and two leaves would share a gradient's memory.
"""

from collections.abc import Iterable, Mapping
from operator import attrgetter
from sys import getrefcount
from typing import Any, Final

from telegrad.arrays import silent
from telegrad.arrays.ownership import IS_LOCKED
from telegrad.engine.task import Task, freed_error
from telegrad.graph import Contributions, Cotangent, Node, reachable


def _count_alone(held: list[Any]) -> int:
    value = held.pop()
    return getrefcount(value)


_ALONE: Final = _count_alone([object()])
"""References to a value that a local variable here alone knows: note COUNTS in engine/local.py."""

_by_key = attrgetter("key")


class GraphTask(Task, eq=False):
    """The state of one pass; see the module's docstring for the steps."""

    needed: set[Node] | None = None
    """The nodes on a path to a target, after ``count``; None: all."""
    missing: dict[Node, int] = {}
    """How many contributions a leaf still waits for."""
    buffers: dict[Node, Cotangent] = {}
    """The sum of what has come, for nodes that have not run."""
    _order: list[Node] = []
    """The nodes to run, newest last."""
    _owned: set[Node] = set()
    """Nodes whose sum was made here, so that it may be added to in place."""

    def count(self, roots: Iterable[Node]) -> None:
        """Find the nodes to run, and count the contributions that each leaf will receive."""
        missing, order = self.missing, self._order
        if self.targets is not None:
            order += self._needed_nodes(roots)
            for node in order:
                if node.freed and not self.ends_at(node):
                    raise freed_error(node)
                for edge in node.edges:
                    if edge.key < 0:
                        missing[edge] = missing.get(edge, 0) + 1
            return
        order += [root for root in roots if root.key >= 0]
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

    def _needed_nodes(self, roots: Iterable[Node]) -> list[Node]:
        """Find what leads to a target, or is one; return those that are no leaves, newest last."""
        needed = self.needed = set()
        targets, order = self.targets or (), []
        for node in reversed(reachable(roots)):
            if node in targets or not needed.isdisjoint(node.edges):
                needed.add(node)
                if node.key >= 0:
                    order.append(node)
            elif node.is_boundary:
                # What lies behind it may well lead to a target.
                raise freed_error(node)
        return order

    def ends_at(self, target: Node) -> bool:
        return self.needed is not None and self.needed.isdisjoint(target.edges)

    @silent
    def run(self, roots: Mapping[Node, Cotangent]) -> None:
        """Run all that was counted, to the end."""
        buffers, missing, owned, keep = self.buffers, self.missing, self._owned, self.keep_graph
        order, recorded, needed = self._order, self.recorded, self.needed
        # Without the lock a pass of another thread may come to a node whose count was just read.
        may_be_shared = keep or not IS_LOCKED
        for root, cotangent in roots.items():
            if needed is None or root in needed:
                buffers[root] = cotangent
                if root.key < 0 and root not in missing:
                    self._finish(root)
        targets, is_checked = self.targets or (), self.check is not None
        is_special = needed is not None or is_checked
        node: Node | None = None
        edge: Node | None = None
        contribution: Cotangent | None
        finished: list[Node] = []
        try:
            while order:
                node = order.pop()
                cotangent = buffers.pop(node, None)
                if cotangent is None:
                    self._skip(node)
                    continue
                if node.hooks is not None or (is_special and (is_checked or node in targets)):
                    contributions = self._run_observed(node, cotangent)
                else:
                    try:
                        contributions = (
                            node.pull_recorded(cotangent) if recorded else node.pull(cotangent)
                        )
                    except Exception as error:
                        if node.freed:
                            raise freed_error(node) from error
                        raise
                    # A node that nobody else refers to can't run again, and goes by itself.
                    if may_be_shared or getrefcount(node) > _ALONE:
                        if node.freed:
                            # Another pass freed it in between: the results may be wrong.
                            raise freed_error(node)
                        if not keep:
                            node.release()
                cotangent = None
                edges = node.edges
                if needed is not None:
                    contributions = [
                        c if e in needed else None for e, c in zip(edges, contributions)
                    ]
                if len(edges) == 1 and edges[0].key >= 0 and edges[0] not in buffers:
                    # Most nodes: one edge, to a node that nothing has come to yet. None is nothing.
                    buffers[edges[0]] = contributions[0]
                    edges = ()
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
                edge, edges = None, ()
                if finished:
                    # Only the buffers may know a leaf's gradient, so that it need not be copied.
                    contributions, contribution, before = (), None, None
                    for leaf in finished:
                        self._finish(leaf)
                    finished.clear()
        except Exception as error:
            if node is not None:
                node.explain(error)
            raise

    def _run_observed(self, node: Node, cotangent: Cotangent) -> Contributions:
        """Run a node with hooks, a target, or one that is checked."""
        cotangent = self.before(node, cotangent)
        if cotangent is None:
            return (None,) * len(node.edges)
        return self.run_with_hooks(node, cotangent)

    def _skip(self, node: Node) -> None:
        """Pass by a node that no contribution came to."""
        for edge in node.edges:
            if edge.key < 0:
                self.missing[edge] -= 1
                if not self.missing[edge]:
                    self._finish(edge)

    def _finish(self, leaf: Node) -> None:
        """Deliver the complete gradient of a leaf, if any came."""
        gradient = self.buffers.pop(leaf, None)
        if gradient is None:
            return
        is_alone = getrefcount(gradient) <= _ALONE
        if leaf.hooks is None:
            self.deliver(leaf, gradient, is_alone)
        else:
            self.finish_hooked_leaf(leaf, gradient)
