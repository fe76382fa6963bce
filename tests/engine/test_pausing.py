"""A pass that is fed later, paused at a boundary and continued; and one that stops at targets."""

from tests.engine.fakes import FakeLeaf, FakeNode, Log

from telegrad.engine import GraphTask


def test_a_node_waits_until_a_second_entry_is_fed() -> None:
    log = Log()
    x = FakeLeaf("x")
    shared = FakeNode("shared", (x,), (2,), log=log)
    here = FakeNode("here", (shared,), log=log)
    sent = FakeNode("sent", (shared,), log=log)
    task = GraphTask(log.deliver)
    task.count([here, sent])
    task.feed(here, 1)
    task.run()
    assert log.ran == ["here"]
    assert task.waiting() == [shared]
    assert log.delivered == {}

    task.feed(sent, 10)
    task.run()
    assert log.ran == ["here", "sent", "shared"]
    assert task.waiting() == []
    assert log.delivered == {"x": 22}


def test_waiting_nodes_come_newest_first() -> None:
    log = Log()
    x = FakeLeaf("x")
    older = FakeNode("older", (x,))
    newer = FakeNode("newer", (x,))
    here = FakeNode("here", (older, newer))
    sent = FakeNode("sent", (older, newer))
    task = GraphTask(log.deliver)
    task.count([here, sent])
    task.feed(here, 1)
    task.run()
    assert task.waiting() == [newer, older]


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


def test_a_cotangent_departs_at_a_boundary_and_the_pass_goes_on_when_an_answer_is_fed() -> None:
    log = Log()
    x = FakeLeaf("x")
    argument = FakeNode("argument", (x,), (2,), log=log)
    received = FakeNode("received", is_boundary=True, log=log)
    root = FakeNode("root", (received, argument), (5, 7), log=log)
    task = GraphTask(log.deliver, depart=log.depart)
    # The argument was sent away too: its gradient will come back from the other side.
    sent = FakeNode("sent", (argument,), log=log)
    task.count([root, sent])
    task.feed(root, 1)
    task.run()
    assert log.departed == {"received": 5}
    assert task.waiting() == [argument]

    task.feed(sent, 100)
    task.run()
    assert log.delivered == {"x": 2 * 107}


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
