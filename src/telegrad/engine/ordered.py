"""One worker's part of a pass over several: contributions come in any order, sums have a fixed one.

In such a pass the order in which contributions arrive depends on timing, so it can't be the order
of a sum. Here every node that the entries reach gets a *rank*: its place in a walk that follows the
entries in their given order and the edges of each node in theirs. Ranks depend on the program
alone, not on when a message came; a node's contributions are summed by the ranks of those that made
them, so the sum has the same bits on every schedule.

Contributions are folded as soon as all with smaller ranks are in; only early ones are held.

1. ``count(entries)``: ranks, and for each node the contributors to expect; behind a chain, once
   that has run. With ``is_goal``, nodes that lead to no goal are *skipped*: nothing of them runs.
   Whatever contributes to a node that leads to a goal leads there itself, so what is left receives
   the same contributions as ever.
2. ``feed(node, cotangent)``: a cotangent from outside, before all contributions.
3. ``run()``: runs what is ready. A boundary hands its cotangent to ``depart``; once enough is to
   leave, or some time has passed, ``run`` pauses, so that the caller can send it before the rest
   runs. What remains in ``sums`` at the end waits for contributors that have not run.
4. ``discover(nodes)``: which nodes do these, that wait, reach? New boundaries are returned.
5. ``drop_dead()``: forget the contributors that neither ran nor are live, so that waiting nodes
   need only those that will come (step 6 in ``distributed/README.md``).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import inf
from sys import getrefcount, maxsize
from typing import Any, Final, Protocol, TypeAlias

from telegrad.arrays import silent
from telegrad.engine.task import Task, freed_error
from telegrad.errors import InternalError
from telegrad.graph import Contributions, Cotangent, Node, added


def _count_alone(held: list[Any]) -> int:
    value = held.pop()
    return getrefcount(value)


_ALONE: Final = _count_alone([object()])
"""References to a value that a local variable here alone knows: note COUNTS in engine/local.py."""

Clock: TypeAlias = Callable[[], float]


class Sum:
    """The contributions to one node: the folded prefix, and those that came early."""

    __slots__ = ("early", "expected", "is_owned", "position", "total")

    def __init__(self, expected: list[int]) -> None:
        self.expected = expected
        """The contributors' ranks, ascending; one for each edge."""
        self.position = 0
        """How many of the expected contributions are in ``total``."""
        self.total: Cotangent | None = None
        self.is_owned = False
        """Whether ``total`` was made here, so that it may be added to in place."""
        self.early: dict[int, list[Cotangent | None]] = {}
        """By rank, the contributions that came before their turn."""

    def add(self, rank: int, contribution: Cotangent | None) -> None:
        position = self.position
        if not self.early and self.expected[position] == rank:
            self.add_now(contribution)
            self.position = position + 1
            return
        self.early.setdefault(rank, []).append(contribution)
        self.fold()

    def fold(self) -> None:
        """Add what is next in order, as long as it is there."""
        expected, early = self.expected, self.early
        while self.position < len(expected):
            rank = expected[self.position]
            waiting = early.get(rank)
            if not waiting:
                break
            self.add_now(waiting.pop(0))
            self.position += 1
            if not waiting:
                del early[rank]

    def add_now(self, contribution: Cotangent | None) -> None:
        if contribution is None:
            return
        if self.total is None:
            self.total = contribution
            return
        try:
            if self.is_owned and type(contribution) is type(self.total):
                self.total += contribution
            else:
                self.total = self.total + contribution
        except RuntimeError:
            self.total = added(contribution, self.total)
        self.is_owned = True

    @property
    def is_complete(self) -> bool:
        return self.position == len(self.expected)


class RegionPool(Protocol):
    """Runs nodes for a task, some of them on other threads; in passes that are not recorded."""

    def run(self, node: Node, cotangent: Cotangent) -> Contributions | None:
        """Return what the node gives; None if it runs on another thread now."""

    def take_in(self) -> tuple[Node, Contributions, Exception | None] | None:
        """Return a node that has run there, with what it gave or raised; None if there is none."""


