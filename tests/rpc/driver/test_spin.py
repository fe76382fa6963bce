"""Looking for bytes before sleeping, as long as that is of use."""

import select
import socket
import time
from types import SimpleNamespace

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


def test_in_a_crowd_it_is_not_tried(line, yields):
    spare = [-spin._PROCESSORS - 1]
    spinning = Spinning(0.001, lambda: spare[0])
    assert spinning.spin(line.look) == ()
    assert len(yields) == 1
    spare[0] += 1
    assert spinning.spin(line.look) == ()
    assert len(yields) > 1


def test_processors_are_spare_beside_the_workers_of_this_machine(monkeypatch):
    monkeypatch.setattr("telegrad.rpc.driver.host._PROCESSORS", 3)
    with neighbours("a", "b", "c") as (a, b, _):
        assert a.host.spare_processors() == 0
        a.add_peer(WorkerInfo("elsewhere", 7, 1), "tls://192.0.2.1:29500")
        assert a.host.spare_processors() == 0
        a.add_peer(WorkerInfo("d", 8, 1), "unix:///nowhere/d.sock")
        assert a.host.spare_processors() == -1
        assert b.host.spare_processors() == 0


@pytest.fixture
def microseconds(line, yields, monkeypatch):
    """Have a yield take a microsecond; return how many `spinning` takes if nothing comes."""
    monkeypatch.setattr(spin, "time", SimpleNamespace(perf_counter=lambda: len(yields) * 1e-6))

    def count(spinning):
        before = len(yields)
        assert spinning.spin(line.look) == ()
        return len(yields) - before

    return count


def test_with_a_processor_for_each_worker_it_spins_as_long_as_waits_take(microseconds):
    spinning = Spinning(250e-6, lambda: 0)
    assert microseconds(spinning) == pytest.approx(250, abs=1)
    spinning.waited(350e-6)
    assert microseconds(spinning) == pytest.approx(720, abs=1)
    # Waits that are caught, or shorter, teach nothing; the next one that is longer does.
    spinning.waited(280e-6)
    assert microseconds(spinning) == pytest.approx(1200, abs=1)
    for _ in range(4):
        spinning.waited(0.5)
    assert microseconds(spinning) == 0
    spinning.waited(400e-6)
    assert microseconds(spinning) == pytest.approx(480, abs=1)


def test_it_never_spins_longer_than_two_milliseconds_of_itself(microseconds):
    spinning = Spinning(250e-6, lambda: 0)
    for _ in range(8):
        microseconds(spinning)
        spinning.waited(300e-6)
    assert 1000 < microseconds(spinning) <= 2000
    # Who asks for more has it.
    assert microseconds(Spinning(0.003, lambda: 0)) == pytest.approx(3000, abs=1)


def test_where_processors_are_few_it_spins_no_longer_than_it_was_told(microseconds):
    spare = [-1]
    spinning = Spinning(250e-6, lambda: spare[0])
    microseconds(spinning)
    spinning.waited(290e-6)
    assert microseconds(spinning) == pytest.approx(250, abs=1)
    spare[0] = 0
    spinning.waited(290e-6)
    assert microseconds(spinning) > 600
    # A worker has joined.
    spare[0] = -1
    assert microseconds(spinning) == pytest.approx(250, abs=1)


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
