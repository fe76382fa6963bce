"""One backward pass of a graph within this process: its whole state, and the loop that runs it.

1. ``count(roots)`` walks all nodes that the roots reach, sorts them by key and counts, for each
   leaf, the edges that will contribute to it. With ``targets`` only nodes on a path to a target are
   *needed*, and only those run. A freed graph is found here, before anything has changed.
2. ``run(roots)`` runs the nodes, newest key first, from the roots' cotangents. When the last edge
   into a leaf has contributed, the leaf's gradient goes to ``deliver``, which is told whether
   nothing else refers to it.

``count`` also finds boundaries, behind which the graph continues on other workers: this task can't
run such a pass (``BoundaryReached``).

Sums have a fixed order. All contributors to a node are newer than it, so if nodes run by falling
key, each cotangent is complete in its turn, and contributions are added by falling key, too.

Note COUNTS. A reference count tells whether anything else refers to a value. Interpreters differ in
what they count for a local variable, and compiled code (Cython, mypyc) counts one less, since it
lends a function its arguments. So each module that reads such a count measures once what it reads
for a value that only it holds. With a number measured elsewhere, a shared value could be taken for
an unshared one, and two leaves would share a gradient's memory.
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
"""References to a value that only one local variable here holds: note COUNTS in engine/local.py."""

_by_key = attrgetter("key")


class GraphTask(Task, eq=False):
    """The state of one pass; see the module's docstring for the steps."""

    needed: set[Node] | None = None
    """The nodes on a path to a target, after ``count``; None: all."""
    missing: dict[Node, int] = {}
    """The number of contributions that each leaf still waits for."""
    buffers: dict[Node, Cotangent] = {}
    """For each node that has not run, the sum of its contributions so far."""
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
        """Find targets and nodes that lead to one; return those that are no leaves, newest last."""
        needed = self.needed = set()
        targets, order = self.targets or (), []
        for node in reversed(reachable(roots)):
            if node in targets or not needed.isdisjoint(node.edges):
                needed.add(node)
                if node.key >= 0:
                    order.append(node)
            elif node.is_boundary:
                # The graph behind it may lead to a target.
                raise freed_error(node)
        return order

    def ends_at(self, target: Node) -> bool:
        return self.needed is not None and self.needed.isdisjoint(target.edges)

    @silent
    def run(self, roots: Mapping[Node, Cotangent]) -> None:
        """Run all counted nodes."""
        buffers, missing, owned, keep = self.buffers, self.missing, self._owned, self.keep_graph
        order, recorded, needed = self._order, self.recorded, self.needed
        # Without the lock, another thread's pass may reach a node whose count was just read.
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
                    # A node without other references can't run again, and is freed by itself.
                    if may_be_shared or getrefcount(node) > _ALONE:
                        if node.freed:
                            # Another pass freed it meanwhile: the results may be wrong.
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
                    # Most nodes have one edge, to a node without contributions; None is none.
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
                    # Drop other references to a leaf's gradient, so that it need not be copied.
                    contributions, contribution, before = (), None, None
                    for leaf in finished:
                        self._finish(leaf)
                    finished.clear()
        except Exception as error:
            if node is not None:
                node.explain(error)
            raise

    def _run_observed(self, node: Node, cotangent: Cotangent) -> Contributions:
        """Run a node that has hooks, is a target, or is checked."""
        cotangent = self.before(node, cotangent)
        if cotangent is None:
            return (None,) * len(node.edges)
        return self.run_with_hooks(node, cotangent)

    def _skip(self, node: Node) -> None:
        """Pass by a node that received no contribution."""
        for edge in node.edges:
            if edge.key < 0:
                self.missing[edge] -= 1
                if not self.missing[edge]:
                    self._finish(edge)

    def _finish(self, leaf: Node) -> None:
        """Deliver a leaf's complete gradient, if it has one."""
        gradient = self.buffers.pop(leaf, None)
        if gradient is None:
            return
        is_alone = getrefcount(gradient) <= _ALONE
        if leaf.hooks is None:
            self.deliver(leaf, gradient, is_alone)
        else:
            self.finish_hooked_leaf(leaf, gradient)
