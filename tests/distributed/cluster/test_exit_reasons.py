"""Why a worker died: said by the call that it took down, and by all after it."""

import asyncio
import ctypes
import os
import select
import signal
import socket
import subprocess
import sys

import pytest
from tests.interpreter import IS_LOCKED
from tests.rpc.neighbours import eventually, neighbours

from telegrad.distributed import LocalCluster, rpc
from telegrad.distributed.cluster.exit_reason import exit_reason, wait_for_reason
from telegrad.errors import WorkerLost
from telegrad.rpc.security.keys import ClusterKey


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (3, "its process ended with exit status 3"),
        (0, "its process ended with exit status 0"),
        (-signal.SIGKILL, "its process was killed by SIGKILL, as the system does where memory "),
        (-signal.SIGTERM, "its process was ended by SIGTERM (Terminated)"),
        (-99, "its process was ended by signal 99"),
    ],
)
def test_an_exit_status_in_words(status, said):
    assert exit_reason(status).startswith(said)


def crash():
    ctypes.string_at(0)


async def wait_for_ever():
    await asyncio.Event().wait()


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


WHERE = r"where it was:\nFatal Python.* in crash"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("function", "args", "said"),
    [
        (os._exit, (3,), "worker 'ps' was lost: its process ended with exit status 3"),
        (kill, (), "worker 'ps' was lost: its process was killed by SIGKILL"),
        # Without its lock, Python says nothing of a thread that crashed.
        (crash, (), rf"(?s)was ended by SIGSEGV .*{WHERE if IS_LOCKED else ''}"),
    ],
)
def test_the_call_that_took_a_worker_down_and_all_after_it_say_how_it_ended(function, args, said):
    with LocalCluster(["ps"]):
        for _ in range(3):
            with pytest.raises(WorkerLost, match=said):
                rpc.rpc_sync("ps", function, args)


def test_a_process_that_takes_long_to_end_is_waited_for_once_its_stack_came():
    ours, theirs = socket.socketpair()
    fd = theirs.fileno()
    # Longer than is waited for one that says nothing, as one is that has to give a device back.
    slow = f"import os, time; os.write({fd}, b'Fatal: here'); time.sleep(0.8); os._exit(3)"
    with ours, subprocess.Popen([sys.executable, "-c", slow], pass_fds=[fd]) as process:
        theirs.close()
        assert select.select([ours], [], [], 30)[0]
        said = wait_for_reason(process, ours)
    assert said == "its process ended with exit status 3; where it was:\nFatal: here"


def take_down(name):
    """Kill a sibling; return what this call, and one after it, say of that."""
    said = []
    for function in (kill, os.getpid):
        try:
            rpc.rpc_sync(name, function)
        except WorkerLost as error:
            said.append(str(error))
    return said


@pytest.mark.processes
@pytest.mark.parametrize("restart", [False, True])
def test_siblings_say_how_a_worker_ended_as_the_one_that_started_it_does(restart):
    with LocalCluster(["ps", "trainer", "other"], restart=restart) as cluster:
        # One that only has a connection hears of it, too.
        assert rpc.rpc_sync("other", rpc.rpc_sync, ("ps", abs, (-1,))) == 1
        held = rpc.rpc_async("other", _wait_for, ("ps",))
        before = rpc.get_worker_info("ps").incarnation
        said = rpc.rpc_sync("trainer", take_down, ("ps",))
        expected = "worker 'ps' was lost: its process was killed by SIGKILL"
        assert said[0].startswith(expected)
        assert restart or said[1].startswith(expected)
        assert held.wait().startswith(expected)
        if restart:
            cluster.wait_for("ps", after=before)
            assert rpc.rpc_sync("trainer", take_down, ("ps",))[0].startswith(expected)


def _wait_for(name):
    try:
        rpc.rpc_sync(name, wait_for_ever)
    except WorkerLost as error:
        return str(error)


def test_calls_after_a_peer_has_left_say_so_instead_of_naming_a_socket():
    with neighbours("a", "b") as (a, b):
        call = a.rpc_async("b", wait_for_ever)
        assert a.rpc_sync("b", abs, (-1,)) == 1
        call.add_done_callback(lambda _: None)  # so that it is read at once
        b.close()
        for ask in (call.wait, lambda: a.rpc_sync("b", abs, (-1,))):
            with pytest.raises(WorkerLost, match=r"^worker 'b' was lost: it has shut down$"):
                ask()


SCRIPT = """
import os
import threading
from telegrad.distributed import rpc
rank = int(os.environ["RANK"])
rpc.init_rpc(["server", "t0", "t1"][rank])

# These functions go by value, so what they share in a process is in a module.
threading.held = threading.Event()

def hold():
    threading.held.set()
    threading.Event().wait()

def wait_until_held():
    assert threading.held.wait(30)

if rank == 0:
    rpc.rpc_sync("t0", hold)
elif rank == 1:
    wait_until_held()
    rpc.rpc_sync("server", wait_until_held)
    raise ValueError("the trainer's bug")
else:
    rpc.rpc_sync("server", hold)
"""


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def test_a_worker_that_ends_while_it_is_dialled_has_said_with_what():
    with neighbours("a", "b") as (a, b):
        assert b.rpc_sync("a", abs, (-1,)) == 1
        b.losses.say("its program ended with ValueError: a bug")
        session = a.peers.get("b")
        assert eventually(lambda: session.last_words)
        session.address = session.address.replace("b.sock", "gone.sock")
        with pytest.raises(WorkerLost, match=r"'b' was lost: its program ended with ValueError: a"):
            a.rpc_sync("b", abs, (-1,), timeout=20.0)


@pytest.mark.processes
def test_a_crashed_trainer_is_named_by_all_who_fail_for_it(tmp_path):
    script, key = tmp_path / "train.py", tmp_path / "key"
    script.write_text(SCRIPT)
    ClusterKey.fresh().save(key)
    common = {**os.environ, "MASTER_PORT": str(_free_port()), "TELEGRAD_KEY_FILE": str(key)}
    started = [
        subprocess.Popen(
            [sys.executable, str(script)],
            env={**common, "RANK": str(rank), "WORLD_SIZE": "3"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    said = [process.communicate(timeout=60)[1] for process in started]
    trainer = "worker 't0' was lost: its program ended with ValueError: the trainer's bug"
    assert trainer in said[0]
    assert f"worker 'server' was lost: its program ended with WorkerLost: {trainer}" in said[2]
