"""What the collector frees may use futures and references itself, at whichever moment that is."""

import contextlib
import functools
import gc
import os
import pathlib
import re
import threading

import numpy as np
import pytest
from tests.interpreter import HAS_EAGER_COLLECTOR, needs_eager_collector
from tests.rpc.inside import pool_of, reader_of, replace_lock
from tests.rpc.neighbours import eventually, neighbours

from telegrad.errors import CallTimeout, NotInitialized, Unserializable, UsageError, WorkerLost
from telegrad.rpc import interruption
from telegrad.rpc.calls.future import Future
from telegrad.rpc.calls.future_group import wait_all
from telegrad.rpc.calls.incoming import async_execution
from telegrad.rpc.current import current_worker, set_default_worker
from telegrad.rpc.interruption import is_busy
from telegrad.rpc.membership.membership import Membership
from telegrad.rpc.membership.rendezvous import Meeting
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.options import Options
from telegrad.rpc.references.rref import RRef
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.transport import PrivateDirectory
from telegrad.rpc.transport.segments import SegmentMap, SegmentPool

GATE = threading.Event()
LATER = []


def wait_for_gate():
    return GATE.wait(10)


@pytest.fixture(autouse=True)
def _close_gate():
    GATE.clear()


class Cycle:
    """Garbage for the collector alone, which then calls `end`."""

    def __init__(self, end):
        self.end = end
        self.myself = self

    def __del__(self):
        self.end()


class Watched:
    """A lock. When it is first held, whatever is made next lets the collector find a cycle."""

    def __init__(self, lock=None, end=None, is_forced=not HAS_EAGER_COLLECTOR):
        self.lock = lock or threading.Lock()
        self.end = end or settle_another
        self.is_forced = lock is not None and is_forced
        self.kept = []

    def __enter__(self):
        self.lock.acquire()
        if not self.kept:
            Cycle(self.end)
            # Until Python has none left of those that it keeps for the next one to be made.
            for _ in range(100):
                self.kept.append([])
            gc.set_threshold(1)
            gc.enable()
            if self.is_forced:
                gc.collect()

    def __exit__(self, kind, error, traceback):
        gc.disable()
        self.lock.release()


class Interrupted:
    """A lock whose first holder is interrupted as soon as it has it.

    By a signal's handler, or, from Python 3.12 on, by a finalizer, though nothing is made there.
    """

    def __init__(self, lock, task):
        self.lock = lock
        self.task = task
        self.release = lock.release

    def acquire(self, *args, **kwargs):
        is_ours = self.lock.acquire(*args, **kwargs)
        task, self.task = self.task, None
        if task is not None:
            task()
        return is_ours

    def __enter__(self):
        self.acquire()

    def __exit__(self, kind, error, traceback):
        self.release()


