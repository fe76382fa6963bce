"""A forked process has no worker: the connections are those of the process it came from."""

import multiprocessing
import os
import socket
import subprocess
import sys

import pytest

import telegrad as tg
from telegrad.distributed import LocalCluster, autograd, rpc
from telegrad.errors import NotInitialized
from telegrad.rpc.security.keys import ClusterKey

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_is_refused_and_its_origin_goes_on():
    with LocalCluster(["b"]):
        assert rpc.rpc_sync("b", abs, (-1,)) == 1
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                rpc.rpc_sync("b", abs, (-2,))
                said = "it was called"
            except NotInitialized as error:
                said = str(error)
            os.write(writing, said.encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            assert "this process was forked from one with a worker" in pipe.read()
        assert rpc.rpc_sync("b", abs, (-3,)) == 3


ENDING = """
import os
import sys

from telegrad.distributed import rpc
from telegrad.errors import NotInitialized

worker = rpc.init_rpc("alone", rank=0, world_size=1)
child = os.fork()
if child == 0:
    try:
        rpc.shutdown()
    except NotInitialized as error:
        print(error)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert os.path.exists(worker.address.removeprefix("unix://")), "its socket is gone"
rpc.shutdown()
"""


def test_a_fork_that_ends_leaves_its_origin_where_others_find_it(tmp_path):
    ClusterKey.fresh().save(tmp_path / "key")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place = {"MASTER_PORT": str(port), "TELEGRAD_KEY_FILE": str(tmp_path / "key")}
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ENDING],
        env={**os.environ, **place},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    assert "this process was forked from one with a worker" in ended.stdout


def fork_and_come_back():
    """Return in both processes, as nobody should."""
    return os.fork()


def fork_and_fail():
    if os.fork() == 0:
        raise LookupError("in the new process")


def fork_in_a_hook(x):
    y = x * 2.0
    y.register_hook(lambda g: os.fork() and None)
    return y


def how_children_ended(count):
    return [os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(count)]


def call_from_a_fork(other):
    """Return what a call from a process that this handler forked ends with."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            rpc.rpc_sync(other, abs, (-1,))
            said = "it was called"
        except NotInitialized as error:
            said = str(error)
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.wait()
    return said


def sum_in_a_forked_process(numbers):
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(sum, (numbers,))


@pytest.mark.parametrize("handler", [fork_and_come_back, fork_and_fail])
def test_a_process_that_a_handler_forked_never_answers_in_the_workers_place(handler, capfd):
    with LocalCluster(["b"]):
        worker = rpc.rpc_sync("b", os.getpid)
        for _ in range(3):
            assert rpc.rpc_sync("b", handler) != 0
        assert {rpc.rpc_sync("b", os.getpid) for _ in range(20)} == {worker}
        assert rpc.rpc_sync("b", how_children_ended, (3,)) == [1, 1, 1]
    said = capfd.readouterr().err
    assert said.count("a handler forked a process and came back in it; it is no worker") == 3
    assert "Leave it by os._exit, or start it by multiprocessing" in said


def test_a_process_that_a_hook_forked_has_no_part_in_the_pass():
    with LocalCluster(["b"]):
        worker = rpc.rpc_sync("b", os.getpid)
        x = tg.tensor([1.0, 2.0], requires_grad=True)
        with autograd.context() as context_id:
            y = rpc.rpc_sync("b", fork_in_a_hook, (x,))
            autograd.backward(context_id, [y.sum()])
            assert autograd.get_gradients(context_id)[x].tolist() == [2.0, 2.0]
        assert {rpc.rpc_sync("b", os.getpid) for _ in range(20)} == {worker}
        assert rpc.rpc_sync("b", how_children_ended, (1,)) == [1]


def test_a_process_that_a_handler_forked_makes_no_calls_and_its_origin_goes_on():
    with LocalCluster(["b", "c"]):
        said = rpc.rpc_sync("b", call_from_a_fork, ("c",))
        assert "this process was forked from one with a worker" in said
        assert rpc.rpc_sync("b", rpc.rpc_sync, ("c", abs, (-3,))) == 3


def test_a_handler_may_give_work_to_forked_processes():
    with LocalCluster(["b"]):
        assert rpc.rpc_sync("b", sum_in_a_forked_process, ([1, 2, 3],)) == 6
        assert rpc.rpc_sync("b", abs, (-3,)) == 3
