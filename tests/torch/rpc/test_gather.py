"""Meetings by calls alone, and the end of a cluster: nobody waits for who won't come."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest
from tests.rpc.neighbours import eventually

import telegrad.torch.rpc as rpc
from telegrad.errors import WorkerLost
from telegrad.torch.rpc import gather
from telegrad.torch.rpc.calls import current

BOTH = ["a", "b"]
_WORKER = """
import sys
import telegrad.torch.rpc as rpc

options = rpc.TensorPipeRpcBackendOptions(init_method=sys.argv[1])
rpc.init_rpc(sys.argv[2], rank=1, world_size=2, rpc_backend_options=options)
sys.stdin.read()
rpc.shutdown()
"""


@contextmanager
def other_worker(tmp_path, *, me="a", other="b"):
    """A cluster of this process and another, which leaves when its input ends."""
    method = f"file://{tmp_path}/meeting"
    command = [sys.executable, "-c", _WORKER, method, other]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            options = rpc.TensorPipeRpcBackendOptions(init_method=method)
            rpc.init_rpc(me, rank=0, world_size=2, rpc_backend_options=options)
            yield process
        finally:
            process.stdin.close()
            try:
                if rpc._is_current_rpc_agent_set():
                    rpc.shutdown(timeout=20)
            finally:
                process.kill()


@pytest.mark.parametrize("me", BOTH)
def test_the_end_does_not_wait_for_a_worker_that_was_killed(tmp_path, me):
    other = "b" if me == "a" else "a"
    with other_worker(tmp_path, me=me, other=other) as process:
        worker, pid = current(), rpc.rpc_sync(other, os.getpid)

        def kill_when_waited_for():
            assert eventually(lambda: any(path.calls.open for path in worker.peers.endpoints()))
            os.kill(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill_when_waited_for)
        killer.start()
        with pytest.raises(WorkerLost, match=f"worker '{other}' was lost"):
            # Without an end: what waits for the lost one does so for ever.
            rpc.shutdown(timeout=0)
        killer.join(20)
        assert process.wait(20) == -signal.SIGKILL


def test_one_that_comes_after_others_gave_up_is_told(tmp_path):
    with other_worker(tmp_path):
        with pytest.raises(RuntimeError, match="RPC ran for more than set timeout"):
            rpc.api._all_gather(1, BOTH, timeout=0.1)
        with pytest.raises(RuntimeError, match="worker 'a' gave up"):
            rpc.rpc_sync("b", rpc.api._all_gather, (2, BOTH), timeout=20)
        with pytest.raises(RuntimeError, match="RPC ran for more than set timeout"):
            rpc.rpc_sync("b", rpc.api._all_gather, (2, BOTH, 0.1))
        # Who comes before it hears that b has gone meets b all the same.
        known = gather._meetings(current())._open
        assert eventually(lambda: any(each.outcome.done() for each in list(known.values())))
        with pytest.raises(RuntimeError, match="worker 'b' gave up"):
            rpc.api._all_gather(1, BOTH, timeout=20)
        there = rpc.rpc_async("b", rpc.api._all_gather, (2, BOTH))
        assert rpc.api._all_gather(1, BOTH, timeout=20) == there.wait() == {"a": 1, "b": 2}


def test_a_process_meets_new_processes_in_its_next_cluster(tmp_path):
    for _ in range(2):
        with other_worker(tmp_path) as process:
            pass
        assert not rpc._is_current_rpc_agent_set()
        assert process.returncode is not None


def test_who_is_not_meant_can_not_meet(alone):
    with pytest.raises(RuntimeError, match="could not find destination"):
        rpc.api._barrier(["alone", "nobody"])
    assert rpc.api._all_gather(3, ["alone"]) == {"alone": 3}
