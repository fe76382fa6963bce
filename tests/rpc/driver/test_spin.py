"""Looking for bytes before sleeping, as long as that is of use."""

import select
import socket
import time

import pytest
from tests.rpc.neighbours import neighbours

from telegrad.rpc.driver import spin
from telegrad.rpc.driver.spin import Spinning
from telegrad.rpc.names import WorkerInfo


class Line:
    """A socket pair, and a look at whether something has come."""

    def __init__(self):
        self.here, self.there = socket.socketpair()
        poll = select.poll()
        poll.register(self.here.fileno(), select.POLLIN)
        self.look = poll.poll

    def close(self):
        self.here.close()
        self.there.close()


@pytest.fixture
def line():
    line = Line()
    yield line
    line.close()


@pytest.fixture
def yields(monkeypatch):
    """Count how often the processor is given up; `yields[0]` is then called."""
    calls = [lambda: None]

    def give_up():
        calls.append(None)
        calls[0]()

    monkeypatch.setattr(spin, "_sched_yield", give_up)
    return calls


def test_bytes_that_come_meanwhile_are_caught(line, yields, monkeypatch):
    # However busy the machine is that runs this.
    monkeypatch.setattr(spin, "_TAKEN", 1000.0)
    yields[0] = lambda: len(yields) == 5 and line.there.send(b"abc")
    assert Spinning(10.0).spin(line.look)


def test_it_ends_when_nothing_comes(line, yields):
    assert Spinning(0.002).spin(line.look) == ()
    assert len(yields) > 1


def test_it_can_be_turned_off(line, yields):
    assert Spinning(0.0).spin(line.look) == ()
    assert len(yields) == 1


def test_after_long_waits_it_is_not_tried_until_they_are_short_again(line, yields):
    spinning = Spinning(0.001)
    for _ in range(4):
        spinning.waited(1.0)
    assert spinning.spin(line.look) == ()
    assert len(yields) == 1
    spinning.waited(1e-5)
    assert spinning.spin(line.look) == ()
    assert len(yields) > 1


def test_where_answers_take_longer_it_looks_longer_and_a_wait_is_long_later(line, yields):
    spinning = Spinning(0.0001)
    for _ in range(4):
        spinning.waited(0.0005)
    spinning.at_least(0.001)
    assert spinning.spin(line.look) == ()
    assert len(yields) > 1
    for _ in range(4):
        spinning.waited(0.0005)
    spinning.at_least(0.0005)
    assert spinning.seconds == 0.001
    before = len(yields)
    assert spinning.spin(line.look) == ()
    assert len(yields) > before


def test_what_is_turned_off_stays_so_where_answers_take_longer(line, yields):
    spinning = Spinning(0.0)
    spinning.at_least(0.001)
    assert spinning.spin(line.look) == ()
    assert len(yields) == 1


def test_in_a_crowd_it_is_not_tried(line, yields):
    crowd = []
    spinning = Spinning(0.001, lambda: bool(crowd))
    crowd.append("many")
    assert spinning.spin(line.look) == ()
    assert len(yields) == 1
    crowd.clear()
    assert spinning.spin(line.look) == ()
    assert len(yields) > 1


def test_workers_of_this_machine_that_are_more_than_two_a_processor_are_a_crowd(monkeypatch):
    monkeypatch.setattr("telegrad.rpc.driver.host._MOST_AWAKE", 3)
    with neighbours("a", "b", "c") as (a, b, _):
        assert not a.host.is_crowded()
        a.add_peer(WorkerInfo("elsewhere", 7, 1), "tls://192.0.2.1:29500")
        assert not a.host.is_crowded()
        a.add_peer(WorkerInfo("d", 8, 1), "unix:///nowhere/d.sock")
        assert a.host.is_crowded()
        assert not b.host.is_crowded()


def take_the_processor():
    end = time.perf_counter() + 2 * spin._TAKEN
    while time.perf_counter() < end:
        pass


def test_while_others_want_the_processor_it_rests(line, yields):
    yields[0] = take_the_processor
    spinning = Spinning(10.0)
    assert spinning.spin(line.look) == ()
    assert len(yields) == 1 + spin._MOST_TAKEN
    for _ in range(spin._REST):
        assert spinning.spin(line.look) == ()
    assert len(yields) == 1 + spin._MOST_TAKEN
    assert spinning.spin(line.look) == ()
    assert len(yields) == 1 + 2 * spin._MOST_TAKEN


def test_an_answer_that_came_while_the_peer_had_the_processor_is_found(line, yields):
    def serve():
        line.there.send(b"answer")
        take_the_processor()

    yields[0] = serve
    spinning = Spinning(10.0)
    # And again: a peer that had the processor is no reason to rest.
    assert all(spinning.spin(line.look) and line.here.recv(6) for _ in range(3))


def test_one_thread_of_a_process_spins_at_a_time(line, yields):
    other = Spinning(10.0)
    results = []
    yields[0] = lambda: results.append(other.spin(line.look))
    assert Spinning(0.001).spin(line.look) == ()
    assert set(results) == {()}
