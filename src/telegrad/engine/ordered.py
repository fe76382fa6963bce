"""One worker's part of a distributed pass: sums in a fixed order, whatever arrives first.

In such a pass the order in which contributions arrive depends on timing, so they can't be summed in
that order. Every node that the entries reach gets a *rank*: its place in a walk that follows the
entries in their given order and the edges of each node in theirs. Ranks depend on the program
alone, not on when a message arrived. A node's contributions are summed by the ranks of their
contributors, so a sum has the same bits on every schedule.

A contribution is added once all with smaller ranks are in; only early ones are held.

1. ``count(entries)``: assign ranks, and note each node's expected contributors; behind a chain,
   only once the chain has run. With ``is_goal``, nodes that lead to no goal are *skipped* and don't
   run. A contributor to a node that leads to a goal leads to that goal itself, so the remaining
   nodes receive the same contributions as without goals.
2. ``feed(node, cotangent)``: add a cotangent from outside, before all contributions.
3. ``run()``: run the ready nodes. A boundary hands its cotangent to ``depart``. Once there are
   enough departures, or some time has passed, ``run`` pauses, so that the caller can send them
   before the rest runs. Nodes left in ``sums`` at the end wait for contributors that did not run.
4. ``discover(nodes)``: mark the nodes that these waiting ones reach; return new boundaries.
5. ``drop_dead()``: forget contributors that neither ran nor are live, so that waiting nodes expect
   only contributions that will come (step 6 in ``distributed/README.md``).
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
"""References to a value that only one local variable here holds: note COUNTS in engine/local.py."""

Clock: TypeAlias = Callable[[], float]


class Sum:
    """The contributions to one node: the sum of a prefix, and those that arrived early."""

    __slots__ = ("early", "expected", "is_owned", "position", "total")

    def __init__(self, expected: list[int]) -> None:
        self.expected = expected
        """The contributors' ranks, ascending; one for each edge."""
        self.position = 0
        """The number of expected contributions that are in ``total``."""
        self.total: Cotangent | None = None
        self.is_owned = False
        """Whether ``total`` was made here, so that it may be added to in place."""
        self.early: dict[int, list[Cotangent | None]] = {}
        """By rank, the contributions that arrived before their turn."""

    def add(self, rank: int, contribution: Cotangent | None) -> None:
        position = self.position
        if not self.early and self.expected[position] == rank:
            self.add_now(contribution)
            self.position = position + 1
            return
        self.early.setdefault(rank, []).append(contribution)
        self.fold()

    def fold(self) -> None:
        """Add the contributions that are next in order, as far as they have arrived."""
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
    """Runs nodes for a task, some of them on other threads, in passes that are not recorded."""

    def run(self, node: Node, cotangent: Cotangent) -> Contributions | None:
        """Run a node and return its contributions, or None if it now runs on another thread."""

    def take_in(self) -> tuple[Node, Contributions, Exception | None] | None:
        """Return a finished node with its contributions or error; None if there is none."""


