"""A peer that does not read keeps nobody longer than the deadline, and nothing breaks thereby."""

import os
import signal
import threading
import time

import numpy as np
import pytest
from tests.rpc import simulated
from tests.rpc.connected import connected, identities, mint_cluster, receive_exactly
from tests.rpc.neighbours import neighbours

from telegrad.distributed import LocalCluster, rpc
from telegrad.errors import CallTimeout
from telegrad.rpc.options import Options
from telegrad.rpc.transport import PrivateDirectory

LARGE = 32 << 20


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
    taken = there.take_fds()
    for fd in taken:
        os.close(fd)
    assert len(taken) == sent


@pytest.mark.processes
def test_calls_to_a_stopped_worker_time_out_although_its_socket_is_full():
    # So long that nothing but the calls' own timeouts can end them in time for this test.
    options = Options(lost_after=300.0, segments=False)
    large = np.ones(LARGE // 8)
    with LocalCluster(["victim"], options=options) as cluster:
        assert rpc.rpc_sync("victim", simulated.who) == "victim"
        process = cluster.process("victim").pid
        os.kill(process, signal.SIGSTOP)
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
        assert rpc.rpc_sync("victim", len, (large,)) == LARGE // 8


@pytest.mark.processes
def test_references_in_a_call_that_never_left_are_taken_back():
    options = Options(lost_after=300.0, segments=False)
    with LocalCluster(["victim"], options=options) as cluster:
        worker = rpc.current_worker()
        rpc.rpc_sync("victim", simulated.who)
        process = cluster.process("victim").pid
        os.kill(process, signal.SIGSTOP)
        try:
            with pytest.raises(CallTimeout):
                rpc.rpc_sync("victim", len, (np.ones(LARGE // 8),), timeout=0.2)
            with pytest.raises(CallTimeout, match="did not take"):
                rpc.rpc_sync("victim", simulated.fetch, (rpc.RRef(3),), timeout=0.1)
            assert worker.references.counts()["given"] == 0
        finally:
            os.kill(process, signal.SIGCONT)
        assert rpc.rpc_sync("victim", simulated.who) == "victim"


def test_a_timeout_while_another_thread_sends_leaves_that_send_alone():
    with neighbours("a", "b", options=Options(segments=False)) as (a, _):
        a.rpc_sync("b", simulated.who)
        link = a.peers.get("b").outgoing
        link._write.acquire()
        try:
            with pytest.raises(CallTimeout, match="worker 'b' did not take 'who'"):
                a.rpc_sync("b", simulated.who, timeout=0.05)
        finally:
            link._write.release()
        assert a.rpc_sync("b", simulated.who) == "b"
