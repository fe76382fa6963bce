"""What is fed to a pass, and where it stops: at targets."""

from tests.engine.fakes import FakeLeaf, FakeNode, Log

from telegrad.engine import GraphTask


def test_two_cotangents_fed_to_one_entry_add() -> None:
    log = Log()
    root = FakeNode("root", (FakeLeaf("x"),), (3,), log=log)
    task = GraphTask(log.deliver)
    task.count([root])
    task.feed(root, 1)
    task.feed(root, 10)
    task.run()
    assert log.ran == ["root"]
    assert log.delivered == {"x": 33}


def test_what_is_fed_to_a_node_that_was_not_counted_is_ignored() -> None:
    log = Log()
    root, stranger = FakeNode("root", (FakeLeaf("x"),)), FakeNode("stranger", (FakeLeaf("y"),))
    task = GraphTask(log.deliver)
    task.count([root])
    task.feed(stranger, 1)
    task.run()
    assert log.delivered == {}


def test_only_nodes_on_a_path_to_a_target_run() -> None:
    log = Log()
    x, y = FakeLeaf("x"), FakeLeaf("y")
    left = FakeNode("left", (x,), (2,), log=log)
    right = FakeNode("right", (y,), (3,), log=log)
    root = FakeNode("root", (left, right), log=log)
    GraphTask(log.deliver, targets={x}).run_to_end({root: 1})
    assert log.ran == ["root", "left"]
    assert log.delivered == {"x": 2}


def test_a_pass_ends_at_a_target_that_is_not_a_leaf_and_does_not_free_it() -> None:
    log = Log()
    inner = FakeNode("inner", (FakeLeaf("x"),), (2,), log=log)
    root = FakeNode("root", (inner,), (3,), log=log)
    GraphTask(log.deliver, targets={inner}).run_to_end({root: 1})
    assert log.ran == ["root"]
    assert log.delivered == {"inner": 3}
    assert root.freed
    assert not inner.freed


def test_a_target_on_the_way_to_another_one_is_delivered_and_passed() -> None:
    log = Log()
    x = FakeLeaf("x")
    inner = FakeNode("inner", (x,), (2,), log=log)
    root = FakeNode("root", (inner,), (3,), log=log)
    GraphTask(log.deliver, targets={inner, x}).run_to_end({root: 1})
    assert log.delivered == {"inner": 3, "x": 6}


def test_a_freed_node_beyond_the_targets_does_not_matter() -> None:
    log = Log()
    beyond = FakeNode("beyond", (FakeLeaf("x"),))
    beyond.freed = True
    inner = FakeNode("inner", (beyond,), log=log)
    root = FakeNode("root", (inner,), (3,), log=log)
    GraphTask(log.deliver, targets={inner}).run_to_end({root: 1})
    assert log.delivered == {"inner": 3}


def test_a_root_that_reaches_no_target_runs_nothing() -> None:
    log = Log()
    root = FakeNode("root", (FakeLeaf("x"),), log=log)
    GraphTask(log.deliver, targets={FakeLeaf("elsewhere")}).run_to_end({root: 1})
    assert log.ran == []
    assert log.delivered == {}
