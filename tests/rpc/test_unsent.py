"""What was not sent after all leaves nothing behind, and spoils nothing that is sent after it."""

import numpy as np
import pytest
from tests.rpc import simulated
from tests.rpc.neighbours import eventually, neighbours

from telegrad.errors import UsageError
from telegrad.rpc import outgoing
from telegrad.rpc.segments import SEGMENTS, SMALLEST_SEGMENT, TURNS_UP_TO
from telegrad.rpc.transport.connection import Unsent
from telegrad.rpc.wire.frames import CALL

shares_memory = pytest.mark.skipif(not SEGMENTS, reason="this system has no sealed memory files")

LARGE = np.ones(SMALLEST_SEGMENT // 8)


def all_free(worker):
    pool = worker.host.segment_pool
    return len(pool._free()) == len(pool) > 0


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


@shares_memory
def test_a_large_notice_that_finds_no_room_is_left_for_later_with_its_arrays(monkeypatch):
    monkeypatch.setattr(outgoing, "_LONGEST_NOTICE", 0.05)
    came = []
    with neighbours("a", "b") as (a, b):
        b.register_service("news", lambda request: came.append(request.arrays[0][-1]), inline=True)
        content = np.arange(TURNS_UP_TO // 8 + 1.0)
        a.notify_service("b", "news", None, [content])
        link = a.peers.get("b").outgoing
        link._write.acquire()
        try:
            a.notify_service("b", "news", None, [content])
        finally:
            link._write.release()
        a.run_timers(a.host.now() + 1.0)
        assert eventually(lambda: len(came) == 2)
        assert came == [content[-1]] * 2


def test_a_frame_whose_rest_nobody_can_send_ends_the_connection_and_not_all_others():
    with neighbours("a", "b") as (a, _):
        a.rpc_sync("b", simulated.who)
        link, start = a.peers.get("b").outgoing, a.host.start

        def fail(task):
            a.host.start = start
            raise RuntimeError("can't start new thread")

        link.connection.send = lambda *_: Unsent([memoryview(b"rest")], True)
        a.host.start = fail
        with pytest.raises(RuntimeError, match="can't start new thread"):
            a.rpc_sync("b", simulated.who)
        assert not link._write.locked()
        assert a.rpc_sync("b", simulated.who) == "b"


@shares_memory
def test_large_arrays_for_a_path_that_was_lost_meanwhile_leave_no_shared_memory():
    with neighbours("a", "b") as (a, _):
        a.rpc_sync("b", simulated.who)
        link = a.peers.get("b").outgoing
        a.endpoint_lost(link, ConnectionError("cut"))
        with pytest.raises(ConnectionError, match="closed"):
            link.send(CALL, 0, 1, 0, b"", [memoryview(LARGE).cast("B")])
        assert len(a.host.segment_pool) == 0
