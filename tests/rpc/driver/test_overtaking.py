"""A peer whose large request waits for room gets its small ones, answers and pings through."""

import threading

import numpy as np
import pytest
from tests.rpc import simulated
from tests.rpc.inside import refuse_who_waits
from tests.rpc.neighbours import eventually, neighbours

from telegrad.errors import CallTimeout, Refused
from telegrad.rpc.current import current_worker
from telegrad.rpc.options import Options
from telegrad.testing.simulation import Simulation

MB = 1 << 20
WIRES = [
    pytest.param(False, True, id="unix, shared memory"),
    pytest.param(False, False, id="unix"),
    pytest.param(True, False, id="tcp"),
]


def options(segments, lost_after=60.0):
    return Options(
        in_flight_bytes=10 * MB,
        in_flight_bytes_of_peer=10 * MB,
        segments=segments,
        lost_after=lost_after,
    )


def stay(x):
    return simulated.wait_for_gate()


def total(*arrays):
    return sum(float(x.sum()) for x in arrays)


def ask_back(x, to):
    """Call who waits for this, with as much as came."""
    return current_worker().rpc_sync(to, total, (x,))


def in_background(function):
    """Run it on a thread: a call that is announced keeps its sender, as a full socket does."""
    outcome = []

    def run():
        try:
            outcome.append(function())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, outcome


def fill(a, b, nbytes=8 * MB):
    """Have a request of a worker stay in another; return its call."""
    held = a.rpc_async("b", stay, (np.ones(nbytes, np.uint8),))
    assert eventually(lambda: b.budget.held >= nbytes)
    return held


