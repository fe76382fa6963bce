"""A peer that does not read keeps nobody longer than the deadline, and nothing breaks thereby."""

import math
import os
import signal
import threading
import time

import numpy as np
import pytest
from tests.distributed import handlers
from tests.rpc import simulated
from tests.rpc.connected import connected, identities, mint_cluster, receive_exactly
from tests.rpc.inside import has_kept, is_being_written, writing
from tests.rpc.neighbours import eventually, neighbours, stop

import telegrad as tg
from telegrad.distributed import LocalCluster, autograd, rpc
from telegrad.errors import CallTimeout, ProtocolViolation
from telegrad.rpc.calls.service import seal_message
from telegrad.rpc.interruption import is_busy
from telegrad.rpc.options import Options
from telegrad.rpc.transport import PrivateDirectory, connection
from telegrad.rpc.transport.connection import NOT_BEGUN, Unsent
from telegrad.rpc.wire.frames import NOTICE, PING, Frame

LARGE = 32 << 20
UNANNOUNCED = 1_000_000  # Bytes; more than a Unix socket takes at once.


def soon(seconds=0.2):
    return time.monotonic() + seconds


@pytest.fixture
def unix():
    with PrivateDirectory.make() as directory:
        address = directory.socket_address("ps")
        with connected(address, *identities()) as both:
            yield both


@pytest.fixture(params=["unix", "tls"])
def pair(request, tmp_path):
    if request.param == "unix":
        yield request.getfixturevalue("unix")
    else:
        who = mint_cluster(tmp_path / "cluster", "ps", "trainer")
        with connected("tls://127.0.0.1:0", who["ps"], who["trainer"]) as both:
            yield both


