"""A notice that has time goes with the next frame, and by itself if there is none."""

import math

import numpy as np
import pytest
from tests.rpc import simulated
from tests.rpc.inside import before_next_write, has_kept
from tests.rpc.neighbours import eventually, neighbours

from telegrad.errors import CallTimeout
from telegrad.rpc.calls import outgoing
from telegrad.rpc.options import Options
from telegrad.rpc.transport.connection import Unsent


@pytest.fixture
def workers(monkeypatch):
    """Three workers; what `notes` has came to b. None goes by itself unless it is asked for."""
    monkeypatch.setattr(outgoing, "_LONGEST_RIDE", 1000.0)
    with neighbours("a", "b", "c", options=Options(segments=False)) as (a, b, c):
        notes = []
        b.register_service("note", lambda request: notes.append(request.header), inline=True)
        for other in (b, c):
            a.rpc_sync(other.name, simulated.who)
        yield a, b, c, notes


def ride(a, what):
    a.outgoing.notify(a.peers.get("b"), "note", what, rides=True)


def sizes_of_sends(link):
    """Record what goes out on a link, send by send."""
    sent, send = [], link.connection.send_small

    def recorded(data, deadline):
        sent.append(len(data))
        return send(data, deadline)

    link.connection.send_small = recorded
    return sent


def test_it_goes_in_one_piece_with_the_next_call_and_before_it(workers):
    a, b, _, notes = workers
    ride(a, 1)
    ride(a, 2)
    sent = sizes_of_sends(a.peers.get("b").outgoing)
    b.register_service("ask", lambda request: request.reply([*notes]))
    assert a.ask_service("b", "ask")[0] == [1, 2]
    assert len(sent) == 1


def test_it_goes_before_a_call_with_a_body(workers):
    a, _, _, notes = workers
    ride(a, 1)
    assert a.rpc_sync("b", len, (np.ones(100_000),)) == 100_000
    assert notes == [1]


def test_it_goes_before_another_worker_is_asked(workers):
    a, _, _, notes = workers
    ride(a, 1)
    a.rpc_sync("c", simulated.who)
    assert not has_kept(a.peers.get("b").outgoing)
    assert eventually(lambda: notes == [1])


def test_it_goes_before_an_answer(workers):
    a, _, c, notes = workers
    a.register_service("ride", lambda request: (ride(a, 1), request.reply()))
    c.ask_service("a", "ride")
    # That was a service's answer; a call's comes after the notice.
    c.rpc_sync("a", simulated.who)
    assert not has_kept(a.peers.get("b").outgoing)
    assert eventually(lambda: notes == [1])


def test_it_goes_by_itself_where_nothing_follows(workers, monkeypatch):
    a, _, _, notes = workers
    monkeypatch.setattr(outgoing, "_LONGEST_RIDE", 0.005)
    for number in range(5):
        ride(a, number)
        assert eventually(lambda seen=number + 1: len(notes) == seen)
    # And nobody is roused for it any more.
    assert eventually(lambda: a.outgoing.rides_until == math.inf)


def test_it_stays_where_the_next_frame_finds_no_room(workers):
    a, _, _, notes = workers
    connection = a.peers.get("b").outgoing.connection
    send, send_small = connection.send, connection.send_small
    ride(a, 1)
    connection.send_small = lambda data, deadline: Unsent([memoryview(data)], False)
    connection.send = lambda parts, fds=(), deadline=math.inf: (
        send(parts) if deadline == math.inf else Unsent(list(parts), False)
    )
    try:
        with pytest.raises(CallTimeout, match="did not take"):
            a.rpc_sync("b", simulated.who, timeout=0.05)
    finally:
        connection.send, connection.send_small = send, send_small
    assert a.rpc_sync("b", simulated.who) == "b"
    assert eventually(lambda: notes == [1])


def test_it_goes_before_this_worker_leaves(workers):
    a, _, _, notes = workers
    ride(a, 1)
    a.close()
    assert eventually(lambda: notes == [1])


@pytest.mark.parametrize("tcp", [False, True])
def test_what_another_thread_sent_just_before_is_not_missed(tcp):
    with neighbours("a", "b", options=Options(lost_after=1000.0), tcp=tcp) as (a, b):
        b.register_service("note", lambda request: None, inline=True)
        a.rpc_sync("b", simulated.who)
        link = a.peers.get("b").outgoing
        ride(a, 1)
        before_next_write(link, link.flush)
        link.flush()
        assert a.rpc_sync("b", simulated.who) == "b"
        assert a.peers.get("b").outgoing is link