class OrderedTask(Task, eq=False, kw_only=True):
    """The state of one worker's part of a pass; see the module's docstring for the steps."""

    depart: Callable[[Any, Cotangent | None], bool]
    """Called with a boundary and its cotangent; tells whether the cotangent leaves."""
    watch: Callable[[str], AbstractContextManager[Any]] | None = None
    """Returns a scope to run a node in, given the node's name: for a profile."""
    joined: Mapping[Node, Sequence[Node]] = {}
    """Boundaries that this pass continues behind, with their edges in it."""
    pool: RegionPool | None = None
    """Runs nodes in parallel; None: they run on this thread, one by one."""
    is_goal: Callable[[Node], bool] | None = None
    """Tells whether a node is a goal of the pass; None: all nodes are."""
    skipped: frozenset[Node] = frozenset()
    """Nodes that lead to no goal."""
    ranks: dict[Node, int] = {}
    sums: dict[Node, Sum] = {}
    """Nodes that have some contributions and have not run: after ``run``, the waiting ones."""
    done: set[Node] = set()
    ready: dict[Node, Cotangent | None] = {}
    """Nodes that can run, with their complete cotangents; the last runs next. Others only read."""
    live: dict[Node, None] = {}
    """The nodes that ``discover`` has marked: reached, and not run yet."""
    _expected: dict[Node, list[int]] = {}
    """For each node, the ranks of its contributors, ascending; one for each edge."""
    _summed: set[Node] = set()
    """Nodes with more than one contribution, counting fed ones; the others need no sum."""
    _is_chain: bool = False
    """Whether only a chain has run so far, and the nodes behind it have no ranks yet."""
    _leaving: int = 0
    """The number of departures in this ``run``."""

    @classmethod
    def ended(cls) -> "OrderedTask":
        """Return a task without a graph, which raises an error if it is run."""
        return cls(_ended, depart=_ended)

    def count(self, entries: Iterable[Node]) -> None:
        """Rank all nodes that the entries reach, and note each node's contributors."""
        stack = [*entries]
        if len(stack) == 1 and self.is_goal is None:
            # Up to the first node with several edges the graph is a chain, which has nothing to
            # sum and needs no ranks: the rest is counted when the pass gets there.
            self._is_chain = True
        else:
            self._rank(stack)
        if self.is_goal is not None:
            self._skip_all_but(self.is_goal)

    def _rank(self, stack: list[Node]) -> None:
        """Rank the nodes that these reach, in order; this empties the list."""
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
        """Follow contributors back from the goals, and skip all nodes that this does not reach."""
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
            # For a node that has run, this sum stays, so the pass can't end without an error.
            self._summed.add(node)
            self._sum_of(node).add_now(cotangent)

    def _sum_of(self, node: Node) -> Sum:
        found = self.sums.get(node)
        if found is None:
            found = self.sums[node] = Sum(self._expected.get(node, []))
        return found

    @silent
    def run(self, most: int = maxsize, pause_at: float = inf, clock: Clock = float) -> None:
        """Run all ready nodes, and those that become ready.

        Pause after `most` departures, or after one from the time `pause_at` of `clock` on.
        """
        self._leaving = 0
        node: Node | None = None
        contributions: Contributions | None
        ready, done, summed, pool = self.ready, self.done, self._summed, self.pool
        recorded, joined, skipped = self.recorded, self.joined, self.skipped
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
                        contributions = self._pull(node, cotangent)
                        if contributions is None:
                            continue
                elif pool is None or (ran := pool.take_in()) is None:
                    return
                else:
                    node, contributions, failure = ran
                    if failure is not None:
                        raise failure
                    if not self.keep_graph:
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

    def _pull(self, node: Node, cotangent: Cotangent) -> Contributions | None:
        """Return a node's contributions, or None if it now runs on another thread."""
        contributions: Contributions | None
        try:
            if self.pool is not None:
                contributions = self.pool.run(node, cotangent)
                if contributions is None:
                    return None
            elif self.recorded:
                contributions = node.pull_recorded(cotangent)
            else:
                contributions = node.pull(cotangent)
        except Exception as error:
            if node.freed:
                raise freed_error(node) from error
            raise
        if node.freed:
            # An earlier or concurrent pass freed it: the results may be wrong.
            raise freed_error(node)
        if not self.keep_graph:
            node.release()
        return contributions

    def _run_observed(
        self, node: Node, cotangent: Cotangent | None, edges: Sequence[Node]
    ) -> Contributions:
        """Run any node: with hooks, a target, watched, checked, or a boundary."""
        leaves = node.is_boundary and node not in self.joined
        if cotangent is not None:
            cotangent = self.before(node, cotangent)
            if cotangent is None:
                return ()
            if not leaves:
                return self.run_with_hooks(node, cotangent)
        if leaves:
            # Also without a cotangent: the other side waits, and must be told that none comes.
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
        """Drop the callbacks, which form a cycle: their owner refers to this task."""
        self.deliver = self.depart = _ended
        self.is_goal = None

    def discover(self, nodes: Iterable[Node]) -> list[Node]:
        """Mark these nodes and all that they reach as live; return the newly met boundaries.

        None of them has run: each still lacks the contribution of the node it is reached from.
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
        """Make each live node expect only contributions of done and live nodes."""
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