def test_what_a_send_leaves_at_its_deadline_can_be_sent_later(pair):
    here, there = pair
    content = os.urandom(LARGE)
    unsent = here.send([content[:1000], content[1000:]], (), soon())
    assert unsent is not None
    assert unsent.is_begun
    gone = LARGE - sum(map(len, unsent.rest))
    assert gone < LARGE
    received = receive_exactly(there, gone // 2)
    # The rest needs a reader: it is more than what lies in buffers.
    sender = threading.Thread(target=here.send, args=(unsent.rest,))
    sender.start()
    received += receive_exactly(there, LARGE - len(received))
    sender.join(20)
    assert received == content


def test_what_an_interrupted_send_has_left_is_known(unix, monkeypatch):
    here, there = unix
    content = os.urandom(LARGE)
    whole = [content[:1000], content[1000:]]
    here.under_way = NOT_BEGUN
    assert here.unsent(whole) == content
    with monkeypatch.context() as patch:
        patch.setattr(connection, "is_ready", press)
        with pytest.raises(KeyboardInterrupt):
            here.send(whole)
    rest = here.unsent(whole)
    assert 0 < len(rest) < LARGE
    sender = threading.Thread(target=here.send, args=([rest],))
    sender.start()
    assert receive_exactly(there, LARGE) == content
    sender.join(20)
    assert here.unsent(whole) == b""


def press(*_, **__):
    raise KeyboardInterrupt


def test_a_send_for_which_there_was_no_room_at_all_was_not_begun(unix):
    here, _ = unix
    assert here.send([bytes(LARGE)], (), soon()).is_begun
    unsent = here.send([b"x" * 10], (), soon(0.05))
    assert unsent is not None
    assert not unsent.is_begun
    assert [bytes(view) for view in unsent.rest] == [b"x" * 10]


def test_descriptors_that_found_no_room_leave_no_trace(unix):
    here, there = unix
    sent = 0
    while here.send([b"frame"], [0], soon(0.05)) is None:
        sent += 1
        assert sent < 100_000, "the kernel never runs out of room"
    assert sent
    for _ in range(sent):
        os.close(there.take_fd())
    with pytest.raises(ProtocolViolation, match="got none"):
        there.take_fd()


@pytest.mark.processes
def test_calls_to_a_stopped_worker_time_out_although_its_socket_is_full():
    # So long that nothing but the calls' own timeouts can end them in time for this test.
    options = Options(lost_after=300.0, segments=False)
    large = np.ones(UNANNOUNCED // 8)
    with LocalCluster(["victim"], options=options) as cluster:
        assert rpc.rpc_sync("victim", simulated.who) == "victim"
        process = cluster.process("victim").pid
        stop(process)
        try:
            with pytest.raises(CallTimeout, match="did not answer 'len'"):
                rpc.rpc_sync("victim", len, (large,), timeout=0.3)
            # Its rest is on its way still, so nothing of these can begin.
            with pytest.raises(CallTimeout, match="did not take 'who'"):
                rpc.rpc_sync("victim", simulated.who, timeout=0.2)
            future = rpc.rpc_async("victim", len, (large,), timeout=0.2)
            with pytest.raises(CallTimeout, match="did not take 'len'"):
                future.wait()
        finally:
            os.kill(process, signal.SIGCONT)
        # Frames that were begun have been finished: the stream still makes sense.
        assert rpc.rpc_sync("victim", simulated.who) == "victim"
        assert rpc.rpc_sync("victim", len, (large,)) == UNANNOUNCED // 8


@pytest.mark.processes
def test_references_in_a_call_that_never_left_are_taken_back():
    options = Options(lost_after=300.0, segments=False)
    with LocalCluster(["victim"], options=options) as cluster:
        worker = rpc.current_worker()
        rpc.rpc_sync("victim", simulated.who)
        process = cluster.process("victim").pid
        stop(process)
        try:
            with pytest.raises(CallTimeout):
                rpc.rpc_sync("victim", len, (np.ones(UNANNOUNCED // 8),), timeout=0.2)
            with pytest.raises(CallTimeout, match="did not take"):
                rpc.rpc_sync("victim", simulated.fetch, (rpc.RRef(3),), timeout=0.1)
            assert worker.references.counts()["given"] == 0
        finally:
            os.kill(process, signal.SIGCONT)
        assert rpc.rpc_sync("victim", simulated.who) == "victim"


# Notices: nobody waits for an answer, and still each arrives, once.


def test_a_notice_that_finds_no_room_is_left_for_later_and_the_next_does_not_wait():
    came = []
    with neighbours("a", "b", options=Options(segments=False)) as (a, b):
        b.register_service("news", lambda request: came.append(request.header), inline=True)
        a.notify_service("b", "news", 0)
        link = a.peers.get("b").outgoing
        with writing(link):
            for i in range(1, 4):
                a.notify_service("b", "news", i)
            assert len(link.outbox) == 3
            # Those who look after the links try in vain, and don't wait either.
            a.run_timers(a.host.now() + 1.0)
        # Whoever comes now need not queue behind them.
        a.notify_service("b", "news", 4)
        a.run_timers(a.host.now() + 10.0)
        assert eventually(lambda: sorted(came) == [0, 1, 2, 3, 4])
        # Each leaves the queue when it has been sent.
        assert eventually(lambda: not link.outbox)


def test_a_notice_that_comes_while_one_that_waited_is_sent_goes_behind_it(monkeypatch):
    came = []
    with neighbours("a", "b", options=Options(segments=False)) as (a, b):
        b.register_service("news", lambda request: came.append(request.header), inline=True)
        a.notify_service("b", "news", 0)
        link = a.peers.get("b").outgoing
        send, following = type(link).send, [2]

        def send_late(path, frame, deadline=math.inf):
            if path is link and following:
                # As another thread does.
                a.notify_service("b", "news", following.pop())
            return send(path, frame, deadline)

        with writing(link):
            a.notify_service("b", "news", 1)
            monkeypatch.setattr(type(link), "send", send_late)
        a.run_timers(a.host.now() + 1.0)
        a.run_timers(a.host.now() + 10.0)
        assert eventually(lambda: len(came) == 3)
        assert came == [0, 1, 2]


def test_notices_that_found_no_room_go_with_a_peer_that_is_lost():
    with neighbours("a", "b", options=Options(segments=False)) as (a, b):
        a.notify_service("b", "autograd.none", 0)
        link = a.peers.get("b").outgoing
        with writing(link):
            a.notify_service("b", "autograd.none", 1)
            assert len(link.outbox) == 1
            b.close()
            assert eventually(lambda: not link.outbox and link.closed)


@pytest.mark.processes
def test_the_end_of_a_pass_and_of_a_context_do_not_wait_for_a_stopped_worker():
    # So long that nobody is given up: each notice must arrive in the end.
    options = Options(lost_after=300.0, segments=False)
    with LocalCluster(["victim", "b"], options=options) as cluster:
        process = cluster.process("victim").pid
        with autograd.context() as context_id:
            x = tg.tensor(np.ones(2), requires_grad=True)
            rpc.rpc_sync("victim", handlers.scale, (x,))
            loss = rpc.rpc_sync("b", handlers.with_failing_hook, (x,)).sum()
            stop(process)
            try:
                with pytest.raises(CallTimeout):
                    rpc.rpc_sync("victim", len, (np.ones(UNANNOUNCED // 8),), timeout=0.2)
                # The victim is told of the failure, which it has no room for.
                with pytest.raises(handlers.Unlucky):
                    autograd.backward(context_id, [loss])
                autograd._release_context(context_id)
                link = rpc.current_worker().peers.get("victim").outgoing
                assert len(link.outbox) == 2
            finally:
                os.kill(process, signal.SIGCONT)
        assert eventually(lambda: rpc.rpc_sync("victim", handlers.leftovers) == handlers.CLEAN, 30)
        assert eventually(lambda: not link.outbox, 30)


def test_a_timeout_while_another_thread_sends_leaves_that_send_alone():
    with neighbours("a", "b", options=Options(segments=False)) as (a, _):
        a.rpc_sync("b", simulated.who)
        link = a.peers.get("b").outgoing
        with writing(link), pytest.raises(CallTimeout, match="worker 'b' did not take 'who'"):
            a.rpc_sync("b", simulated.who, timeout=0.05)
        assert a.rpc_sync("b", simulated.who) == "b"


def test_whoever_reads_does_not_wait_to_answer_a_ping():
    with neighbours("a", "b", options=Options(segments=False)) as (a, b):
        a.rpc_sync("b", simulated.who)
        link = b.peers.get("a").incoming
        ping = Frame(PING, 0, 0, 0, b"", ())
        reader = threading.Thread(target=b.receive, args=(link, ping), daemon=True)
        with writing(link):
            reader.start()
            reader.join(10)
            assert not reader.is_alive()


class EndsMeanwhile:
    """The lock of a link that ends while somebody waits for a turn to send."""

    def __init__(self, link):
        self.link = link
        self.is_held = True

    def acquire(self, waits, timeout=-1):
        if waits:
            self.link.closed = True
        return waits

    def release(self):
        self.is_held = False


def test_a_send_whose_turn_came_when_the_link_had_ended_gives_the_turn_back():
    with neighbours("a", "b", options=Options(segments=False)) as (a, _):
        a.rpc_sync("b", simulated.who)
        link = a.peers.get("b").outgoing
        link._write, before = EndsMeanwhile(link), link._write
        try:
            with pytest.raises(ConnectionError, match="the connection to b is closed"):
                link.send(Frame(NOTICE, 0, 0, 0, b""))
            assert not link._write.is_held
        finally:
            link._write, link.closed = before, False


def test_the_rest_of_a_frame_that_a_closing_worker_drops_keeps_neither_lock_nor_descriptor():
    with neighbours("a", "b", options=Options(segments=False)) as (a, _):
        a.rpc_sync("b", simulated.who)
        link = a.peers.get("b").outgoing

        def rest():
            # Found open, and closed before another thread could take the rest over.
            assert not link.closed
            a.close()
            yield b"rest"

        link.connection.send_small = lambda *_: Unsent(rest(), True)
        assert not link.send(Frame(PING), -math.inf)
        assert not is_being_written(link)
        assert link.connection.fileno() == -1


def send_ping(link):
    assert link.send(Frame(PING), -math.inf)


def flush_notice(link):
    assert link.send_with_next(seal_message("nothing", None, ())[0])
    link.flush()


@pytest.mark.parametrize("send", [send_ping, flush_notice])
def test_a_link_that_ends_while_a_thread_has_just_sent_on_it_keeps_no_descriptor(send):
    with neighbours("a", "b") as (a, _):
        a.rpc_sync("b", simulated.who)
        link = a.peers.get("b").outgoing
        send_small = link.connection.send_small

        def end_meanwhile(data, deadline):
            unsent = send_small(data, deadline)
            # As a thread does that reads the end, and leaves the descriptor to who sends.
            a.endpoint_lost(link, ConnectionError("cut"))
            return unsent

        link.connection.send_small = end_meanwhile
        send(link)
        assert not is_being_written(link)
        assert link.connection.fileno() == -1


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_send_that_has_to_wait_sends_what_was_kept_for_others_first(is_broken, monkeypatch):
    with neighbours("a", "b", "c", options=Options(segments=False)) as (a, *_):
        one, other = (
            a.rpc_sync(name, simulated.who) and a.peers.get(name).outgoing for name in "bc"
        )
        send_small = one.connection.send_small

        def is_full(data, deadline):
            monkeypatch.setattr(one.connection, "send_small", send_small)
            return Unsent([memoryview(data)], False)

        def leave_lead():
            if is_broken:
                other.connection.shutdown()
            assert other.send_with_next(seal_message("nothing", None, ())[0])
            other.flush()

        monkeypatch.setattr(one.connection, "send_small", is_full)
        monkeypatch.setattr(a.host, "about_to_wait", leave_lead)
        assert a.rpc_sync("b", simulated.who) == "b"
        assert not has_kept(other)
        assert eventually(lambda: (a.peers.get("c").lost is not None) == is_broken)
        assert not is_busy()
