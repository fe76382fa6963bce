"""Ctrl-C may come at any moment: what others wait for still comes, and nothing is mixed up."""

import contextlib
import os
import signal
import threading

import numpy as np
import pytest
from tests.rpc import simulated
from tests.rpc.inside import (
    claim_reads,
    followers,
    is_being_written,
    leave_reads,
    reader_of,
    takes_nested,
)
from tests.rpc.neighbours import directory_of, eventually, neighbours, stop
from tests.rpc.test_finalizers import interrupt

from telegrad.distributed import LocalCluster, rpc
from telegrad.errors import WorkerLost
from telegrad.rpc import api
from telegrad.rpc.calls.future import Quick
from telegrad.rpc.calls.future_group import collect_all
from telegrad.rpc.current import current_worker, set_default_worker
from telegrad.rpc.driver.pool import Pool
from telegrad.rpc.membership.rendezvous import Meeting
from telegrad.rpc.options import Options
from telegrad.rpc.protocol.calls import Calls
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.transport.segments import SEGMENTS, SMALLEST_SEGMENT, Segment

LARGE = np.ones(SMALLEST_SEGMENT // 8)


@contextlib.contextmanager
def interrupted_when(condition):
    """Press Ctrl-C as soon as the condition is true, and expect that it gets through."""
    is_felt = threading.Event()

    def feel(*_):
        if not is_felt.is_set():
            is_felt.set()
            raise KeyboardInterrupt

    def press():
        assert eventually(condition)
        # Again, if need be: a signal that comes just before a system call does not end it.
        while not is_felt.wait(0.05):
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, feel)
    thread = threading.Thread(target=press)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)


def press():
    raise KeyboardInterrupt


GATE = threading.Event()


def wait_for_gate():
    assert GATE.wait(20)
    return "open"


@pytest.fixture(autouse=True)
def _close_gate():
    GATE.clear()


def slices(x, first, last):
    return x[first:last].copy()


@pytest.mark.processes
def test_a_call_that_was_interrupted_while_it_was_sent_does_not_spoil_the_next():
    options = Options(lost_after=300.0, segments=False)
    with LocalCluster(["victim"], options=options) as cluster:
        rpc.rpc_sync("victim", simulated.who)
        link = rpc.current_worker().peers.get("victim").outgoing
        process = cluster.process("victim").pid
        stop(process)
        try:
            with interrupted_when(lambda: is_being_written(link)):
                rpc.rpc_sync("victim", len, (np.ones(125_000),))
        finally:
            os.kill(process, signal.SIGCONT)
        for i in range(3):
            assert rpc.rpc_sync("victim", slices, (np.arange(20.0), i, i + 2)).tolist() == [
                i,
                i + 1,
            ]


@pytest.mark.processes
def test_a_frame_whose_sending_was_interrupted_goes_on_and_what_lives_there_stays():
    """A notebook's user who stops a cell keeps the model that lies on the other worker."""
    options = Options(lost_after=300.0, segments=False)
    with LocalCluster(["victim"], options=options) as cluster:
        kept = rpc.remote("victim", dict)
        kept.rpc_sync().update(step=1)
        link = rpc.current_worker().peers.get("victim").outgoing
        process = cluster.process("victim").pid
        stop(process)
        try:
            with interrupted_when(lambda: is_being_written(link)):
                rpc.rpc_sync("victim", len, (np.ones(125_000),))
        finally:
            os.kill(process, signal.SIGCONT)
        assert kept.to_here() == {"step": 1}
        assert rpc.current_worker().peers.get("victim").outgoing is link


def test_ctrl_c_while_a_services_message_is_sent_gets_through_at_once(monkeypatch):
    with neighbours("a", "b", options=Options(lost_after=300.0)) as (a, b):
        b.register_service("echo", lambda request: request.reply(request.header))
        assert a.ask_service("b", "echo", 1)[0] == 1
        link = a.peers.get("b").outgoing
        interrupt(monkeypatch, link.connection, "_send_one", press)
        # Not first as somebody waits for the answer: others may wait for something else.
        with pytest.raises(KeyboardInterrupt):
            a.send_service("b", "echo", 2)
        assert a.ask_service("b", "echo", 3)[0] == 3
        assert a.peers.get("b").outgoing is link


@pytest.mark.skipif(not SEGMENTS, reason="this system has no sealed memory files")
def test_descriptors_of_a_frame_that_was_interrupted_are_not_taken_for_those_of_the_next(
    monkeypatch,
):
    with neighbours("a", "b") as (a, _):
        a.rpc_sync("b", simulated.who)
        connection = a.peers.get("b").outgoing.connection
        # Between the descriptors, which go first, and the frame that names them.
        interrupt(monkeypatch, connection, "_send_many", press)
        with pytest.raises(KeyboardInterrupt):
            a.rpc_sync("b", slices, (LARGE * 7, 0, 1))
        for i in range(3):
            assert a.rpc_sync("b", slices, (LARGE * i, 0, 1)).tolist() == [i]


