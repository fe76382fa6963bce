"""What was not sent after all leaves nothing behind, and spoils nothing that is sent after it."""

import numpy as np
import pytest
from tests.rpc import simulated
from tests.rpc.neighbours import eventually, neighbours

from telegrad.errors import UsageError
from telegrad.rpc.segments import SEGMENTS, SMALLEST_SEGMENT

shares_memory = pytest.mark.skipif(not SEGMENTS, reason="this system has no sealed memory files")

LARGE = np.ones(SMALLEST_SEGMENT // 8)


def all_free(worker):
    pool = worker.host.segment_pool
    return len(pool._free()) == len(pool) > 0


@shares_memory
def test_too_many_arrays_for_one_message_are_an_error_that_takes_no_shared_memory():
    with neighbours("a", "b") as (a, b):
        a.rpc_sync("b", simulated.who)
        with pytest.raises(UsageError, match="65538 buffers .* the 65535 of one message: join"):
            a.rpc_sync("b", len, ([LARGE, *np.ones((1 << 16, 1))],))
        assert all_free(a)
        assert a.rpc_sync("b", len, ([LARGE, *np.ones((1 << 15, 1))],)) == 1 + (1 << 15)
        assert a.peers.get("b").lost is None
        assert eventually(lambda: all_free(a))
