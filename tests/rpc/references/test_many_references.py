"""Many references at once: each costs the same, however many there are."""

import sys
from pathlib import Path

import pytest

from telegrad.errors import Unserializable
from telegrad.rpc.current import current_worker
from telegrad.rpc.references import references
from telegrad.rpc.wire import kinds
from telegrad.rpc.wire.frames import NOTICE
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
    return lines


@pytest.mark.parametrize("fetch", [in_one_answer, in_many_answers])
def test_what_the_owner_does_grows_with_the_number_of_references(fetch):
    assert lines_run(fetch, 120) < 5 * lines_run(fetch, 30)


def notices_sent(simulation, since):
    """How many notices were sent after a place in the trace."""
    words = [line.split() for line in simulation.trace[since:]]
    sent = [each[2] for each in words if len(each) == 4 and each[3].startswith("x")]
    return sum(1 for each in sent if int(each.split(".")[0]) == NOTICE)


def keep(references):
    KEPT.extend(references)


def drop():
    KEPT.clear()


KEPT = []


@pytest.mark.parametrize("owner", ["a", "b"])
def test_references_that_come_or_go_together_are_counted_in_few_messages(owner):
    """From their owner to a user, and from one user on to another."""
    with Simulation(["a", "b", "c"], seed=3) as simulation:
        a = simulation.worker("a")

        def send():
            made = make_many(500) if owner == "a" else a.rpc_sync("b", make_many, (500,))
            a.rpc_sync("c", keep, (made,))

        simulation.run("a", send)
        simulation.settle(5)
        counted = simulation.worker(owner).references.sharing()
        assert (counted["shared"], counted["forks"]) == (500, 500)
        # They are in, word of that; and between users, the owner's confirmation and the end of
        # the first one's.
        assert notices_sent(simulation, 0) <= (1 if owner == "a" else 5)
        since = len(simulation.trace)
        simulation.run("a", lambda: a.rpc_sync("c", drop))
        simulation.settle(5)
        assert simulation.worker(owner).references.counts()["owned"] == 0
        assert notices_sent(simulation, since) <= 2


class Odd:
    """A value of a kind that the other side does not know."""


def test_references_beside_a_value_that_cannot_be_made_there_are_let_go(monkeypatch):
    for name in ("_by_type", "_by_tag", "_found"):
        monkeypatch.setattr(kinds, name, dict(getattr(kinds, name)))
    kinds.register(Odd, lambda odd: ([], None), lambda parts, metadata: Odd(), tag="tests.Odd")
    with Simulation(["a", "b"], seed=3) as simulation:
        a = simulation.worker("a")

        def send():
            # As where the other process has not imported what registers it.
            call = a.rpc_async("b", keep, ((Odd(), make_one()),))
            kinds._by_tag.pop("tests.Odd")
            with pytest.raises(Unserializable, match="not registered here"):
                call.wait()

        simulation.run("a", send)
        simulation.settle(5)
        assert a.references.counts() == {"owned": 0, "held": 0, "given": 0}
