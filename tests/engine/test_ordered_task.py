"""A pass whose contributions arrive in any order gives the same bits, and ends in any case."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.fakes import FakeLeaf, FakeNode, Log

from telegrad.engine import GraphTask, OrderedTask
from telegrad.errors import GraphFreedError


def task_of(log: Log, **options: Any) -> OrderedTask:
    return OrderedTask(log.deliver, depart=log.depart, **({"keep_graph": True} | options))


def test_every_order_of_arrival_gives_the_same_bits() -> None:
    results = set()
    for order in permutations(range(4)):
        log = Log()
        x = FakeLeaf("x")
        sends = [FakeNode(f"send {i}", (x,)) for i in range(4)]
        task = task_of(log)
        task.count(sends)
        for i in order:
            # Values whose sum depends on the order in which they are added.
            task.feed(sends[i], (1.0, 1e16, -1e16, 3.0)[i])
            task.run()
        results.add(log.delivered["x"])
    assert results == {((1.0 + 1e16) + -1e16) + 3.0}


def test_a_sum_changes_none_of_its_contributions() -> None:
    for order in permutations(range(3)):
        log = Log()
        x = FakeLeaf("x")
        sends = [FakeNode(f"send {i}", (x,), pull=lambda cotangent: (cotangent,)) for i in range(3)]
        given = [np.full(2, float(i)) for i in range(3)]
        task = task_of(log)
        task.count(sends)
        for i in order:
            task.feed(sends[i], given[i])
            task.run()
        assert log.delivered["x"].tolist() == [3.0, 3.0]
        assert [each.tolist() for each in given] == [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]


def test_an_entry_that_is_fed_twice_runs_once_with_the_sum() -> None:
    log = Log()
    x = FakeLeaf("x")
    entry = FakeNode("entry", (x,), log=log)
    task = task_of(log)
    task.count([entry])
    task.feed(entry, 1)
    task.feed(entry, 10)
    task.run()
    assert log.delivered == {"x": 11}


def test_what_is_fed_to_a_node_that_has_run_is_left_as_a_sum_that_waits() -> None:
    log = Log()
    entry = FakeNode("entry", (FakeLeaf("x"),), log=log)
    task = task_of(log)
    task.count([entry])
    for cotangent in (1, 10):
        task.feed(entry, cotangent)
        task.run()
    assert log.ran == ["entry"]
    assert list(task.sums) == [entry]


def test_what_is_fed_to_a_node_that_another_contributes_to_is_summed_with_that() -> None:
    log = Log()
    x = FakeLeaf("x")
    inner = FakeNode("inner", (x,), log=log)
    outer = FakeNode("outer", (inner,), log=log)
    task = task_of(log)
    task.count([outer, inner])
    task.feed(inner, 10)
    task.feed(outer, 1)
    task.run()
    assert log.ran == ["outer", "inner"]
    assert log.delivered == {"x": 11}


def test_what_came_early_is_held_until_its_turn() -> None:
    log = Log()
    x = FakeLeaf("x")
    first, second = FakeNode("first", (x,)), FakeNode("second", (x,))
    task = task_of(log)
    task.count([first, second])
    task.feed(second, 10)
    task.run()
    assert log.delivered == {}
    assert x in task.sums
    task.feed(first, 1)
    task.run()
    assert log.delivered == {"x": 11}
    assert task.sums == {}


def test_what_lies_behind_a_chain_is_ranked_once_the_chain_has_run() -> None:
    log = Log()
    x = FakeLeaf("x")
    # Values whose sum depends on the order in which they are added.
    branches = [FakeNode(f"branch {i}", (x,), (w,)) for i, w in enumerate((1.0, 1e16, -1e16, 3.0))]
    fork = FakeNode("fork", branches, log=log)
    chain = FakeNode("chain", (FakeNode("link", (fork,), log=log),), log=log)
    task = task_of(log)
    task.count([chain])
    assert task.ranks == {}
    task.feed(chain, 1.0)
    task.run()
    assert list(task.ranks) == [fork, branches[0], x, *branches[1:]]
    assert log.ran == ["chain", "link", "fork"]
    assert log.delivered == {"x": ((1.0 + 1e16) + -1e16) + 3.0}
    # What is fed too often waits, and is not for a search to help: the chain has no ranks.
    task.feed(chain, 1.0)
    assert task.discover(task.sums) == []
    task.drop_dead()
    assert list(task.sums) == [chain]


def test_a_call_that_nobody_used_is_found_and_no_longer_waited_for() -> None:
    log = Log()
    x = FakeLeaf("x")
    argument = FakeNode("argument", (x,), (2,), log=log)
    used, unused = FakeNode("used", (argument,)), FakeNode("unused", (argument,))
    task = task_of(log)
    task.count([used, unused])
    task.feed(used, 1)
    task.run()
    assert list(task.sums) == [argument]
    assert task.discover(task.sums) == []
    task.drop_dead()
    task.run()
    assert log.delivered == {"x": 2}
    assert task.sums == {}


def test_discovery_stops_at_boundaries_and_names_each_once() -> None:
    log = Log()
    received = FakeNode("received", is_boundary=True)
    waiting = FakeNode("waiting", (received, received))
    used, unused = FakeNode("used", (waiting,)), FakeNode("unused", (waiting,))
    task = task_of(log)
    task.count([used, unused])
    task.feed(used, 1)
    task.run()
    assert task.discover(task.sums) == [received]
    assert task.discover(task.sums) == []
    task.drop_dead()
    task.run()
    assert log.departed == {"received": 2}


def test_the_other_side_of_a_boundary_hears_that_nothing_comes() -> None:
    log = Log()
    received = FakeNode("received", is_boundary=True)
    root = FakeNode("root", (received,), (None,))
    task = task_of(log)
    task.count([root])
    task.feed(root, 1)
    task.run()
    assert log.departed == {"received": None}


def test_a_target_is_delivered_on_the_way() -> None:
    log = Log()
    inner = FakeNode("inner", (FakeLeaf("x"),), (2,))
    root = FakeNode("root", (inner,), (3,))
    task = task_of(log, targets={inner})
    task.count([root])
    task.feed(root, 1)
    task.run()
    assert log.delivered == {"inner": 3, "x": 6}


def test_what_leads_to_no_goal_is_skipped_and_the_rest_gets_the_same_sums() -> None:
    log = Log()
    x, y = FakeLeaf("x"), FakeLeaf("y")
    received = FakeNode("received", is_boundary=True)
    needless = FakeNode("needless", (y,), (7,), log=log)
    inner = FakeNode("inner", (x, needless, received), (2, 3, 5), log=log)
    send = FakeNode("send", (needless,), log=log)
    task = task_of(log)
    task.is_goal = lambda node: node is x or node.is_boundary
    task.count([inner, send])
    assert task.skipped == {y, needless, send}
    task.feed(send, 1)
    task.feed(inner, 1)
    task.run()
    assert log.ran == ["inner"]
    assert (log.delivered, log.departed) == ({"x": 2}, {"received": 5})
    assert task.sums == {}


def test_a_node_that_is_skipped_is_neither_waited_for_nor_searched() -> None:
    log = Log()
    x, y = FakeLeaf("x"), FakeLeaf("y")
    used, unused = FakeNode("used", (x, y)), FakeNode("unused", (x, y))
    task = task_of(log)
    task.is_goal = lambda node: node is y
    task.count([used, unused])
    task.feed(used, 1)
    task.run()
    assert list(task.sums) == [y]
    task.discover(task.sums)
    task.drop_dead()
    task.run()
    assert log.delivered == {"y": 1}


def test_a_target_with_nothing_needed_behind_it_does_not_run() -> None:
    log = Log()
    inner = FakeNode("inner", (FakeLeaf("x"),), (2,), log=log)
    root = FakeNode("root", (inner,), (3,), log=log)
    task = task_of(log, targets={inner})
    task.is_goal = lambda node: node is inner
    task.count([root])
    task.feed(root, 1)
    task.run()
    assert log.delivered == {"inner": 3}
    assert log.ran == ["root"]


def test_a_freed_node_is_refused_and_the_error_says_where() -> None:
    log = Log()
    inner = FakeNode("inner", (FakeLeaf("x"),))
    inner.freed = True
    root = FakeNode("root", (inner,))
    task = task_of(log)
    task.count([root])
    task.feed(root, 1)
    with pytest.raises(GraphFreedError, match="got inner") as caught:
        task.run()
    assert caught.value.__notes__ == ["while inner ran"]
    assert log.delivered == {}


@pytest.mark.parametrize("error", [None, TypeError("a saved value is gone")])
@pytest.mark.parametrize("is_target", [False, True])
@pytest.mark.parametrize("keep", [False, True])
def test_a_node_that_another_pass_frees_while_it_runs_is_refused(
    keep: bool, is_target: bool, error: Exception | None
) -> None:
    log = Log()

    def pull(cotangent: Any) -> list[Any]:
        root.release()
        if error is not None:
            raise error
        return [cotangent]

    root = FakeNode("root", (FakeLeaf("x"),), pull=pull)
    task = task_of(log, keep_graph=keep, targets=[root] if is_target else [])
    task.count([root])
    task.feed(root, 1)
    with pytest.raises(GraphFreedError, match="got root") as caught:
        task.run()
    assert caught.value.__cause__ is error
    assert "x" not in log.delivered


@pytest.mark.parametrize("keep", [False, True])
def test_nodes_are_released_as_they_run_unless_the_graph_is_kept(keep: bool) -> None:
    root = FakeNode("root", (FakeLeaf("x"),))
    task = task_of(Log(), keep_graph=keep)
    task.count([root])
    task.feed(root, 1)
    task.run()
    assert root.freed is not keep


@st.composite
def graphs(draw: Any) -> list[list[int]]:
    """For each node the earlier ones it was computed from; -1 and -2 are the leaves."""
    size = draw(st.integers(1, 12))
    return [draw(st.lists(st.integers(-2, i - 1), min_size=1, max_size=3)) for i in range(size)]


@given(graphs(), st.data())
def test_both_tasks_run_the_same_nodes_for_the_same_targets(
    graph: list[list[int]], data: Any
) -> None:
    logs = Log(), Log()
    leaves = {-1: FakeLeaf("x"), -2: FakeLeaf("y")}
    chosen = data.draw(st.sets(st.integers(-2, len(graph) - 1), min_size=1, max_size=3))
    tasks = []
    for log in logs:
        nodes: list[FakeNode] = []
        for i, edges in enumerate(graph):
            chosen_edges = [leaves[e] if e < 0 else nodes[e] for e in edges]
            weights = [i + j + 1 for j in range(len(edges))]
            nodes.append(FakeNode(f"node {i}", chosen_edges, weights, log=log))
        targets = {leaves[i] if i < 0 else nodes[i] for i in chosen}
        tasks.append((nodes[-1], targets))
    root, targets = tasks[0]
    local = GraphTask(logs[0].deliver, keep_graph=True, targets=targets)
    local.count([root])
    local.run({root: 1})
    root, targets = tasks[1]
    task = task_of(logs[1], targets=targets)
    task.is_goal = targets.__contains__
    task.count([root])
    task.feed(root, 1)
    task.run()
    assert logs[1].delivered == logs[0].delivered
    assert sorted(logs[1].ran) == sorted(logs[0].ran)


@given(graphs(), st.randoms(use_true_random=False))
def test_both_tasks_give_the_same_gradients_on_random_graphs(
    graph: list[list[int]], random: Any
) -> None:
    leaves = {-1: FakeLeaf("x"), -2: FakeLeaf("y")}
    nodes: list[FakeNode] = []
    for i, edges in enumerate(graph):
        chosen = [leaves[e] if e < 0 else nodes[e] for e in edges]
        nodes.append(FakeNode(f"node {i}", chosen, [i + j + 1 for j in range(len(edges))]))
    reached = {e for edges in graph for e in edges}
    roots = [node for i, node in enumerate(nodes) if i not in reached]
    expected = Log()
    local = GraphTask(expected.deliver, keep_graph=True)
    local.count(roots)
    local.run(dict.fromkeys(roots, 1))
    for _ in range(3):
        log = Log()
        task = task_of(log)
        task.count(roots)
        for root in random.sample(roots, len(roots)):
            task.feed(root, 1)
            task.run()
        assert log.delivered == expected.delivered
        assert task.sums == {}


def test_a_pass_pauses_after_so_many_departures_and_goes_on() -> None:
    results = []
    for most in (1, 2, 3, 7):
        log = Log()
        recvs = [FakeNode(f"recv {i}", is_boundary=True) for i in range(5)]
        root = FakeNode("root", recvs, (1, 2, 3, 4, 5), log=log)
        task = task_of(log)
        task.count([root])
        task.feed(root, 10)
        rounds = []
        task.run(most)
        rounds.append(len(log.departed))
        while task.ready:
            task.run(most)
            rounds.append(len(log.departed))
        assert rounds == [min(most * (i + 1), 5) for i in range(-(-5 // most))]
        results.append(log.departed)
    assert all(result == results[0] for result in results)


def test_a_pass_pauses_when_one_is_to_leave_and_the_time_has_come() -> None:
    log = Log()
    x = FakeLeaf("x")
    recv = FakeNode("recv", is_boundary=True)
    work = [FakeNode("work 2", (x,), log=log)]
    work.append(FakeNode("work 1", (work[0],), log=log))
    root = FakeNode("root", (work[1], recv), log=log)
    task = task_of(log)
    task.count([root])
    task.feed(root, 10)
    # By a clock that ticks with each node. The boundary is ready before the rest has run.
    task.run(pause_at=2, clock=lambda: len(log.ran))
    assert (log.ran, log.departed) == (["root", "work 1"], {"recv": 10})
    task.run(pause_at=2, clock=lambda: len(log.ran))
    assert log.delivered == {"x": 10}
    assert not task.ready


class FakePool:
    """Runs what it is given when it is asked for news, last first."""

    def __init__(self, refuses: tuple[Any, ...] = ()) -> None:
        self._refuses = refuses
        self._given: list[tuple[Any, Any]] = []

    def run(self, node: Any, cotangent: Any) -> Any:
        if node in self._refuses:
            return node.pull(cotangent)
        self._given.append((node, cotangent))
        return None

    def take_in(self) -> tuple[Any, Any, Exception | None] | None:
        if not self._given:
            return None
        node, cotangent = self._given.pop()
        try:
            return node, node.pull(cotangent), None
        except ArithmeticError as error:
            return node, None, error


def test_what_a_pool_runs_is_taken_in_in_any_order_and_summed_in_one() -> None:
    log = Log()
    x = FakeLeaf("x")
    pieces = [FakeNode(f"piece {i}", (x,), log=log) for i in range(4)]
    task = task_of(log, keep_graph=False)
    task.pool = FakePool(refuses=(pieces[2],))
    task.count(pieces)
    for piece, value in zip(pieces, (1.0, 1e16, -1e16, 3.0)):
        task.feed(piece, value)
    task.run()
    assert log.ran == ["piece 2", "piece 0", "piece 1", "piece 3"]
    assert log.delivered == {"x": ((1.0 + 1e16) + -1e16) + 3.0}
    assert all(piece.freed for piece in pieces)


def test_what_a_pool_raises_is_raised_by_the_pass() -> None:
    def fail(cotangent: Any) -> Any:
        raise ZeroDivisionError("a piece that fails")

    log = Log()
    piece = FakeNode("piece", (FakeLeaf("x"),), pull=fail)
    task = task_of(log)
    task.pool = FakePool()
    task.count([piece])
    task.feed(piece, 1)
    with pytest.raises(ZeroDivisionError, match="a piece that fails"):
        task.run()
    assert log.delivered == {}
