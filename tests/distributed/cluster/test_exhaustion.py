"""A worker whose process has no descriptor or no memory left: a typed error, and it goes on."""

import os
import resource

import numpy as np
import psutil
import pytest
from tests.distributed import functions, handlers

import telegrad as tg
from telegrad.distributed import LocalCluster, autograd, rpc
from telegrad.errors import PeerError, WorkerLost
from telegrad.rpc.options import Options

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs Linux"),
]
X = np.array([5.0, 7.0])
HELD = []


def allow(name, kind, most=None):
    """Set a soft limit of a worker's process, from outside; the hard one if no number is given."""
    pid = rpc.rpc_sync(name, os.getpid) if isinstance(name, str) else name
    hard = resource.prlimit(pid, kind)[1]
    resource.prlimit(pid, kind, (hard if most is None else most, hard))
    return pid


def allow_files(name, left):
    """Lower the limit so that a process can open so many files and no more; return its id."""
    pid = allow(name, resource.RLIMIT_NOFILE, rpc.rpc_sync(name, highest_file) + 4)
    rpc.rpc_sync(name, use_up_all_files, (left,))
    return pid


def highest_file():
    return max(int(name) for name in os.listdir("/proc/self/fd"))


def use_up_all_files(left):
    with pytest.raises(OSError, match="Too many open files"):
        while True:
            HELD.append(os.open(os.devnull, os.O_RDONLY))
    for _ in range(left):
        os.close(HELD.pop())


def allow_more_memory(name, mebibytes):
    used = rpc.rpc_sync(name, lambda: psutil.Process().memory_info().vms)
    return allow(name, resource.RLIMIT_AS, used + (mebibytes << 20))


def echo(array):
    return array


def fill(size):
    return float(np.ones(size).sum())


def assert_exact():
    x = tg.tensor(X, requires_grad=True)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.through, (["c"], x))
        autograd.backward(context_id, [y.sum()])
        assert autograd.get_gradients(context_id)[x].tolist() == [4.0, 9.0]


@pytest.mark.parametrize("left", range(3))
def test_a_worker_that_lacks_descriptors_can_open_no_connection_and_says_so(left):
    # Who dials it has to give up for some of these.
    with LocalCluster(["b", "c"], options=Options(lost_after=3.0)):
        pid = allow_files("b", left)
        with pytest.raises(WorkerLost, match="open files"):
            rpc.rpc_sync("b", rpc.rpc_sync, ("c", functions.who))
        with pytest.raises(WorkerLost, match="worker 'b' was lost"):
            rpc.rpc_sync("c", rpc.rpc_sync, ("b", functions.who))
        assert rpc.rpc_sync("b", functions.who) == "b"
        allow(pid, resource.RLIMIT_NOFILE)
        assert_exact()
        assert rpc.rpc_sync("c", rpc.rpc_sync, ("b", functions.who)) == "b"


def test_large_arrays_reach_a_worker_without_descriptors_or_the_call_fails_typed():
    large = np.arange(500_000.0)

    def is_whole():
        try:
            return rpc.rpc_sync("b", echo, (large,)).tobytes() == large.tobytes()
        except WorkerLost as error:
            return "worker 'b' was lost" in str(error)

    with LocalCluster(["b", "c"]):
        rpc.rpc_sync("b", functions.who)
        pid = allow_files("b", 0)
        assert all(is_whole() for _ in range(3))
        allow(pid, resource.RLIMIT_NOFILE)
        assert rpc.rpc_sync("b", echo, (large,)).tobytes() == large.tobytes()
        assert_exact()


def test_a_worker_without_memory_fails_what_needs_it_and_serves_what_does_not():
    large = np.zeros(30_000_000)
    with LocalCluster(["b", "c"]):
        rpc.rpc_sync("b", functions.who)
        pid = allow_more_memory("b", 100)
        with pytest.raises(MemoryError):
            rpc.rpc_sync("b", fill, (30_000_000,))
        with pytest.raises(PeerError, match="worker 'b' was lost"):
            rpc.rpc_sync("b", echo, (large,))
        assert rpc.rpc_sync("b", functions.who) == "b"
        allow(pid, resource.RLIMIT_AS)
        assert rpc.rpc_sync("b", echo, (large,)).nbytes == large.nbytes
        assert_exact()


def test_calls_for_which_no_thread_can_be_had_are_served_all_the_same():
    with LocalCluster(["b", "c"]):
        rpc.rpc_sync("b", functions.who)
        # Less than the stack of one thread.
        pid = allow_more_memory("b", 4)
        waiting = [rpc.rpc_async("b", functions.busy, (0.05,)) for _ in range(12)]
        assert [each.wait() for each in waiting] == [None] * 12
        allow(pid, resource.RLIMIT_AS)
        assert_exact()
