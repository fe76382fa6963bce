"""A home that was frozen for so long that the others dropped its context says so."""

import os
import signal

import numpy as np
import pytest
from tests.distributed import handlers
from tests.rpc.neighbours import eventually

import telegrad as tg
from telegrad.distributed import LocalCluster, autograd, rpc
from telegrad.errors import PeerError, WorkerLost
from telegrad.rpc.options import Options

pytestmark = pytest.mark.processes

OPEN = {}


def train(names):
    """Run a pass over these workers in a context of this one that stays open."""
    context = autograd.context()
    context_id = context.__enter__()
    x = tg.tensor(np.array([5.0, 7.0]), requires_grad=True)
    autograd.backward(context_id, [handlers.through(names, x).sum()])
    OPEN["x"], OPEN["id"], OPEN["context"] = x, context_id, context
    return autograd.get_gradients(context_id)[x].tolist()


def look():
    return autograd.get_gradients(OPEN["id"])[OPEN["x"]].tolist()


def leave():
    autograd._release_context(OPEN["id"])


def settled(function, *args):
    """Call a worker until it is met again: it may have lost this one, and this one it."""
    outcome = []

    def is_there():
        try:
            outcome.append(function(*args))
        except WorkerLost as error:
            if "context" in str(error):
                outcome.append(error)
        except PeerError:
            pass
        return bool(outcome)

    assert eventually(is_there, 30)
    return outcome[0]


def test_a_home_that_was_frozen_for_long_raises_and_names_who_gave_it_up():
    with LocalCluster(["home", "b", "c"], options=Options(lost_after=5.0)) as cluster:
        assert rpc.rpc_sync("home", train, (["b", "c"],)) == [8.0, 27.0]
        assert rpc.rpc_sync("home", look) == [8.0, 27.0]
        home = cluster.process("home").pid
        os.kill(home, signal.SIGSTOP)
        try:
            assert eventually(lambda: rpc.rpc_sync("b", handlers.leftovers)["contexts"] == 0, 30)
        finally:
            os.kill(home, signal.SIGCONT)
        error = settled(rpc.rpc_sync, "home", look)
        assert isinstance(error, WorkerLost), error
        assert "is gone on worker 'b'" in str(error)
        assert "worker 'b' lost its home" in str(error)
        assert "run the step again, in a new context" in str(error)
        rpc.rpc_sync("home", leave)
        assert rpc.rpc_sync("home", train, (["b", "c"],)) == [8.0, 27.0]


def test_a_home_that_was_frozen_for_a_moment_has_its_gradients():
    with LocalCluster(["home", "b"], options=Options(lost_after=10.0)) as cluster:
        assert rpc.rpc_sync("home", train, (["b"],)) == [4.0, 9.0]
        home = cluster.process("home").pid
        os.kill(home, signal.SIGSTOP)
        os.kill(home, signal.SIGCONT)
        assert rpc.rpc_sync("home", look) == [4.0, 9.0]


def test_the_death_of_another_takes_its_own_gradients_alone():
    with LocalCluster(["home", "b"]) as cluster:
        assert rpc.rpc_sync("home", train, (["b"],)) == [4.0, 9.0]
        cluster.process("b").kill()
        cluster.process("b").wait(10)
        for _ in range(3):
            assert rpc.rpc_sync("home", look) == [4.0, 9.0]
