"""One thread serves all peers, fairly, and nobody who is slow or stuck keeps the others."""

import collections
import contextlib
import itertools
import math
import os
import threading
import time

import numpy as np
import pytest
from tests.interpreter import IS_LOCKED
from tests.rpc import simulated
from tests.rpc.inside import (
    before_looking,
    claim_reads,
    has_kept,
    is_read,
    ping_often,
    pool_of,
    reader_of,
    sleepers,
    writing,
)
from tests.rpc.neighbours import eventually, neighbours

from telegrad.errors import CallTimeout
from telegrad.rpc.calls.future_group import wait_all
from telegrad.rpc.calls.service import seal_message
from telegrad.rpc.current import current_worker
from telegrad.rpc.driver import host, lead, monitor, served_link
from telegrad.rpc.options import Options
from telegrad.rpc.wire.frames import ANSWER, NOTICE, PING, Frame
from telegrad.rpc.worker import Worker

GATE = threading.Event()
LONG_GATE = threading.Event()
RAN: list[str] = []
ANOTHER: list[Worker] = []


@pytest.fixture(autouse=True)
def _forget(monkeypatch):
    # As on a small machine, whatever machine runs this: answers are kept.
    monkeypatch.setattr(host, "_PROCESSORS", 1)
    GATE.clear()
    LONG_GATE.clear()
    RAN.clear()
    yield
    GATE.set()
    LONG_GATE.set()


@pytest.fixture
def patient(monkeypatch):
    """Let nobody be taken for slow, however busy the machine is that runs this."""
    # Whatever clock a test gives the leader: the monitor has its own.
    monkeypatch.setattr(monitor, "_TICK", math.inf)
    monkeypatch.setattr(served_link, "_SLOW", math.inf)


def block():
    """Wait for something that the worker does not know."""
    assert GATE.wait(20)


def stick():
    """Wait for longer."""
    assert LONG_GATE.wait(20)


def note(name):
    RAN.append(name)
    return threading.get_ident()


def ask(to):
    return current_worker().rpc_sync(to, simulated.who)


def large():
    return np.ones(1 << 20)


def test_one_thread_serves_all_peers_or_one_a_processor_where_they_run_side_by_side(patient):
    with neighbours("a", "b", "c", "d") as (a, b, *others):
        threads = {each.rpc_sync("a", note, ("",)) for _ in range(50) for each in (b, *others)}
        count = 1 if IS_LOCKED else min(3, os.cpu_count())
        assert len(threads) == len(a.host.leads) == count
        assert pool_of(a.host).at_work() == count