class OrderedTask(Task, eq=False, kw_only=True):
    """The state of one worker's part of a pass; see the module's docstring for the steps."""

    depart: Callable[[Any, Cotangent | None], bool]
    """Called with a boundary and its cotangent; tells whether that leaves."""
    watch: Callable[[str], AbstractContextManager[Any]] | None = None
    """Makes what is entered while a node runs, given its name: for a profile."""
    joined: Mapping[Node, Sequence[Node]] = {}
    """Boundaries that this pass goes on behind, with the edges they have in it."""
    pool: RegionPool | None = None
    """Runs nodes side by side; None: they run on this thread, one by one."""
    is_goal: Callable[[Node], bool] | None = None
    """Which nodes the pass is for; None for all."""
    skipped: frozenset[Node] = frozenset()
    """Nodes that lead to no goal."""
    ranks: dict[Node, int] = {}
    sums: dict[Node, Sum] = {}
    """Nodes that received something and have not run: after ``run``, those that wait."""
    done: set[Node] = set()
    ready: dict[Node, Cotangent | None] = {}
    """Nodes that can run, with their complete cotangents; the last runs next. Others read only."""
    live: dict[Node, None] = {}
    """What ``discover`` has marked: reached, and not run yet."""
    _expected: dict[Node, list[int]] = {}
    """By node, the ranks of its contributors, ascending; one for each edge."""
    _summed: set[Node] = set()
    """Nodes with more than one contribution, counting what is fed; the others just get theirs."""
    _is_chain: bool = False
    """Whether all that has run was a chain, and what it leads to is not ranked yet."""
    _leaving: int = 0
    """How many boundaries' cotangents have left in this ``run``."""

    @classmethod
    def ended(cls) -> "OrderedTask":
        """Return a task without a graph: running it is an error."""
        return cls(_ended, depart=_ended)

    def count(self, entries: Iterable[Node]) -> None:
        """Rank everything that the entries reach, and note each node's contributors."""
        stack = [*entries]
        if len(stack) == 1 and self.is_goal is None:
            # It leads to its first node with several edges as a chain, which has nothing to sum,
            # so nobody asks for its ranks: what comes after is counted when the pass gets there.
            self._is_chain = True
        else:
            self._rank(stack)
        if self.is_goal is not None:
            self._skip_all_but(self.is_goal)

    def _rank(self, stack: list[Node]) -> None:
        """Rank what these nodes reach, in their order; uses the list up."""
        ranks, expected, joined = self.ranks, self._expected, self.joined
        stack.reverse()
        while stack:
            node = stack.pop()
            if node in ranks:
                continue
            rank = ranks[node] = len(ranks)
            edges = node.edges if not joined else joined.get(node, node.edges)
            for edge in edges:
                if edge in expected:
                    expected[edge].append(rank)
                    self._summed.add(edge)
                else:
                    expected[edge] = [rank]
            stack += edges[::-1]

    def _skip_all_but(self, is_goal: Callable[[Node], bool]) -> None:
        """Go from the goals to those who contribute to them, and to theirs; skip the others."""
        nodes = list(self.ranks)
        stack = [node for node in nodes if is_goal(node)]
        needed = set(stack)
        while stack:
            for rank in self._expected.get(stack.pop(), ()):
                contributor = nodes[rank]
                if contributor not in needed:
                    needed.add(contributor)
                    stack.append(contributor)
        self.skipped = frozenset(nodes) - needed

    def feed(self, node: Node, cotangent: Cotangent) -> None:
        """Add a cotangent from outside; the node becomes ready if it expects nothing else."""
        ready = self.ready
        if self.skipped and node in self.skipped:
            return
        if node in ready:
            ready[node] = ready[node] + cotangent
        elif node not in self._expected and node not in self.done:
            # Nothing to sum.
            ready[node] = cotangent
        else:
            # The sum of a node that has run stays, so the pass can't end as if this cotangent had
            # not come.
            self._summed.add(node)
            self._sum_of(node).add_now(cotangent)

    def _sum_of(self, node: Node) -> Sum:
        found = self.sums.get(node)
        if found is None:
            found = self.sums[node] = Sum(self._expected.get(node, []))
        return found

    @silent
    def run(self, most: int = maxsize, pause_at: float = inf, clock: Clock = float) -> None:
        """Run everything that is ready, and what that makes ready.

        It pauses once `most` cotangents are to leave; from `pause_at` on, a time of `clock`, once
        one is.
        """
        self._leaving = 0
        node: Node | None = None
        ready, done, summed, pool = self.ready, self.done, self._summed, self.pool
        recorded, keep, joined, skipped = self.recorded, self.keep_graph, self.joined, self.skipped
        is_plain = self.watch is None and self.check is None and not self.targets
        try:
            while ready or pool is not None:
                if self._leaving and (self._leaving >= most or clock() >= pause_at):
                    return
                if ready:
                    node, cotangent = ready.popitem()
                    done.add(node)
                    if node.key < 0:
                        if cotangent is not None:
                            is_alone = getrefcount(cotangent) <= _ALONE
                            if node.hooks is None:
                                self.deliver(node, cotangent, is_alone)
                            else:
                                self.finish_hooked_leaf(node, cotangent)
                        continue
                    edges = node.edges if not joined else joined.get(node, node.edges)
                    if not is_plain or cotangent is None or node.hooks is not None:
                        contributions = self._run_observed(node, cotangent, edges)
                    elif node.is_boundary:
                        if node not in joined:
                            self._leaving += self.depart(node, cotangent)
                            continue
                        pull = node.pull_recorded if recorded else node.pull
                        contributions = pull(cotangent)
                    else:
                        try:
                            if pool is not None:
                                given = pool.run(node, cotangent)
                                if given is None:
                                    continue
                                contributions = given
                            elif recorded:
                                contributions = node.pull_recorded(cotangent)
                            else:
                                contributions = node.pull(cotangent)
                        except Exception as error:
                            if node.freed:
                                raise freed_error(node) from error
                            raise
                        if node.freed:
                            # By an earlier pass, or by another one just now: it may be wrong.
                            raise freed_error(node)
                        if not keep:
                            node.release()
                elif pool is None or (ran := pool.take_in()) is None:
                    return
                else:
                    node, contributions, failure = ran
                    if failure is not None:
                        raise failure
                    if not keep:
                        node.release()
                    edges = node.edges
                cotangent = None
                if self._is_chain:
                    if len(edges) == 1:
                        ready[edges[0]] = contributions[0]
                        contributions = ()
                        continue
                    self._is_chain = False
                    self._rank([node])
                for edge, contribution in zip(edges, contributions):
                    if skipped and edge in skipped:
                        continue
                    if edge not in summed:
                        ready[edge] = contribution
                        continue
                    total = self._sum_of(edge)
                    total.add(self.ranks[node], contribution)
                    if total.is_complete:
                        ready[edge] = self.sums.pop(edge).total
                        del total
                contributions, contribution = (), None
        except Exception as error:
            if node is not None:
                node.explain(error)
            raise

    def _run_observed(
        self, node: Node, cotangent: Cotangent | None, edges: Sequence[Node]
    ) -> Contributions:
        """Run any node: one with hooks, a target, one that is watched or checked, a boundary."""
        leaves = node.is_boundary and node not in self.joined
        if cotangent is not None:
            cotangent = self.before(node, cotangent)
            if cotangent is None:
                return ()
            if not leaves:
                return self.run_with_hooks(node, cotangent)
        if leaves:
            # Without a cotangent, too: the other side waits, and must hear that nothing comes.
            with self._watched(node):
                self._leaving += self.depart(node, cotangent)
        return (None,) * len(edges)

    def ends_at(self, target: Node) -> bool:
        if not self.skipped or target.is_boundary:
            return False
        return self.skipped.issuperset(self.joined.get(target, target.edges))

    def pull(self, node: Node, cotangent: Cotangent) -> Contributions:
        with self._watched(node):
            return node.pull_recorded(cotangent) if self.recorded else node.pull(cotangent)

    def _watched(self, node: Node) -> AbstractContextManager[Any]:
        return nullcontext() if self.watch is None else self.watch(node.name())

    def end(self) -> None:
        """Drop the callbacks: they refer to the maker of this task, and that refers to it."""
        self.deliver = self.depart = _ended
        self.is_goal = None

    def discover(self, nodes: Iterable[Node]) -> list[Node]:
        """Mark these nodes and what they reach as live; return the boundaries met first.

        None of it has run: each still lacks the contribution of the one it is reached from.
        """
        boundaries = []
        stack = list(nodes)
        while stack:
            node = stack.pop()
            if node in self.live or node in self.skipped:
                continue
            self.live[node] = None
            if node in self.joined:
                stack.extend(self.joined[node])
                continue
            if node.is_boundary:
                boundaries.append(node)
            stack.extend(node.edges)
        return boundaries

    def drop_dead(self) -> None:
        """Have each live node expect only what has come and what live nodes will send."""
        ranks = self.ranks
        coming = {ranks[node] for node in (*self.done, *self.live) if node in ranks}
        for node in self.live:
            expected = self._expected.get(node)
            if expected is None:
                continue
            kept = self._expected[node] = [rank for rank in expected if rank in coming]
            total = self.sums.get(node)
            if total is not None:
                total.expected = kept
                total.fold()
                if total.is_complete:
                    self.ready[node] = self.sums.pop(node).total
        self.live = {}


def _ended(*args: Any) -> Any:
    raise InternalError("a pass that has ended went on")
