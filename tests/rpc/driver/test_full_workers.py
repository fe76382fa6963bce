"""A worker that is full slows down whoever sends, refuses as the last resort, and hangs never."""

import errno
import os
import re
import threading

import numpy as np
import pytest
from tests.rpc import simulated
from tests.rpc.inside import claim_reads, pool_of
from tests.rpc.neighbours import eventually, neighbours

from telegrad.errors import Refused, UsageError, WorkerLost
from telegrad.rpc.calls.future import Future
from telegrad.rpc.calls.future_group import wait_all
from telegrad.rpc.current import current_worker
from telegrad.rpc.options import Options
from telegrad.rpc.transport.segments import SEGMENTS
from telegrad.rpc.wire.frames import CALL, PING, pack
from telegrad.rpc.wire.functions import expose
from telegrad.testing.simulation import Faults, Simulation

MB = 1 << 20
SMALL = Options(in_flight_bytes=3 * MB, in_flight_bytes_of_peer=2 * MB, lost_after=4.0)
ONE = np.ones(MB // 8 + 1)  # a little more, so that two are too many for 2 MB
MOST = {"now": 0, "ever": 0}
LOCK = threading.Lock()


def occupy(x, seconds=0.01):
    """Hold a request's bytes for a while, and note how many are held."""
    held = current_worker().budget.held
    with LOCK:
        MOST["ever"] = max(MOST["ever"], held)
    threading.Event().wait(seconds)
    return float(x[0])


def occupy_virtually(x):
    worker = current_worker()
    MOST["ever"] = max(MOST["ever"], worker.budget.held)
    worker.host.simulation.sleep(0.5)
    return float(x[0])


def ask_back(x, to):
    """Call back with as much as came, while it is held."""
    return current_worker().rpc_sync(to, occupy_virtually, (x,))


def stay(x):
    return simulated.wait_for_gate()


def first_of(x, *_):
    return float(x[0])


@pytest.fixture(autouse=True)
def _forget():
    MOST["ever"] = 0


# In simulation.


@pytest.mark.parametrize("seed", range(5))
def test_many_requests_are_served_one_after_the_other_within_the_bound(seed):
    with Simulation(["a", "b", "c"], seed=seed, faults=Faults(), options=SMALL) as simulation:

        def ask(name):
            calls = [
                simulation.worker(name).rpc_async("b", occupy_virtually, (ONE,)) for _ in range(6)
            ]
            return wait_all(calls)

        results = simulation.run_all({name: lambda name=name: ask(name) for name in ("a", "c")})
        assert results == {"a": [1.0] * 6, "c": [1.0] * 6}
        assert 0 < MOST["ever"] <= 3 * MB
        simulation.settle(1.0)
        assert simulation.worker("b").budget.held == 0


def test_what_stays_full_is_refused_and_what_comes_after_it_gets_through():
    with Simulation(["a", "b"], seed=1, options=SMALL) as simulation:
        a, b = simulation.worker("a"), simulation.worker("b")

        def ask():
            first = a.rpc_async("b", stay, (ONE,))
            second = a.rpc_async("b", occupy_virtually, (ONE,))
            after = a.rpc_async("b", simulated.who)
            with pytest.raises(Refused, match=r"worker 'b' is full: requests of 10\d+ bytes"):
                second.wait()
            assert a.host.now() < 3.0, "half of lost_after, and the way there and back"
            assert after.wait() == "b"
            a.rpc_sync("b", simulated.open_gate)
            return first.wait()

        assert simulation.run("a", ask) == "open"
        simulation.settle(1.0)
        assert b.budget.held == 0


def test_calls_back_and_forth_through_full_workers_end():
    with Simulation(["a", "b"], seed=1, options=SMALL) as simulation:

        def ask(name, to):
            worker = simulation.worker(name)
            calls = [worker.rpc_async(to, ask_back, (ONE, name)) for _ in range(4)]
            outcomes = []
            for call in calls:
                try:
                    outcomes.append(call.wait())
                except Refused as error:
                    outcomes.append(str(error)[:17])
            return outcomes

        results = simulation.run_all({"a": lambda: ask("a", "b"), "b": lambda: ask("b", "a")})
        for outcomes in results.values():
            assert set(outcomes) <= {1.0, "worker 'a' is ful", "worker 'b' is ful"}
        simulation.settle(10.0)
        assert simulation.worker("a").budget.held == simulation.worker("b").budget.held == 0
        a = simulation.worker("a")
        assert simulation.run("a", lambda: a.rpc_sync("b", ask_back, (ONE, "a"))) == 1.0


def test_references_in_a_refused_call_are_taken_back():
    with Simulation(["a", "b"], seed=1, options=SMALL) as simulation:
        a = simulation.worker("a")

        def ask():
            first = a.rpc_async("b", stay, (ONE,))
            with pytest.raises(Refused):
                a.rpc_sync("b", simulated.keep, ("key", [a.make_rref(3), ONE]))
            assert a.references.counts()["given"] == 0
            a.rpc_sync("b", simulated.open_gate)
            return first.wait()

        assert simulation.run("a", ask) == "open"


# Over sockets.


def test_a_request_that_waits_for_room_is_not_forgotten_as_its_reader_leaves(monkeypatch):
    # So that no ping brings it to light.
    with neighbours("a", "b", options=Options(segments=False, lost_after=600)) as (a, b):
        a.rpc_sync("b", simulated.who)
        link, start, most = b.peers.get("a").incoming, b.host.start, b.budget.most
        has_left = threading.Event()

        def start_late(task):
            # Another thread, which waits for an answer, reads first, and leaves without a frame.
            assert claim_reads(link, -1)
            start(task)
            assert eventually(lambda: b.host.idle_leads() == pool_of(b.host).at_work())
            monkeypatch.undo()
            link.give_up_read()
            has_left.set()
            return True

        assert b.budget.admit("another", most)
        monkeypatch.setattr(
            b.host,
            "start",
            lambda task: threading.Thread(target=start_late, args=(task,)).start(),
        )
        # A creation: it waits in the stream, and the socket has nothing more to say.
        reference = a.remote("b", len, (np.ones(100_000, np.uint8),))
        assert has_left.wait(20)
        b.budget.release("another", most)
        assert eventually(reference.confirmed_by_owner)
        assert reference.to_here(timeout=20) == 100_000


@pytest.mark.parametrize("segments", [True, False])
@pytest.mark.parametrize("tcp", [True, False])
def test_over_sockets_all_are_served_within_the_bound(segments, tcp):
    options = Options(
        in_flight_bytes=3 * MB, in_flight_bytes_of_peer=2 * MB, segments=segments, lost_after=60
    )
    with neighbours("a", "b", "c", options=options, tcp=tcp) as (a, b, c):
        calls = [worker.rpc_async("b", occupy, (ONE,)) for _ in range(10) for worker in (a, c)]
        assert wait_all(calls) == [1.0] * 20
        assert 0 < MOST["ever"] <= 3 * MB
        assert eventually(lambda: b.budget.held == 0)


@pytest.mark.parametrize("segments", [True, False])
def test_over_sockets_a_worker_that_stays_full_refuses_and_goes_on(segments):
    options = Options(
        in_flight_bytes=2 * MB, in_flight_bytes_of_peer=2 * MB, segments=segments, lost_after=60
    )
    with neighbours("a", "b", options=options) as (a, b):
        b.host.room.patience = 0.5
        first = a.rpc_async("b", stay, (ONE,))
        assert eventually(lambda: b.budget.held > MB)
        second = a.rpc_async("b", occupy, (ONE,))
        after = a.rpc_async("b", simulated.who)
        with pytest.raises(Refused, match="worker 'b' is full"):
            second.wait()
        assert after.wait() == "b"
        a.rpc_sync("b", simulated.open_gate)
        assert first.wait() == "open"
        assert a.rpc_sync("b", occupy, (ONE,)) == 1.0
        assert a.peers.get("b").lost is None


@pytest.mark.skipif(not SEGMENTS, reason="this system has no sealed memory files")
def test_shared_memory_of_a_refused_request_is_not_taken_for_that_of_the_next():
    options = Options(in_flight_bytes=2 * MB, in_flight_bytes_of_peer=2 * MB, lost_after=60)
    with neighbours("a", "b", options=options) as (a, b):
        b.host.room.patience = 0.5
        first = a.rpc_async("b", stay, (np.ones(2 * MB // 8 - 3000),))
        assert eventually(lambda: b.budget.held > MB)
        # One array in shared memory and one, too large for the room that is left, beside it.
        with pytest.raises(Refused, match="worker 'b' is full"):
            a.rpc_sync("b", first_of, (np.full(MB // 16, 7.0), np.ones(MB // 64)))
        a.rpc_sync("b", simulated.open_gate)
        assert first.wait() == "open"
        for i in range(4):
            assert a.rpc_sync("b", first_of, (np.full(MB // 16, float(i)),)) == i
        pool = a.host.segment_pool
        assert eventually(lambda: len(pool.free()) == len(pool)), "what was refused goes back"


def test_answers_are_not_held_up_by_what_fills_the_caller():
    options = Options(in_flight_bytes=2 * MB, in_flight_bytes_of_peer=2 * MB, lost_after=60)
    with neighbours("a", "b", options=options) as (a, b):
        held = b.rpc_async("a", stay, (ONE,))
        assert eventually(lambda: a.budget.held > MB)
        for _ in range(3):
            assert a.rpc_sync("b", np.negative, (ONE,))[0] == -1.0
        b.rpc_sync("a", simulated.open_gate)
        assert held.wait() == "open"


def test_shutting_down_does_not_wait_for_what_waits_for_room():
    options = Options(in_flight_bytes=2 * MB, in_flight_bytes_of_peer=2 * MB, lost_after=600)
    with neighbours("a", "b", options=options) as (a, b):
        calls = [a.rpc_async("b", stay, (ONE,)) for _ in range(2)]
        assert eventually(lambda: b.budget.held > MB)
    assert all(call.done() for call in calls)


def test_what_a_peer_that_was_lost_had_begun_to_send_is_released():
    with neighbours("a", "b", options=Options(segments=False)) as (a, b):
        a.rpc_sync("b", simulated.who)
        link = a.peers.get("b").outgoing
        frame = b"".join(pack(CALL, 0, 2, 0, b"header", [ONE.view(np.uint8).data]))
        link.connection.send([frame[: MB // 2]])
        assert eventually(lambda: b.budget.held > MB)
        link.connection.shutdown()
        assert eventually(lambda: b.budget.held == 0)


@pytest.mark.parametrize("segments", [True, False])
def test_a_message_that_just_fits_is_taken(segments):
    options = Options(in_flight_bytes_of_peer=2 * MB, segments=segments)
    with neighbours("a", "b", options=options) as (a, _):
        assert a.rpc_sync("b", first_of, (np.ones(2 * MB // 8),)) == 1.0
        assert a.rpc_sync("b", first_of, [np.ones(1024) for _ in range(256)])


def test_a_message_that_could_never_fit_is_refused_by_its_sender():
    options = Options(in_flight_bytes_of_peer=2 * MB)
    with neighbours("a", "b", options=options) as (a, _):
        with pytest.raises(UsageError, match="more than the 2097152 that b takes in one message"):
            a.rpc_sync("b", len, (np.ones(MB),))
        assert a.rpc_sync("b", len, (ONE,)) == len(ONE)


@pytest.mark.parametrize("name", ["in_flight_bytes", "in_flight_bytes_of_peer"])
def test_a_bound_that_leaves_no_room_is_refused(name):
    with pytest.raises(UsageError, match=f"expected {name} of at least 1048576, got 5"):
        Options(**{name: 5})


def test_a_request_there_is_no_memory_for_is_refused_and_harms_no_other(monkeypatch):
    def empty(size, dtype):
        if size > 4 * MB:
            raise MemoryError
        return np.ndarray(size, dtype)

    with neighbours("a", "b", options=Options(segments=False)) as (a, b):
        monkeypatch.setattr("telegrad.rpc.driver.frame_reader.np.empty", empty)
        # Were they read as frames, these bytes would be pings.
        much = np.frombuffer(pack(PING, 0, 0, 0, b"", ())[0] * (MB // 4), np.uint8)
        for _ in range(3):
            with pytest.raises(Refused, match="worker 'b' has no memory for a request of"):
                a.rpc_sync("b", np.sum, (much,))
            assert a.rpc_sync("b", np.sum, (ONE,)) == ONE.size
        # Released after the answer went.
        assert eventually(lambda: b.budget.held == 0)


@pytest.mark.skipif(not SEGMENTS, reason="this system has no sealed memory files")
def test_a_worker_that_can_map_no_more_says_so_before_the_link_ends(monkeypatch, caplog):
    def adopt(self, peer, segment_id, fd, nbytes):
        os.close(fd)
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    with neighbours("a", "b") as (a, _):
        assert a.rpc_sync("b", np.sum, (ONE[:10],)) == 10
        monkeypatch.setattr("telegrad.rpc.transport.segments.SegmentMap.adopt", adopt)
        with pytest.raises(WorkerLost, match="'b' was lost"):
            a.rpc_sync("b", np.sum, (ONE,))
        said = "closed the connection to <PlainConnection to a .*Cannot allocate memory"
        assert eventually(lambda: re.search(said, caplog.text) is not None)


HOLD = []


@expose
def keep_waiting(numbers):
    HOLD.append(Future())
    HOLD[-1].wait()


def test_a_strict_worker_counts_what_a_header_becomes_and_not_its_bytes_alone():
    options = Options(strict=True, in_flight_bytes=64 * MB, in_flight_bytes_of_peer=64 * MB)
    with neighbours("a", "b", options=options) as (a, b):
        # Empty lists: a byte each on the wire, and 56 once they are there.
        many = [[] for _ in range(200_000)]
        call = a.rpc_async("b", keep_waiting, (many,))
        assert eventually(lambda: bool(HOLD))
        assert b.budget.held >= 200_000 * 56
        HOLD.pop().set_result(None)
        assert call.wait() is None
        assert eventually(lambda: b.budget.held == 0)