def test_leads_have_as_many_links_each_and_no_more_than_handlers_may_run(monkeypatch):
    monkeypatch.setattr(host, "is_locked", lambda: False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    names = ["a", *"bcdefg"]
    for handlers, wanted in ((256, [1] * 6), (6, [2, 2, 2]), (1, [6])):
        with neighbours(*names, options=Options(handlers=handlers)) as (a, *others):
            assert {each.rpc_sync("a", simulated.who) for each in others} == {"a"}
            assert [len(lead) for lead in a.host.leads] == wanted
            assert a.host.handlers.most == handlers


def test_requests_of_several_leads_run_side_by_side(patient, monkeypatch):
    monkeypatch.setattr(host, "is_locked", lambda: False)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    with neighbours("a", "b", "c") as (a, b, c):
        first = b.rpc_async("a", block)
        assert eventually(lambda: any(lead.turn for lead in a.host.leads))
        # Nobody takes the lead from the one that waits, and nobody has to.
        assert c.rpc_sync("a", simulated.who) == "a"
        assert not first.done()
        GATE.set()
        first.wait()


def test_a_link_that_ended_just_as_it_came_is_not_served():
    with neighbours("a", "b") as (a, b):
        b.rpc_sync("a", simulated.who)
        link, other_end = a.peers.get("b").incoming, b.peers.get("a").outgoing
        a.endpoint_lost(link, ConnectionError("cut"))
        assert eventually(lambda: other_end.closed)
        # As the listener does, if it is late.
        link.lead.add(link)
        assert len(link.lead) == 0
        assert b.rpc_sync("a", simulated.who) == "a"


def test_a_link_that_is_checked_on_before_the_leader_knows_it_is_served():
    with neighbours("a", "b") as (a, b):
        accepted = a.accepted

        def accepted_late(link):
            accepted(link)
            # As the monitor does after a while, if the listener is late.
            link.read_on()

        a.accepted = accepted_late
        assert b.rpc_sync("a", simulated.who, timeout=20) == "a"


class Late(collections.deque):
    """Where answers are kept; the turn ends just before one is."""

    def __init__(self, link):
        super().__init__()
        self.link = link

    def append(self, answer):
        self.link.uncork()
        super().append(answer)


def test_an_answer_that_is_kept_just_after_the_turn_has_ended_goes_all_the_same():
    with neighbours("a", "b", options=Options(lost_after=1000.0)) as (a, b):
        b.rpc_sync("a", simulated.who)
        assert eventually(a.host.leads[0].is_idle)
        link = a.peers.get("b").incoming
        link._kept = Late(link)
        link.cork()
        link.send(Frame(ANSWER, 0, 1 << 40, 0, b"", ()))
        assert eventually(lambda: not has_kept(link))
        assert b.rpc_sync("a", simulated.who) == "a"


def test_a_request_that_waits_gives_the_lead_up_and_has_it_again(patient):
    with neighbours("a", "b", "c") as (a, b, c):
        waiting = b.rpc_async("a", simulated.wait_for_gate)
        assert eventually(lambda: not a.host.leads[0].turn and not a.host.leads[0].is_idle())
        assert c.rpc_sync("a", simulated.who) == "a"
        c.rpc_sync("a", simulated.open_gate)
        assert waiting.wait() == "open"
        assert eventually(lambda: a.host.handlers.running == 0)
        # Back to the caller, and on to a third one.
        assert b.rpc_sync("a", simulated.bounce, ("b", 9)) == 9
        assert b.rpc_sync("a", ask, ("c",)) == "c"
        assert eventually(lambda: a.host.handlers.running == 0)
        assert b.rpc_sync("a", simulated.who) == "a"


def wait_as_another():
    return ANOTHER[-1].rpc_sync("b", simulated.wait_for_gate)


def test_a_request_that_waits_as_another_worker_of_its_process_gives_its_own_lead_up(patient):
    with neighbours("a", "b", "c") as (a, b, c):
        ANOTHER[:] = [c]
        waiting = b.rpc_async("a", wait_as_another)
        assert eventually(lambda: sleepers(simulated.GATE[-1]) > 0)
        assert eventually(lambda: not a.host.leads[0].turn)
        assert c.rpc_sync("a", simulated.who, timeout=20) == "a"
        c.rpc_sync("b", simulated.open_gate)
        assert waiting.wait() == "open"
        assert eventually(lambda: a.host.handlers.running == c.host.handlers.running == 0)
    ANOTHER.clear()


def test_a_call_that_is_over_just_when_its_thread_claims_the_link_leaves_it_to_others(
    monkeypatch,
):
    seize = served_link.ServedLink.seize

    def give_up(link):
        reads = seize(link)
        for call in link.calls.drain():
            call.fail(CallTimeout("too late"))
        return reads

    with neighbours("a", "b") as (a, _):
        monkeypatch.setattr(served_link.ServedLink, "seize", give_up)
        with pytest.raises(CallTimeout, match="too late"):
            a.rpc_sync("b", ask, ("a",))
        monkeypatch.undo()
        assert a.rpc_sync("b", simulated.who, timeout=10) == "b"


def test_what_a_thread_read_and_was_interrupted_in_receiving_is_left_to_whoever_leads():
    told = threading.Event()
    with neighbours("a", "b") as (a, b):
        b.register_service("told", lambda request: told.set(), inline=True)
        a.rpc_sync("b", simulated.who)
        link = b.peers.get("a").incoming
        assert eventually(lambda: claim_reads(link, -1))
        reader_of(link).put_back(Frame(NOTICE, header=seal_message("told", None, ())[0]))
        link.give_up_read()
        assert told.wait(10)


def test_a_finalizer_that_waits_between_two_turns_of_the_leader_counts_as_no_request():
    answers = []
    with neighbours("a", "b", options=Options(handlers=2)) as (a, b):
        a.rpc_sync("b", simulated.who)
        leading, handlers = b.host.leads[0], b.host.handlers
        before_looking(leading, lambda: answers.append(b.rpc_sync("a", simulated.who)))
        a.rpc_sync("b", simulated.who)
        assert eventually(lambda: answers == ["a"])
        assert a.rpc_sync("b", simulated.who) == "b"
        assert eventually(lambda: handlers.running == 0)


def test_a_request_that_takes_long_loses_the_lead_to_whoever_serves_the_others():
    with neighbours("a", "b", "c") as (a, b, c):
        blocked = [b.rpc_async("a", block) for _ in range(3)]
        for _ in range(10):
            assert c.rpc_sync("a", simulated.who, timeout=20) == "a"
        # Also the same peer's others.
        assert b.rpc_sync("a", simulated.who, timeout=20) == "a"
        GATE.set()
        wait_all(blocked)
        assert eventually(lambda: a.host.handlers.running == 0)


def test_reading_that_takes_long_loses_the_lead_too():
    def stick(request):
        assert GATE.wait(20)

    with neighbours("a", "b", "c") as (a, b, c):
        a.register_service("stick", stick, inline=True)
        b.notify_service("a", "stick")
        assert c.rpc_sync("a", simulated.who, timeout=20) == "a"
        GATE.set()
        assert b.rpc_sync("a", simulated.who, timeout=20) == "a"
        assert eventually(lambda: a.host.handlers.running == 0)


def in_one_round(a, first, *requests, was_slow=0):
    """Have a served link's request keep the lead until the others have come; return them all."""
    for each, _ in requests:
        assert each.rpc_sync("a", simulated.who) == "a"
    assert eventually(a.host.leads[0].is_idle)
    calls = [first.rpc_async("a", block)]
    assert eventually(lambda: bool(a.host.leads[0].turn))
    calls += [each.rpc_async("a", function, args) for each, (function, *args) in requests]
    a.peers.get(requests[-1][0].name).incoming.slow = was_slow
    GATE.set()
    return calls


@pytest.mark.parametrize(
    ("processors", "was_slow", "had_run"),
    [(2, 0, [2, 2]), (2, 1, [1, 2]), (16, 0, [1, 2])],
    ids=["all quick", "the last was slow", "a processor for each"],
)
def test_answers_of_one_round_leave_together_but_wait_for_nobody_who_was_slow(
    patient, monkeypatch, processors, was_slow, had_run
):
    monkeypatch.setattr(host, "_PROCESSORS", processors)
    monkeypatch.setattr(host, "is_locked", lambda: True)
    monkeypatch.setattr(lead, "KEPT_FOR", 1000.0)
    sent = []
    # Each ping would be a turn.
    with neighbours("a", "b", "c", "d", options=Options(lost_after=600)) as (a, b, c, d):
        for each in (c, d):
            each.rpc_sync("a", simulated.who)
            connection = a.peers.get(each.name).incoming.connection

            def send_small(data, deadline, send=connection.send_small):
                sent.append(len(RAN))
                return send(data, deadline)

            connection.send_small = send_small
        calls = in_one_round(a, b, (c, (note, "c")), (d, (note, "d")), was_slow=was_slow)
        wait_all(calls)
        assert RAN == ["c", "d"]
        # How many had run when each of the two answers went.
        assert sent[-2:] == had_run


def test_an_answer_that_is_kept_goes_when_the_next_request_takes_long(patient, monkeypatch):
    monkeypatch.setattr(host, "is_locked", lambda: True)
    monkeypatch.setattr(lead, "KEPT_FOR", 1000.0)
    # So that no ping brings it to light.
    with neighbours("a", "b", "c", "d", options=Options(lost_after=600)) as (a, b, c, d):
        first, kept, stuck = in_one_round(a, b, (c, (note, "c")), (d, (stick,)))
        try:
            assert eventually(lambda: RAN == ["c"] and len(a.host.leads[0]._kept) == 2)
            # From now on the monitor sees whose turn takes long.
            monkeypatch.setattr(monitor, "_TICK", 0.002)
            a.host.monitor.rouse()
            assert isinstance(kept.wait(20), int)
            assert not stuck.done()
        finally:
            LONG_GATE.set()
        wait_all([first, stuck])


def test_a_turn_whose_lead_was_taken_before_it_began_keeps_nothing():
    with neighbours("a", "b") as (a, b):
        b.rpc_sync("a", simulated.who)
        leads = a.host.leads[0]
        assert eventually(leads.is_idle)
        link = a.peers.get("b").incoming
        assert not leads._keep(link, threading.get_ident())
        assert not link.is_corked


@contextlib.contextmanager
def sent_at_once(link):
    """Have small frames leave together at the end."""
    sent, send_small = [], link.connection.send_small
    link.connection.send_small = lambda data, deadline: sent.append(data)
    yield
    link.connection.send_small = send_small
    link.connection.send([b"".join(sent)])


class Ticking:
    """A clock by which 10 µs pass from one look at it to the next."""

    def __init__(self):
        self.ticks = itertools.count()

    def monotonic(self):
        return next(self.ticks) * 1e-5


def test_the_peer_whose_last_turn_was_longest_ago_goes_first(patient, monkeypatch):
    monkeypatch.setattr(host, "is_locked", lambda: True)
    # Each ping would be a turn.
    with neighbours("a", "b", "c", "d", options=Options(lost_after=600)) as (a, b, c, d):
        for each in (c, d):
            each.rpc_sync("a", note, ("",))
        RAN.clear()
        calls = [b.rpc_async("a", block)]
        assert eventually(lambda: a.host.leads[0].turn)
        calls += [each.rpc_async("a", note, (each.name,)) for each in (d, c)]
        GATE.set()
        wait_all(calls)
        assert RAN == ["c", "d"]


def test_a_peer_with_very_many_requests_leaves_others_their_turns(patient, monkeypatch):
    monkeypatch.setattr(host, "is_locked", lambda: True)
    clock = Ticking()
    for module in (lead, served_link):
        monkeypatch.setattr(module, "time", clock)
    with neighbours("a", "b", "c") as (a, b, c):
        for each in (b, c):
            each.rpc_sync("a", simulated.who)
        # They come at once: what is left of them is known before the other peer's request.
        with sent_at_once(b.peers.get("a").outgoing):
            calls = [b.rpc_async("a", block)]
            calls += [b.rpc_async("a", note, ("b",)) for _ in range(200)]
        assert eventually(lambda: bool(a.host.leads[0].turn))
        calls.append(c.rpc_async("a", note, ("c",)))
        GATE.set()
        wait_all(calls)
        assert len(RAN) == 201
        assert RAN.index("c") < 150


def test_answers_of_one_turn_leave_together(patient, monkeypatch):
    monkeypatch.setattr(served_link, "_TURN", 1000.0)
    monkeypatch.setattr(served_link, "KEPT_FOR", 1000.0)
    with neighbours("a", "b", options=Options(lost_after=1000.0)) as (a, b):
        blocked = b.rpc_async("a", block)
        assert eventually(lambda: bool(a.host.leads[0].turn))
        link = a.peers.get("b").incoming
        sizes, send = [], link.connection.send_small

        def count(data, deadline):
            sizes.append(len(data))
            return send(data, deadline)

        link.connection.send_small = count
        many = [b.rpc_async("a", note, ("b",)) for _ in range(100)]
        GATE.set()
        wait_all([blocked, *many])
        # The first alone; those behind it as one, or two, if not all were there at once.
        assert len(sizes) <= 3


def test_answers_that_were_kept_do_not_wait_for_a_slow_request_behind_them():
    with neighbours("a", "b") as (_, b):
        first = b.rpc_async("a", simulated.wait_for_gate)
        assert eventually(lambda: bool(simulated.GATE) and sleepers(simulated.GATE[-1]) > 0)
        quick = [b.rpc_async("a", note, ("quick",)) for _ in range(3)]
        slow = b.rpc_async("a", block)
        wait_all(quick, timeout=20)
        GATE.set()
        slow.wait()
        b.rpc_sync("a", simulated.open_gate)
        assert first.wait() == "open"


def test_a_peer_that_does_not_read_its_answers_keeps_nobody_else():
    with neighbours("a", "b", "c", options=Options(segments=False, handlers=8)) as (a, b, c):
        b.rpc_sync("a", simulated.who)
        link = a.peers.get("b").incoming
        # As if something were being sent that b does not take.
        with writing(link):
            small = [b.rpc_async("a", note, ("b",)) for _ in range(50)]
            big = [b.rpc_async("a", large) for _ in range(20)]
            for _ in range(20):
                assert c.rpc_sync("a", simulated.who, timeout=20) == "a"
            # None of b's requests that could still run keeps a thread, but for a few.
            assert eventually(lambda: len(RAN) == 50)
            assert a.host.handlers.running <= 8
        # As whoever sends does after that.
        link.flush()
        wait_all(small)
        assert {each.shape for each in wait_all(big)} == {(1 << 20,)}


def test_a_peer_that_sends_much_leaves_others_their_turns():
    with neighbours("a", "b", "c", options=Options(segments=False), tcp=True) as (_, b, c):
        much = [b.rpc_async("a", len, (np.ones(1 << 22),)) for _ in range(3)]
        for _ in range(20):
            assert c.rpc_sync("a", simulated.who, timeout=20) == "a"
        assert wait_all(much) == [1 << 22] * 3


def test_a_worker_is_heard_though_none_of_its_threads_has_time(monkeypatch):
    pings = []
    with neighbours("a", "b") as (a, b):
        receive = b.receive

        def count(endpoint, frame):
            if frame.kind == PING:
                pings.append(time.monotonic())
            return receive(endpoint, frame)

        # As if a had no time to answer.
        monkeypatch.setattr(a.incoming, "receive", lambda *_: None)
        monkeypatch.setattr(a, "receive", lambda *_: None)
        b.receive = count
        b.notify_service("a", "nothing")
        assert eventually(lambda: bool(a.peers.get("b").incoming))
        for each in (a, b):
            ping_often(each, 0.1)
        assert eventually(lambda: len(pings) > 3)
        assert b.peers.get("a").lost is None


def test_what_was_read_by_a_thread_that_lost_the_lead_meanwhile_is_served(patient):
    """Reading something large takes long: the lead was taken, and nobody knew of the rest."""
    # So that no ping brings it to light.
    with neighbours("a", "b", options=Options(lost_after=600)) as (a, b):
        assert a.rpc_sync("b", simulated.who) == "b"
        served = b.peers.get("a").incoming
        reader, lead = reader_of(served), b.host.leads[0]
        read, is_first = reader.read, [True]

        def read_slowly(deadline):
            frame = read(deadline)
            if is_first:
                is_first.clear()
                # As in the midst of a large frame: of what comes after it nothing is seen yet.
                reader.has_frame = lambda: False
                lead.take(next(iter(lead.turn)))
                del reader.has_frame
            return frame

        reader.read = read_slowly
        with sent_at_once(a.peers.get("b").outgoing):
            calls = [a.rpc_async("b", block), a.rpc_async("b", simulated.who)]
        assert calls[1].wait(10) == "b"
        GATE.set()
        assert calls[0].wait(10) is None


@pytest.mark.parametrize(
    ("used", "put_off", "apart"),
    [(0.0, 0, True), (0.0, 1, False), (1.0, 1, True)],
    ids=["it waited", "others had the processor", "it computed"],
)
def test_requests_that_others_put_off_do_not_count_as_slow(
    patient, monkeypatch, used, put_off, apart
):
    # Each counts as slow, and has used and been put off so much more than the one before.
    monkeypatch.setattr(served_link, "_SLOW", 0.0)
    usage = itertools.count()
    monkeypatch.setattr(
        served_link, "_usage", lambda: ((number := next(usage)) * used, number * put_off)
    )
    with neighbours("a", "b") as (_, b):
        # If they do, some have threads of their own.
        threads = {b.rpc_sync("a", note, ("",)) for _ in range(10)}
        assert (len(threads) > 1) is apart


def ask_twice(to):
    return ask(to), ask(to)


def test_an_answer_that_comes_just_before_its_request_claims_the_link_leaves_the_link_free(
    monkeypatch,
):
    seize, seized = served_link.ServedLink.seize, []

    def seize_late(link):
        # The lead is taken from the request, and another thread reads the answer, and no further.
        assert eventually(lambda: not link.calls.open and not is_read(link))
        seized.append(seize(link))
        return seized[-1]

    monkeypatch.setattr(served_link.ServedLink, "seize", seize_late)
    with neighbours("a", "b") as (a, _):
        assert a.rpc_sync("b", ask_twice, ("a",), timeout=20) == ("a", "a")
        assert a.rpc_sync("b", simulated.who, timeout=20) == "b"
    assert True in seized
