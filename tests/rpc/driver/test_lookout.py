"""What a thread keeps while it looks for an answer, and when others are served instead."""

import math
import os
import threading
from collections.abc import Iterator

import pytest
from tests.rpc import simulated
from tests.rpc.neighbours import eventually, neighbours

from telegrad.rpc.current import current_worker
from telegrad.rpc.driver import spin
from telegrad.rpc.driver.handlers import serving
from telegrad.rpc.driver.lookout import Lookout
from telegrad.rpc.options import Options


class Host:
    """Notes, in the order of the looks, when a thread was about to sleep."""

    def __init__(self, seen):
        self.options = Options(spin=10.0)
        self.seen = seen

    def spare_processors(self):
        return -1

    def about_to_sleep(self):
        self.seen.append("sleeps")


class Lead:
    """A lead that this thread has; others have something at the looks that are named."""

    def __init__(self, seen, others=(), keeps=False, is_mine=True):
        self.seen = seen
        self.others = others
        self.keeps = keeps
        self.has_me = is_mine

    def is_mine(self):
        return self.has_me

    def keeps_others(self):
        return self.keeps

    def has_work(self):
        self.seen.append("others")
        return len(self.seen) in self.others


def looking(seen, found):
    def look(timeout):
        seen.append("own")
        return len(seen) >= found

    return look


@pytest.fixture(autouse=True)
def _no_yield(monkeypatch):
    monkeypatch.setattr(spin, "_sched_yield", lambda: None)
    monkeypatch.setattr(spin, "_TAKEN", 1000.0)


@pytest.fixture
def leads() -> Iterator[object]:
    """Have this thread lead."""

    def begin(lead):
        serving.lead = lead

    yield begin
    serving.lead = None


def test_a_thread_that_leads_keeps_the_lead_while_it_looks(leads):
    seen = []
    leads(Lead(seen))
    assert Lookout(Host(seen)).spin(looking(seen, 7))
    assert seen == ["own", "others", "own", "others", "own", "others", "own", "own"]


def test_when_others_have_something_it_leaves_and_looks_on_for_its_own(leads):
    seen = []
    leads(Lead(seen, others=[4]))
    assert Lookout(Host(seen)).spin(looking(seen, 8))
    assert seen == ["own", "others", "own", "others", "own", "sleeps", "own", "own"]


def test_where_something_of_others_lies_here_it_leaves_first(leads):
    seen = []
    leads(Lead(seen, keeps=True))
    assert Lookout(Host(seen)).spin(looking(seen, 3))
    assert seen == ["sleeps", "own", "own"]


@pytest.mark.parametrize("is_leading", [True, False])
def test_what_was_not_found_is_slept_for(leads, is_leading):
    seen = []
    if is_leading:
        leads(Lead(seen))
    lookout = Lookout(Host(seen))
    lookout.seconds = 0.0
    assert not lookout.spin(looking(seen, 1))
    assert seen == ["sleeps"]


@pytest.mark.parametrize("has_led", [True, False])
def test_one_that_does_not_lead_keeps_its_place_while_it_looks(leads, has_led):
    seen = []
    if has_led:
        leads(Lead(seen, is_mine=False))
    assert Lookout(Host(seen)).spin(looking(seen, 2))
    assert seen == ["own", "own"]


def ask_for_gate(to):
    return current_worker().rpc_sync(to, simulated.wait_for_gate)


@pytest.mark.parametrize("spin", [0.0, 5.0])
def test_others_are_served_while_a_request_waits_for_an_answer(spin):
    with neighbours("a", "b", "c", options=Options(spin=spin)) as (a, b, c):
        assert a.rpc_sync("c", simulated.who) == "c"
        waiting = b.rpc_async("a", ask_for_gate, ("c",))
        assert eventually(lambda: bool(c.peers.get("a").incoming.serving))
        assert [c.rpc_sync("a", simulated.who, timeout=20) for _ in range(5)] == ["a"] * 5
        assert [b.rpc_sync("a", os.getpid, timeout=20) for _ in range(5)] == [os.getpid()] * 5
        c.rpc_sync("c", simulated.open_gate)
        assert waiting.wait(20) == "open"
        assert eventually(lambda: a.host.handlers.running == 0)


def test_a_leader_that_reads_a_link_itself_takes_it_out_of_the_set_as_it_leaves(leads, monkeypatch):
    # So that the monitor does not take the lead from it, nor a ping have another thread read.
    monkeypatch.setattr("telegrad.rpc.driver.monitor._TICK", math.inf)
    with neighbours("a", "b", options=Options(lost_after=600)) as (a, b):
        assert b.rpc_sync("a", simulated.who) == "a"
        link = a.peers.get("b").incoming
        assert eventually(link.lead.is_idle)
        leads(link.lead)
        link.lead.turn[threading.get_ident()] = link
        assert link.seize()
        assert link.watched
        link.lead.leave()
        assert not link.watched
        link.give_up_read()
        assert link.watched
        # Once more, and its answer is there before it would have left.
        assert link.seize()
        link.give_up_read()
        link.lead.leave()
        assert link.watched
        del link.lead.turn[threading.get_ident()]
        assert b.rpc_sync("a", simulated.who, timeout=20) == "a"