@pytest.mark.skipif(not SEGMENTS, reason="this system has no sealed memory files")
def test_shared_memory_that_was_being_filled_is_given_back(monkeypatch):
    with neighbours("a", "b") as (a, _):
        a.rpc_sync("b", simulated.who)
        occupy = Segment.occupy

        def interrupted(segment, nbytes):
            occupy(segment, nbytes)
            if nbytes > LARGE.nbytes:
                segment.view = None  # filling it fails

        monkeypatch.setattr(Segment, "occupy", interrupted)
        with pytest.raises(TypeError):
            a.rpc_sync("b", len, ([LARGE, np.ones(LARGE.size + 1)],))
        pool = a.host.segment_pool
        assert len(pool.free()) == len(pool) == 2


def receiving_in_parts(link, after_the_first):
    """Let nothing more come after the first part of a large frame until this was called."""
    connection, reader = link.connection, reader_of(link)
    before = reader.received
    receive = connection.recv_into_nowait

    def once(view):
        if reader.received > before:
            connection.recv_into_nowait = receive
            after_the_first()
        return receive(view[: 1 << 16])

    connection.recv_into_nowait = once


def test_an_answer_whose_reader_was_interrupted_is_read_on_by_the_next(monkeypatch):
    with neighbours("a", "b", options=Options(segments=False, spin=0.0)) as (a, _):
        a.rpc_sync("b", simulated.who)
        link = a.peers.get("b").outgoing

        def nothing_is_there():
            interrupt(monkeypatch, reader_of(link), "_await_bytes", press)
            raise BlockingIOError

        receiving_in_parts(link, nothing_is_there)
        large = a.rpc_async("b", np.arange, (1 << 20,))
        with pytest.raises(KeyboardInterrupt):
            large.wait()
        assert a.rpc_sync("b", simulated.who) == "b"
        assert (large.wait() == np.arange(1 << 20)).all()
        assert a.peers.get("b").lost is None


def test_an_answer_of_which_an_interrupt_took_a_part_is_lost_and_not_read_on():
    """Nobody knows how many bytes came: what follows would be taken for them."""
    with neighbours("a", "b", options=Options(segments=False, spin=0.0)) as (a, _):
        a.rpc_sync("b", simulated.who)
        link = a.peers.get("b").outgoing

        def take_some():
            link.connection.recv_into_nowait(memoryview(bytearray(1 << 10)))
            raise KeyboardInterrupt

        receiving_in_parts(link, take_some)
        large = a.rpc_async("b", np.arange, (1 << 20,))
        with pytest.raises(KeyboardInterrupt):
            large.wait()
        with pytest.raises(WorkerLost, match="reading was interrupted"):
            large.wait()
        assert a.rpc_sync("b", simulated.who) == "b"


def raising_once(error, function, *, after=False):
    """The function, which the first time is interrupted before it begins, or when it is done."""
    left = [error]

    def interrupted(*args):
        if after:
            function(*args)
        if left:
            raise left.pop()
        return function(*args)

    return interrupted


def called(worker, function):
    """A call whose answer is read by none but the thread that waits for it."""
    return worker.outgoing.call("b", function, (), None, None, waits=True)


