"""A pass from its roots to its leaves, by the protocol of a node alone."""

from typing import Any

import numpy as np
import pytest
from tests.engine.fakes import FakeLeaf, FakeNode, Log

from telegrad.engine import GraphTask
from telegrad.errors import GraphFreedError


def diamond(log: Log) -> tuple[FakeNode, FakeLeaf, FakeLeaf]:
    """root = left + right; left = 2 x, right = 3 x + 5 y; each of them written as a node."""
    x, y = FakeLeaf("x"), FakeLeaf("y")
    left = FakeNode("left", (x,), (2,), log=log)
    right = FakeNode("right", (x, y), (3, 5), log=log)
    return FakeNode("root", (left, right), log=log), x, y


def run(task: GraphTask, roots: dict[Any, Any]) -> None:
    task.count(roots)
    task.run(roots)


def test_counts_are_the_edges_that_will_contribute_to_a_leaf() -> None:
    root, x, y = diamond(Log())
    task = GraphTask(Log().deliver)
    task.count([root])
    assert task.missing == {x: 2, y: 1}


def test_an_edge_named_twice_counts_twice() -> None:
    x = FakeLeaf("x")
    square = FakeNode("square", (x, x), (3, 3))
    task = GraphTask(Log().deliver)
    task.count([square])
    assert task.missing[x] == 2


def test_contributions_of_all_paths_are_summed_at_the_leaf() -> None:
    log = Log()
    root, _, _ = diamond(log)
    run(GraphTask(log.deliver), {root: 10})
    assert log.delivered == {"x": 50, "y": 50}


def test_nodes_run_newest_first() -> None:
    log = Log()
    root, _, _ = diamond(log)
    run(GraphTask(log.deliver), {root: 1})
    assert log.ran == ["root", "right", "left"]


def test_sums_are_taken_in_the_order_of_the_keys() -> None:
    log = Log()
    x = FakeLeaf("x")
    # In this order the large terms cancel before the small one comes: any other order loses it.
    small = FakeNode("small", (x,), (1.0,))
    minus = FakeNode("minus", (x,), (-1e17,))
    plus = FakeNode("plus", (x,), (1e17,))
    root = FakeNode("root", (small, minus, plus))
    run(GraphTask(log.deliver), {root: 1.0})
    assert log.delivered == {"x": 1.0}


def test_roots_run_newest_first_in_whichever_order_they_are_given() -> None:
    log = Log()
    x = FakeLeaf("x")
    small, minus, plus = (FakeNode("root", (x,), (weight,)) for weight in (1.0, -1e17, 1e17))
    run(GraphTask(log.deliver), {minus: 1.0, small: 1.0, plus: 1.0})
    assert log.delivered == {"x": 1.0}


def test_a_cotangent_that_goes_to_several_nodes_is_not_added_to_in_place() -> None:
    log = Log()
    x, y = FakeLeaf("x"), FakeLeaf("y")
    later = FakeNode("later", (y,))
    sooner = FakeNode("sooner", (x,), (3,))
    root = FakeNode("root", (x, sooner, later), pull=lambda g: [g, g, g])
    given = np.ones(2)
    run(GraphTask(log.deliver), {root: given})
    np.testing.assert_array_equal(log.delivered["x"], [4, 4])
    np.testing.assert_array_equal(log.delivered["y"], [1, 1])
    np.testing.assert_array_equal(given, [1, 1])


def test_a_root_inside_the_graph_of_another_root_gets_both_cotangents() -> None:
    log = Log()
    root, _, _ = diamond(log)
    left, _ = root.edges
    run(GraphTask(log.deliver), {root: 1, left: 100})
    assert log.delivered == {"x": 2 * 101 + 3, "y": 5}


def test_a_leaf_may_be_a_root() -> None:
    log = Log()
    root, x, _ = diamond(log)
    run(GraphTask(log.deliver), {x: 7})
    assert log.delivered == {"x": 7}
    log = Log()
    run(GraphTask(log.deliver), {root: 1, x: 100})
    assert log.delivered == {"x": 105, "y": 5}


def test_where_no_contribution_comes_nothing_runs_and_nothing_is_delivered() -> None:
    log = Log()
    x, y = FakeLeaf("x"), FakeLeaf("y")
    unused = FakeNode("unused", (x,), log=log)
    root = FakeNode("root", (unused, y), (None, 1), log=log)
    run(GraphTask(log.deliver), {root: 1})
    assert log.ran == ["root"]
    assert log.delivered == {"y": 1}