@pytest.mark.parametrize(("tcp", "segments"), WIRES)
@pytest.mark.parametrize("nbytes", [6 * MB, 3 * MB, 5 * MB // 2 + 1])
def test_small_calls_overtake_a_large_one_that_waits_for_room(tcp, segments, nbytes):
    with neighbours("a", "b", options=options(segments), tcp=tcp) as (a, b):
        held = fill(a, b)
        much = np.ones(nbytes, np.uint8)
        thread, outcome = in_background(lambda: a.rpc_sync("b", total, (much,)))
        for _ in range(20):
            assert a.rpc_sync("b", simulated.who, timeout=10) == "b"
            assert b.rpc_sync("a", simulated.who, timeout=10) == "a"
        assert not outcome
        a.rpc_sync("b", simulated.open_gate, timeout=10)
        assert held.wait() == "open"
        thread.join(20)
        assert outcome == [float(nbytes)]
        assert eventually(lambda: b.budget.held == 0)


@pytest.mark.parametrize(("tcp", "segments"), WIRES)
def test_small_calls_overtake_one_of_middle_size(tcp, segments):
    with neighbours("a", "b", options=options(segments), tcp=tcp) as (a, b):
        held = fill(a, b, 10 * MB - 50_000)
        calls = [a.rpc_async("b", total, (np.ones(100_000, np.uint8),)) for _ in range(5)]
        assert a.rpc_sync("b", simulated.who, timeout=10) == "b"
        assert not any(call.done() for call in calls)
        a.rpc_sync("b", simulated.open_gate, timeout=10)
        assert held.wait() == "open"
        assert [call.wait() for call in calls] == [100_000.0] * 5
        assert eventually(lambda: b.budget.held == 0)


@pytest.mark.parametrize(("tcp", "segments"), WIRES)
@pytest.mark.parametrize("nbytes", [100_000, 6 * MB])
def test_what_waits_in_vain_is_refused_and_its_references_are_taken_back(tcp, segments, nbytes):
    with neighbours("a", "b", options=options(segments), tcp=tcp) as (a, b):
        b.host.room.patience = 0.5
        held = fill(a, b, 10 * MB - 50_000)
        with pytest.raises(Refused, match="worker 'b' is full"):
            a.rpc_sync("b", simulated.keep, ("key", [a.make_rref(3), np.ones(nbytes, np.uint8)]))
        assert eventually(lambda: a.references.counts()["given"] == 0)
        a.rpc_sync("b", simulated.open_gate)
        assert held.wait() == "open"
        assert a.rpc_sync("b", total, (np.ones(nbytes, np.uint8),)) == nbytes
        assert eventually(lambda: b.budget.held == 0)


@pytest.mark.parametrize(("tcp", "segments"), WIRES)
@pytest.mark.parametrize("nbytes", [100_000, 6 * MB])
def test_a_call_that_is_given_up_while_it_waits_for_room_keeps_none(tcp, segments, nbytes):
    with neighbours("a", "b", options=options(segments), tcp=tcp) as (a, b):
        held = fill(a, b, 10 * MB - 50_000)
        with pytest.raises(CallTimeout):
            a.rpc_sync("b", total, (np.ones(nbytes, np.uint8),), timeout=0.2)
        a.rpc_sync("b", simulated.open_gate)
        assert held.wait() == "open"
        assert eventually(lambda: b.budget.held == 0)
        assert a.rpc_sync("b", total, (np.ones(9 * MB, np.uint8),)) == 9 * MB


@pytest.mark.parametrize(("tcp", "segments"), WIRES)
@pytest.mark.parametrize("nbytes", [100_000, 6 * MB])
def test_what_is_given_up_and_then_refused_keeps_no_references(tcp, segments, nbytes):
    with neighbours("a", "b", options=options(segments), tcp=tcp) as (a, b):
        held = fill(a, b, 10 * MB - 50_000)
        carried = [a.make_rref(3), np.ones(nbytes, np.uint8)]
        with pytest.raises(CallTimeout):
            a.rpc_sync("b", simulated.keep, ("key", carried), timeout=0.2)

        def is_taken_back():
            refuse_who_waits(b.host.room)
            return a.references.counts()["given"] == 0

        assert eventually(is_taken_back)
        assert a.peers.get("b").lost is b.peers.get("a").lost is None
        a.rpc_sync("b", simulated.open_gate)
        assert held.wait() == "open"


STREAMS = [pytest.param(False, id="unix"), pytest.param(True, id="tcp")]


def asked(a):
    """How many requests a worker has sent to the other, those that ask for room among them."""
    return a.rpc_async("b", simulated.who).number - 1


@pytest.mark.parametrize("tcp", STREAMS)
def test_a_request_of_some_megabytes_goes_at_once_if_the_last_one_was_answered(tcp):
    with neighbours("a", "b", options=options(False), tcp=tcp) as (a, _):
        for _ in range(3):
            assert a.rpc_sync("b", total, (np.ones(2 * MB, np.uint8),)) == 2 * MB
        assert asked(a) == 3
        assert a.rpc_sync("b", total, (np.ones(5 * MB, np.uint8),)) == 5 * MB
        assert asked(a) == 4 + 2, "larger ones are announced"
        assert a.remote("b", total, (np.ones(2 * MB, np.uint8),)).to_here() == 2 * MB
        assert asked(a) == 7 + 3, "so are creations"


@pytest.mark.parametrize("tcp", STREAMS)
def test_of_several_requests_of_some_megabytes_one_goes_at_once_and_all_are_served(tcp):
    with neighbours("a", "b", options=options(False), tcp=tcp) as (a, b):
        held = fill(a, b, 10 * MB - 50_000)
        before = asked(a)
        much = np.ones(2 * MB, np.uint8)
        first = a.rpc_async("b", total, (much,))
        runs = [in_background(lambda: a.rpc_sync("b", total, (much,))) for _ in range(3)]
        assert eventually(lambda: b.peers.get("a").incoming.anteroom.waiting == 4)
        assert a.rpc_sync("b", simulated.who, timeout=10) == "b"
        assert b.rpc_sync("a", simulated.who, timeout=10) == "a"
        assert not first.done()
        a.rpc_sync("b", simulated.open_gate)
        assert held.wait() == "open"
        assert first.wait() == 2 * MB
        for thread, outcome in runs:
            thread.join(20)
            assert outcome == [2.0 * MB]
        assert asked(a) == before + 1 + 1 + 3 * 2 + 1 + 1
        assert eventually(lambda: b.budget.held == 0)


@pytest.mark.parametrize("tcp", STREAMS)
def test_after_one_that_went_at_once_and_was_given_up_the_next_is_announced(tcp):
    with neighbours("a", "b", options=options(False), tcp=tcp) as (a, b):
        held = fill(a, b, 10 * MB - 50_000)
        much = np.ones(2 * MB, np.uint8)
        with pytest.raises(CallTimeout):
            a.rpc_sync("b", total, (much,), timeout=0.2)
        thread, outcome = in_background(lambda: a.rpc_sync("b", total, (much,)))
        assert eventually(lambda: b.peers.get("a").incoming.anteroom.waiting == 2)
        for _ in range(5):
            assert a.rpc_sync("b", simulated.who, timeout=10) == "b"
        a.rpc_sync("b", simulated.open_gate)
        assert held.wait() == "open"
        thread.join(20)
        assert outcome == [2.0 * MB]
        before = asked(a)
        assert a.rpc_sync("b", total, (much,)) == 2 * MB
        assert asked(a) == before + 2, "at once again"


@pytest.mark.parametrize(("tcp", "segments"), WIRES)
def test_a_creation_is_there_before_what_mentions_it(tcp, segments):
    with neighbours("a", "b", options=options(segments), tcp=tcp) as (a, b):
        held = fill(a, b)
        threading.Timer(0.1, b.rpc_sync, ("b", simulated.open_gate)).start()
        made = a.remote("b", np.negative, (np.ones(6 * MB // 8),))
        assert made.rpc_sync().sum() == -6 * MB / 8
        assert held.wait() == "open"


@pytest.mark.parametrize(("tcp", "segments"), WIRES)
def test_large_calls_back_and_forth_through_full_workers_end(tcp, segments):
    with neighbours("a", "b", options=options(segments), tcp=tcp) as (a, b):
        a.host.room.patience = b.host.room.patience = 1.0
        much = np.ones(4 * MB, np.uint8)
        runs = [
            in_background(lambda f=frm, to=to: f.rpc_sync(to, ask_back, (much, f.name)))
            for frm, to in [(a, "b"), (b, "a")] * 4
        ]
        for thread, outcome in runs:
            thread.join(30)
            assert len(outcome) == 1
            assert outcome[0] == 4 * MB or isinstance(outcome[0], Refused), outcome
        assert eventually(lambda: a.budget.held == b.budget.held == 0)


def test_the_peer_is_not_lost_while_its_large_request_waits():
    with neighbours("a", "b", options=options(False, lost_after=4.0)) as (a, b):
        held = fill(a, b)
        with pytest.raises(Refused):
            a.rpc_sync("b", total, (np.ones(6 * MB, np.uint8),))
        assert a.peers.get("b").lost is b.peers.get("a").lost is None
        a.rpc_sync("b", simulated.open_gate)
        assert held.wait() == "open"


def test_what_a_lost_peer_had_room_for_is_released():
    with neighbours("a", "b", options=options(False)) as (a, b):
        a.rpc_sync("b", simulated.who)
        path = a.peers.get("b").outgoing
        a.incoming.waiting.ask(path, (100, 6 * MB), a.outgoing.deadline(10))
        assert b.budget.held == 6 * MB + 100
        path.connection.shutdown()
        assert eventually(lambda: b.budget.held == 0)


def test_in_simulation_small_calls_overtake_as_well():
    with Simulation(["a", "b"], seed=3, options=options(False)) as simulation:
        a = simulation.worker("a")

        def ask():
            held = a.rpc_async("b", stay, (np.ones(8 * MB, np.uint8),))
            large = a.rpc_async("b", total, (np.ones(6 * MB, np.uint8),))
            assert a.rpc_sync("b", simulated.who, timeout=5.0) == "b"
            assert not large.done()
            a.rpc_sync("b", simulated.open_gate)
            return held.wait(), large.wait()

        assert simulation.run("a", ask) == ("open", 6 * MB)
