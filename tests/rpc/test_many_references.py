"""Many references at once: each costs the same, however many there are."""

import sys
from pathlib import Path

import pytest

from telegrad.rpc import references
from telegrad.rpc.current import current_worker
from telegrad.testing.simulation import Simulation


def make_many(count):
    return [current_worker().make_rref(i) for i in range(count)]


def make_one():
    return current_worker().make_rref(0)


def in_one_answer(worker, count):
    return worker.rpc_sync("b", make_many, (count,))


def in_many_answers(worker, count):
    return [call.wait() for call in [worker.rpc_async("b", make_one) for _ in range(count)]]


def lines_run(fetch, count):
    """How many lines of the references' code run until `count` are here, and counted there."""
    source = Path(references.__file__).name
    lines = 0

    def trace(frame, event, _):
        nonlocal lines
        lines += event == "line"
        return trace if Path(frame.f_code.co_filename).name == source else None

    with Simulation(["a", "b"], seed=3) as simulation:
        a, b = simulation.worker("a"), simulation.worker("b")
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            kept = simulation.run("a", lambda: fetch(a, count))
            simulation.settle(5)
        finally:
            sys.settrace(before)
        assert b.references.sharing()["forks"] == len(kept) == count
        assert not b.references._answered
        assert not b.references._answer_of
    return lines


@pytest.mark.parametrize("fetch", [in_one_answer, in_many_answers])
def test_what_the_owner_does_grows_with_the_number_of_references(fetch):
    assert lines_run(fetch, 120) < 5 * lines_run(fetch, 30)
