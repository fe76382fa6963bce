"""What was not sent after all leaves nothing behind, and spoils nothing that is sent after it."""

import numpy as np
import pytest
from tests.rpc import simulated
from tests.rpc.driver.test_pool import NoThreads
from tests.rpc.inside import is_being_written, resting
from tests.rpc.neighbours import eventually, neighbours

from telegrad.errors import UsageError
from telegrad.rpc.transport.connection import Unsent
from telegrad.rpc.transport.segments import SEGMENTS, SMALLEST_SEGMENT
from telegrad.rpc.wire.frames import CALL, Frame

shares_memory = pytest.mark.skipif(not SEGMENTS, reason="this system has no sealed memory files")

LARGE = np.ones(SMALLEST_SEGMENT // 8)


def all_free(worker):
    pool = worker.host.segment_pool
    return len(pool.free()) == len(pool) > 0


@shares_memory
def test_too_many_arrays_for_one_message_are_an_error_that_takes_no_shared_memory():
    with neighbours("a", "b") as (a, _):
        a.rpc_sync("b", simulated.who)
        with pytest.raises(UsageError, match=r"65538 buffers .* the 65535 of one message: join"):
            a.rpc_sync("b", len, ([LARGE, *np.ones((1 << 16, 1))],))
        assert all_free(a)
        assert a.rpc_sync("b", len, ([LARGE, *np.ones((1 << 15, 1))],)) == 1 + (1 << 15)
        assert a.peers.get("b").lost is None
        assert eventually(lambda: all_free(a))


def test_a_frame_whose_rest_no_thread_can_send_is_finished_when_there_is_one_again(monkeypatch):
    system = NoThreads(monkeypatch)
    with neighbours("a", "b") as (a, _):
        a.rpc_sync("b", simulated.who)
        assert eventually(lambda: not resting(a.host))
        link = a.peers.get("b").outgoing
        send_small, send = link.connection.send_small, link.connection.send

        def send_a_part(data, deadline):
            link.connection.send_small = send_small
            assert send_small(data[:10], deadline) is None
            return Unsent([memoryview(data)[10:]], True)

        def send_nothing(buffers, fds=(), deadline=0.0):
            link.connection.send = send
            return Unsent(list(buffers), False)

        link.connection.send_small, link.connection.send = send_a_part, send_nothing
        system.refuses = True
        call = a.rpc_async("b", simulated.who)
        assert is_being_written(link)
        system.refuses = False
        assert call.wait(20) == "b"
        assert eventually(lambda: not is_being_written(link))


@shares_memory
def test_large_arrays_for_a_path_that_was_lost_meanwhile_leave_no_shared_memory():
    with neighbours("a", "b") as (a, _):
        a.rpc_sync("b", simulated.who)
        link = a.peers.get("b").outgoing
        a.endpoint_lost(link, ConnectionError("cut"))
        with pytest.raises(ConnectionError, match="closed"):
            link.send(Frame(CALL, 0, 1, 0, b"", [memoryview(LARGE).cast("B")]))
        assert len(a.host.segment_pool) == 0