@pytest.mark.parametrize("signal_raises", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("others", [False, True])
def test_an_answer_that_was_read_but_not_received_is_left_to_the_next(signal_raises, others):
    with neighbours("a", "b", options=Options(rpc_timeout=0)) as (a, _):
        a.rpc_sync("b", simulated.who)
        a.receive = raising_once(signal_raises, a.receive)
        call = called(a, simulated.who)
        with pytest.raises(signal_raises):
            call.wait()
        if others:
            assert a.rpc_sync("b", simulated.who) == "b"
        assert eventually(call.done)
        assert call.wait() == "b"


class Asking:
    """Asks a worker as it arrives."""

    asked = []

    def __setstate__(self, state):
        self.asked.append(called(current_worker(), simulated.who))
        self.asked[0].wait()

    def __getstate__(self):
        return {"is": "not empty"}


def test_an_answer_that_was_read_within_another_is_left_to_the_next_as_well():
    Asking.asked.clear()
    with neighbours("a", "b", options=Options(rpc_timeout=0)) as (a, _):
        a.rpc_sync("b", simulated.who)
        receive, frames = a.receive, []

        def interrupted(link, frame):
            frames.append(frame)
            if len(frames) == 2:
                raise KeyboardInterrupt
            return receive(link, frame)

        before = set_default_worker(a)
        a.receive = interrupted
        try:
            with pytest.raises(KeyboardInterrupt):
                called(a, Asking).wait()
        finally:
            set_default_worker(before)
        assert eventually(Asking.asked[0].done)
        assert Asking.asked[0].wait() == "b"


def test_ctrl_c_within_the_answer_to_somebody_elses_call_gets_through(monkeypatch):
    with neighbours("a", "b", options=Options(rpc_timeout=0)) as (a, _):
        a.rpc_sync("b", simulated.who)
        open_result = raising_once(KeyboardInterrupt, a.codec.open_result)
        monkeypatch.setattr(a.codec, "open_result", open_result)
        mine, other = called(a, wait_for_gate), called(a, simulated.who)
        with pytest.raises(KeyboardInterrupt):
            mine.wait(5)
        assert isinstance(other.exception(), KeyboardInterrupt)
        GATE.set()
        assert mine.wait() == "open"


def test_a_group_is_not_done_early_where_ctrl_c_comes_as_one_of_its_calls_is_settled():
    with neighbours("a", "b", options=Options(rpc_timeout=0)) as (a, _):
        a.rpc_sync("b", simulated.who)
        link = a.peers.get("b").outgoing
        # So that this thread reads the answer, and none of the pool.
        assert eventually(lambda: claim_reads(link, -1))
        calls = [called(a, simulated.who), called(a, wait_for_gate)]
        together = collect_all(calls)
        press_once = raising_once(KeyboardInterrupt, lambda _: None)
        calls[0].add_done_callback(Quick(press_once))
        following = calls[0].then(lambda done: done.value())
        leave_reads(link)
        with pytest.raises(KeyboardInterrupt):
            calls[0].wait()
        assert following.wait(10) == "b"
        assert not together.done()
        GATE.set()
        assert [call.wait() for call in together.wait(10)] == ["b", "open"]


def test_a_call_that_was_closed_when_ctrl_c_came_is_settled_all_the_same(monkeypatch):
    with neighbours("a", "b", options=Options(rpc_timeout=0)) as (a, _):
        a.rpc_sync("b", simulated.who)
        finish = raising_once(KeyboardInterrupt, Calls.finish, after=True)
        monkeypatch.setattr(Calls, "finish", finish)
        call = called(a, simulated.who)
        with pytest.raises(KeyboardInterrupt):
            call.wait()
        assert eventually(call.done)


def test_whoever_waits_besides_a_thread_that_was_interrupted_reads_on():
    with neighbours("a", "b", options=Options(rpc_timeout=0)) as (a, _):
        a.rpc_sync("b", simulated.who)
        link = a.peers.get("b").outgoing
        calls = [a.rpc_async("b", wait_for_gate) for _ in range(2)]
        # As if another thread did.
        assert eventually(lambda: claim_reads(link, -1))
        with interrupted_when(lambda: followers(link) == 1):
            calls[0].wait()
        assert followers(link) == 0
        assert not takes_nested(link)
        waiting = threading.Thread(target=calls[1].wait)
        waiting.start()
        assert eventually(lambda: followers(link) == 1)
        link.give_up_read()
        GATE.set()
        waiting.join(10)
        assert not waiting.is_alive()


def test_three_threads_may_wait_for_one_future():
    with neighbours("a", "b") as (a, _):
        call = a.rpc_async("b", wait_for_gate)
        link = a.peers.get("b").outgoing
        values = []
        threads = [threading.Thread(target=lambda: values.append(call.wait())) for _ in range(3)]
        for thread in threads:
            thread.start()
        assert eventually(lambda: followers(link) == 2)
        GATE.set()
        for thread in threads:
            thread.join(20)
        assert values == ["open"] * 3


@pytest.mark.processes
def test_a_cluster_whose_end_was_interrupted_leaves_no_process_and_no_directory():
    with LocalCluster(["stuck"]) as cluster:
        process, worker = cluster.process("stuck"), cluster.worker
        directory = directory_of(worker)
        stop(process.pid)
        with interrupted_when(lambda: worker.closed and not worker.host.monitor._thread.is_alive()):
            cluster.close()
        assert process.returncode == -signal.SIGKILL
        assert not os.path.exists(directory)


def test_a_shutdown_that_was_interrupted_leaves_no_directory(monkeypatch):
    meeting = Meeting("tcp://127.0.0.1:0", ClusterKey.fresh(), None)
    api.join("alone", rank=0, world_size=1, meeting=meeting)
    directory = directory_of(api.current_worker())
    close = Pool.close

    def interrupted(pool, timeout):
        close(pool, timeout)
        raise KeyboardInterrupt

    monkeypatch.setattr(Pool, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        api.shutdown()
    assert not os.path.exists(directory)
    monkeypatch.undo()
    api.join("again", rank=0, world_size=1, meeting=meeting)
    api.shutdown()


SERVED_ON_MAIN = threading.Event()


def wait_on_main():
    if threading.current_thread() is threading.main_thread():
        SERVED_ON_MAIN.set()
    return wait_for_gate()


def call_back(to):
    return current_worker().rpc_sync(to, wait_on_main)


@pytest.mark.parametrize("to", ["a", "b"])
def test_ctrl_c_in_a_function_that_the_main_thread_runs_for_its_own_call_gets_through(to):
    SERVED_ON_MAIN.clear()
    with neighbours("a", "b") as (a, _):
        with interrupted_when(SERVED_ON_MAIN.is_set):
            if to == "a":
                a.rpc_sync("a", wait_on_main)
            else:
                a.rpc_sync("b", call_back, ("a",))
        GATE.set()
        assert a.rpc_sync("a", simulated.who) == "a"
        assert a.rpc_sync("b", simulated.who) == "b"