def in_time(work):
    """Do it on another thread; say whether that came to an end."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(10)
    return not thread.is_alive()


def settle_another():
    future = Future()
    future.add_done_callback(lambda _: None)
    future.set_result(None)


def sleep(future):
    future.wait(0.0)


def follow(future):
    future.then(str)


def settle(future):
    future.set_result(None)


@pytest.mark.usefixtures("_collector")
@pytest.mark.parametrize("use", [sleep, follow, settle, lambda future: wait_all([future], 0)])
def test_the_collector_does_not_run_while_a_thread_holds_the_lock_of_all_futures(use, monkeypatch):
    monkeypatch.setattr("telegrad.rpc.calls.future._lock", Watched())

    def work():
        with contextlib.suppress(CallTimeout):
            use(Future())

    assert in_time(work)


def test_what_a_settled_future_followed_from_goes_without_keeping_other_futures_waiting():
    ends = []

    class Held:
        def __del__(self):
            ends.append(in_time(settle_another))

        def __call__(self, _):
            pass

    following = Future().then(Held())
    assert in_time(lambda: following.set_result(1))
    gc.collect()
    assert ends == [True]


class Owner:
    """Uses references when it goes, on another thread, and notes whether that came to an end."""

    def __init__(self, worker, ends):
        self.worker, self.ends = worker, ends

    def __del__(self):
        self.ends.append(in_time(self.worker.references.counts))


def test_what_the_error_of_a_failed_creation_holds_may_use_references_when_it_goes():
    ends = []

    def ask(worker):
        # In a frame of the traceback, as much may be.
        owner = Owner(worker, ends)
        worker.remote("b", len, (threading.Lock(),))
        return owner

    with neighbours("a", "b") as (a, _):
        with pytest.raises(Unserializable):
            ask(a)
        assert eventually(lambda: bool(ends))
        assert a.references.counts() == {"owned": 0, "held": 0, "given": 0}
    assert ends == [True]


@pytest.mark.usefixtures("_collector")
def test_the_collector_may_run_what_uses_references_while_a_thread_holds_their_lock():
    ends = []
    with neighbours("a", "b") as (a, _):
        references = a.references

        def use_others():
            ends.append(a.rpc_sync("b", type, (a.make_rref(2),)))

        replace_lock(references, lambda lock: Watched(lock, use_others))
        assert in_time(lambda: ends.append(a.make_rref(1).local_value()))
        assert ends == [RRef, 1]


@pytest.mark.usefixtures("_collector")
@pytest.mark.parametrize(
    ("holder", "use"),
    [
        (lambda host: host, lambda host: host.tidy()),
        (pool_of, lambda host: host.start(lambda: None)),
        (pool_of, lambda host: pool_of(host).catch_up()),
        (lambda host: host.monitor, lambda host: host.monitor.remove(None)),
        (lambda host: host.leads[0], lambda host: host.leads[0].remove(None)),
    ],
)
def test_the_collector_may_run_what_makes_a_call_while_a_thread_holds_a_lock_of_the_driver(
    holder, use
):
    ends = []
    with neighbours("a", "b") as (a, _):

        def call_back():
            use(a.host)
            ends.append(a.rpc_async("b", len, ("ab",)).then(lambda done: done.value()).wait())

        # At once, since under the host's lock nothing is made where no link has ended.
        replace_lock(holder(a.host), lambda lock: Watched(lock, call_back, is_forced=True))
        assert in_time(lambda: use(a.host))
        assert eventually(lambda: ends == [2])


def attend(link):
    link.start_attending()


def admit(link):
    link.anteroom.admit(1 << 20)


@pytest.mark.parametrize(
    ("holder", "name", "use"),
    [
        (lambda link: link, "_mutex", attend),
        (lambda link: link.anteroom, "_lock", admit),
        (lambda link: link.anteroom._room.budget, "_lock", admit),
    ],
)
def test_a_finalizer_may_use_a_link_whose_lock_it_interrupted(holder, name, use):
    ends = []
    with neighbours("a", "b") as (a, _):
        a.rpc_sync("b", len, ("",))
        link = a.peers.get("b").outgoing
        lock = Interrupted(getattr(holder(link), name), lambda: ends.append(use(link)))
        setattr(holder(link), name, lock)
        assert in_time(lambda: use(link))
        assert ends == [None]
        assert a.rpc_sync("b", len, ("ab",)) == 2


class Calling:
    """Calls its worker of origin when it arrives."""

    def __init__(self, origin):
        self.origin = origin

    def __setstate__(self, state):
        worker = current_worker()
        self.answers = [worker.rpc_sync(state["origin"], len, ("ab",), timeout=10.0)]
        self.answers.append(worker.rpc_async(state["origin"], call_back, (worker.name,)).wait())


def call_back(name):
    return current_worker().rpc_sync(name, abs, (-3,))


@pytest.mark.parametrize("quiet", [(), ("b",)])
@pytest.mark.parametrize("how", ["waited for", "left to a callback"])
def test_what_arrives_may_call_its_sender_as_it_is_unpickled(how, quiet):
    with neighbours("a", "b", quiet=quiet) as (a, b):
        b.rpc_sync("a", len, ("",))
        before = set_default_worker(a)
        try:
            call = a.rpc_async("b", Calling, ("b",), timeout=10.0)
            if how == "waited for":
                arrived = call.wait()
            else:
                arrived = call.then(lambda done: done.value()).wait()
        finally:
            set_default_worker(before)
        assert arrived.answers == [2, 3]
        assert a.rpc_sync("b", len, ("abc",)) == 3


def interrupt(monkeypatch, connection, method, task):
    """Run the task once, on the thread that uses the method next, in the midst of that."""
    go_on = getattr(connection, method)

    def interrupted(*args):
        monkeypatch.undo()
        task()
        return go_on(*args)

    monkeypatch.setattr(connection, method, interrupted)


def test_a_call_in_the_midst_of_dialling_the_same_worker_is_refused_and_a_notice_sent_later(
    monkeypatch,
):
    told = threading.Event()
    refused = []

    def call():
        with pytest.raises(UsageError, match="interrupted this thread while it") as error:
            a.rpc_sync("b", len, ("a",), timeout=10.0)
        refused.append(error)
        a.notify_service("b", "told", None)

    with neighbours("a", "b") as (a, b):
        b.register_service("told", lambda request: told.set(), inline=True)
        interrupt(monkeypatch, a.host, "dial", call)
        assert a.rpc_sync("b", len, ("ab",)) == 2
        assert len(refused) == 1
        assert told.wait(10)


@pytest.mark.parametrize("to", ["a", "b", "c"])
@pytest.mark.parametrize("method", ["send_small", "recv_into_nowait"])
def test_a_call_in_the_midst_of_a_frame_is_refused(method, to, monkeypatch):
    refused = []

    def call():
        for use in (a.rpc_sync, a.rpc_async, a.remote, lambda *_: pending.wait()):
            with pytest.raises(UsageError, match="interrupted this thread while it") as error:
                use(to, len, ("a",))
            refused.append(error)

    with neighbours("a", "b", "c") as (a, _, _):
        pending = a.rpc_async("c", wait_for_gate)
        a.rpc_sync("b", len, ("",))
        interrupt(monkeypatch, a.peers.get("b").outgoing.connection, method, call)
        assert a.rpc_sync("b", len, ("ab",)) == 2
        assert len(refused) == 4
        GATE.set()
        assert pending.wait()
        assert a.rpc_sync("b", len, ("abc",)) == 3
        assert eventually(lambda: a.references.counts() == {"owned": 0, "held": 0, "given": 0})
        assert not is_busy()


@async_execution
def settled_later():
    return LATER[0]


def test_an_answer_in_the_midst_of_a_frame_is_sent_later(monkeypatch):
    LATER[:] = [Future()]
    with neighbours("a", "b") as (a, b):
        a.rpc_sync("b", len, ("",))
        call = b.rpc_async("a", settled_later)
        assert b.rpc_sync("a", len, ("",)) == 0
        answered = functools.partial(LATER[0].set_result, np.ones(1 << 20))
        interrupt(monkeypatch, a.peers.get("b").outgoing.connection, "send_small", answered)
        assert a.rpc_sync("b", len, ("ab",)) == 2
        assert call.wait(10).sum() == 1 << 20


def test_a_worker_may_be_closed_by_a_signals_handler_while_it_waits_and_says_so(monkeypatch):
    with neighbours("a", "b") as (a, b):
        a.rpc_sync("b", len, ("",))
        b.rpc_sync("a", len, ("",))
        interrupt(monkeypatch, reader_of(a.peers.get("b").outgoing), "_await_bytes", a.close)
        with pytest.raises(NotInitialized):
            a.rpc_sync("b", wait_for_gate)
        assert eventually(lambda: b.peers.get("a").reason == "it has shut down")
        assert not is_busy()
        GATE.set()


class JustClaimed(dict):
    """The right to read a link. Whoever has just claimed it is interrupted, once."""

    def __init__(self, task):
        super().__init__()
        self.task = task

    def setdefault(self, key, thread):
        leader = super().setdefault(key, thread)
        task, self.task = self.task, None
        if task is not None:
            task()
        return leader


def test_a_call_just_when_this_thread_has_claimed_a_link_reads_its_own_answer():
    ends = []
    with neighbours("a", "b") as (a, _):
        a.rpc_sync("b", len, ("",))
        call = functools.partial(a.rpc_sync, "b", len, ("a",), timeout=10.0)
        a.peers.get("b").outgoing._reads = JustClaimed(lambda: ends.append(call()))
        assert a.rpc_sync("b", len, ("ab",)) == 2
        assert ends == [1]
        assert a.rpc_sync("b", len, ("abc",)) == 3


def test_a_notice_in_the_midst_of_a_frame_to_the_same_worker_is_sent_later(monkeypatch):
    told = threading.Event()
    with neighbours("a", "b") as (a, b):
        b.register_service("told", lambda request: told.set(), inline=True)
        a.rpc_sync("b", len, ("",))
        connection = a.peers.get("b").outgoing.connection
        interrupt(
            monkeypatch, connection, "send_small", lambda: a.notify_service("b", "told", None)
        )
        assert a.rpc_sync("b", len, ("ab",)) == 2
        assert told.wait(10)


@needs_eager_collector
@pytest.mark.usefixtures("_collector")
def test_what_the_collector_frees_may_send_while_a_segment_is_taken():
    pool, taken, locks = SegmentPool(), [], []

    def watched(lock):
        locks.append(lock)
        return Watched(lock, lambda: taken.append(pool.take("b", 1 << 20)))

    replace_lock(pool, watched)
    assert in_time(lambda: taken.append(pool.take("b", 1 << 20)))
    # The inner one goes over the socket.
    assert [segment is None for segment in taken] == [True, False]
    replace_lock(pool, lambda _: locks[0])
    pool.forget("b")
    assert len(pool) == 0


@needs_eager_collector
@pytest.mark.usefixtures("_collector")
def test_a_peer_that_goes_while_a_segment_is_taken_leaves_none_behind():
    pool = SegmentPool()
    replace_lock(pool, lambda lock: Watched(lock, lambda: pool.forget("b")))
    assert in_time(lambda: pool.take("b", 1 << 20))
    assert len(pool) == 0


@needs_eager_collector
@pytest.mark.usefixtures("_collector")
def test_what_the_collector_frees_may_receive_while_a_segment_is_mapped():
    pool, segments = SegmentPool(), SegmentMap()
    first, second = pool.take("b", 1 << 20), pool.take("b", 1 << 20)

    def adopt(peer, segment):
        segments.adopt(peer, segment.id, os.dup(segment.fd), segment.size)

    replace_lock(segments, lambda lock: Watched(lock, lambda: adopt("c", second)))
    assert in_time(lambda: adopt("b", first))
    assert len(segments.view("b", first.id, 8)) == len(segments.view("c", second.id, 8)) == 8
    pool.forget("b")


@pytest.mark.usefixtures("_collector")
def test_what_the_collector_frees_may_find_a_worker_lost_while_rank_0_counts_who_leaves():
    with PrivateDirectory.make() as directory:
        meeting = Meeting(directory.socket_address("meeting"), ClusterKey.fresh())
        alone = Membership("a", 0, 1, Options(), meeting, lambda _: None)
        # Without its threads, on which the collector could run as well.
        alone.close()
    gone = WorkerInfo("b", 1, 1)
    alone._lock = Watched(alone._lock, lambda: alone._on_lost(gone, WorkerLost("b")))
    assert in_time(lambda: alone._on_lost(gone, WorkerLost("b")))


# Held for a sleep, for a frame, at a prompt or at the start or end of a process, where nobody calls
# in.
PLAIN = {
    "calls/coroutines.py",
    "calls/future.py",
    "current.py",
    "debugger/console.py",
    "driver/frame_writer.py",
    "driver/pool.py",
    "transport/listener.py",
    "transport/segments.py",
}


def test_every_other_lock_is_reentrant():
    folder = pathlib.Path(interruption.__file__).parent
    found = {
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        if re.search(r"allocate_lock\(\)|threading\.Lock\(\)", path.read_text())
    }
    assert found == PLAIN
