"""Where a pass stops: at targets."""

from typing import Any

from tests.engine.fakes import FakeLeaf, FakeNode, Log

from telegrad.engine import GraphTask


def run(log: Log, targets: Any, roots: dict[Any, Any]) -> None:
    task = GraphTask(log.deliver, targets=targets)
    task.count(roots)
    task.run(roots)


def test_only_nodes_on_a_path_to_a_target_run() -> None:
    log = Log()
    x, y = FakeLeaf("x"), FakeLeaf("y")
    left = FakeNode("left", (x,), (2,), log=log)
    right = FakeNode("right", (y,), (3,), log=log)
    root = FakeNode("root", (left, right), log=log)
    run(log, {x}, {root: 1})
    assert log.ran == ["root", "left"]
    assert log.delivered == {"x": 2}


def test_a_pass_ends_at_a_target_that_is_not_a_leaf_and_does_not_free_it() -> None:
    log = Log()
    inner = FakeNode("inner", (FakeLeaf("x"),), (2,), log=log)
    root = FakeNode("root", (inner,), (3,), log=log)
    run(log, {inner}, {root: 1})
    assert log.ran == ["root"]
    assert log.delivered == {"inner": 3}
    assert root.freed
    assert not inner.freed


def test_a_target_on_the_way_to_another_one_is_delivered_and_passed() -> None:
    log = Log()
    x = FakeLeaf("x")
    inner = FakeNode("inner", (x,), (2,), log=log)
    root = FakeNode("root", (inner,), (3,), log=log)
    run(log, {inner, x}, {root: 1})
    assert log.delivered == {"inner": 3, "x": 6}


def test_a_freed_node_beyond_the_targets_does_not_matter() -> None:
    log = Log()
    beyond = FakeNode("beyond", (FakeLeaf("x"),))
    beyond.freed = True
    inner = FakeNode("inner", (beyond,), log=log)
    root = FakeNode("root", (inner,), (3,), log=log)
    run(log, {inner}, {root: 1})
    assert log.delivered == {"inner": 3}


def test_a_root_that_reaches_no_target_runs_nothing() -> None:
    log = Log()
    root = FakeNode("root", (FakeLeaf("x"),), log=log)
    run(log, {FakeLeaf("elsewhere")}, {root: 1})
    assert log.ran == []
    assert log.delivered == {}


def test_a_root_that_leads_to_no_target_is_ignored_beside_one_that_does() -> None:
    log = Log()
    x, y = FakeLeaf("x"), FakeLeaf("y")
    root, stranger = FakeNode("root", (x,), log=log), FakeNode("stranger", (y,), log=log)
    run(log, {x}, {root: 1, stranger: 1, y: 1})
    assert log.ran == ["root"]
    assert log.delivered == {"x": 1}


def test_a_target_that_nothing_comes_to_is_not_delivered_and_stops_no_other() -> None:
    log = Log()
    x, y = FakeLeaf("x"), FakeLeaf("y")
    inner = FakeNode("inner", (y,), log=log)
    other = FakeNode("other", (x, y), (2, 3), log=log)
    run(log, {inner, x}, {FakeNode("root", (inner, other), (None, 1)): 1})
    assert log.ran == ["other"]
    assert log.delivered == {"x": 2}


def test_sums_at_a_target_have_the_order_of_a_whole_pass() -> None:
    log = Log()
    x = FakeLeaf("x")
    # In this order the large terms cancel before the small one comes: any other order loses it.
    middle = [FakeNode("middle", (x,), (weight,)) for weight in (1.0, -1e17, 1e17)]
    run(log, {x}, {FakeNode("root", middle): 1.0})
    assert log.delivered == {"x": 1.0}