def test_a_contribution_that_is_missing_on_one_path_does_not_stop_the_other() -> None:
    log = Log()
    x = FakeLeaf("x")
    silent = FakeNode("silent", (x,), (None,), log=log)
    loud = FakeNode("loud", (x,), (4,), log=log)
    run(GraphTask(log.deliver), {FakeNode("root", (silent, loud)): 1})
    assert log.delivered == {"x": 4}


@pytest.mark.parametrize("skipped_last", [False, True])
def test_a_node_that_is_skipped_does_not_stop_the_leaf_it_leads_to(skipped_last: bool) -> None:
    log = Log()
    x = FakeLeaf("x")
    older, newer = FakeNode("older", (x,), (4,)), FakeNode("newer", (x,), (4,))
    weights = (None, 1) if skipped_last else (1, None)
    run(GraphTask(log.deliver), {FakeNode("root", (older, newer), weights): 1})
    assert log.delivered == {"x": 4}


def test_a_recorded_pass_asks_for_contributions_that_record() -> None:
    log = Log()
    root = FakeNode("root", (FakeLeaf("x"),), (2,))
    run(GraphTask(log.deliver, recorded=True), {root: 3})
    assert log.delivered == {"x": ("recorded", 6)}


@pytest.mark.parametrize("keep", [False, True])
def test_nodes_that_others_know_are_released_unless_the_graph_is_kept(keep: bool) -> None:
    root, _, _ = diamond(Log())
    left, right = root.edges
    run(GraphTask(Log().deliver, keep_graph=keep), {root: 1})
    assert [node.freed for node in (root, left, right)] == [not keep] * 3


def test_a_freed_graph_is_found_before_anything_runs() -> None:
    log = Log()
    root, _, _ = diamond(log)
    root.edges[0].freed = True
    with pytest.raises(GraphFreedError, match=r"got left .*pass retain_graph=True"):
        run(GraphTask(log.deliver), {root: 1})
    assert log.ran == []
    assert log.delivered == {}


def test_an_error_in_a_node_says_which_node_it_was() -> None:
    def fail(cotangent: Any) -> Any:
        raise ZeroDivisionError("by accident")

    log = Log()
    x = FakeLeaf("x")
    broken = FakeNode("broken", (x,), pull=fail)
    with pytest.raises(ZeroDivisionError) as caught:
        run(GraphTask(log.deliver), {FakeNode("root", (broken,)): 1})
    assert caught.value.__notes__ == ["while broken ran"]
    assert log.delivered == {}


def test_a_check_sees_each_node_with_its_contributions() -> None:
    seen = []
    root, _, _ = diamond(Log())
    task = GraphTask(Log().deliver, check=lambda node, parts: seen.append((node.name(), [*parts])))
    run(task, {root: 1})
    assert seen == [("root", [1, 1]), ("right", [3, 5]), ("left", [2])]


def test_a_foreign_region_is_one_node_that_waits_for_all_its_entries() -> None:
    """A region has as many entries as it likes: nodes that collect what it is given."""
    log = Log()
    x, y = FakeLeaf("x"), FakeLeaf("y")
    calls = []

    def other_framework(cotangents: Any) -> Any:
        calls.append(cotangents)
        return [cotangents.get("first", 0) * 2, cotangents.get("second", 0) * 3]

    class Given(dict[str, Any]):
        """Cotangents by entry, which add as the engine wants it."""

        def __add__(self, other: "Given") -> "Given":
            return Given(self | other)

    region = FakeNode("region", (x, y), pull=other_framework)
    first = FakeNode("first", (region,), pull=lambda g: [Given(first=g)])
    second = FakeNode("second", (region,), pull=lambda g: [Given(second=g)])
    run(GraphTask(log.deliver), {FakeNode("root", (first, second)): 1})
    assert calls == [{"first": 1, "second": 1}]
    assert log.delivered == {"x": 2, "y": 3}


def test_a_long_chain_runs_without_recursion() -> None:
    log = Log()
    node: Any = FakeLeaf("x")
    for _ in range(100_000):
        node = FakeNode("link", (node,))
    run(GraphTask(log.deliver), {node: 1})
    assert log.delivered == {"x": 1}
    # Taken apart link by link: so many nodes that own each other in a row are Python's to free.
    while node.edges:
        node, node.edges = node.edges[0], ()
