"""Distributed autograd between real processes: signals, load, and that nothing is left."""

import os
import signal

import numpy as np
import psutil
import pytest
from tests.distributed import functions, handlers
from tests.distributed.soak import SOAK, amount
from tests.rpc.neighbours import eventually, stop

import telegrad as tg
from telegrad.distributed import LocalCluster, autograd, rpc
from telegrad.errors import WorkerLost
from telegrad.rpc.options import Options

pytestmark = pytest.mark.processes

W = np.array([2.0, 3.0])
X = np.array([5.0, 7.0])
NO_REFERENCES = {"owned": 0, "held": 0, "given": 0}


def x():
    return tg.tensor(X, requires_grad=True)


def is_clean(*names):
    """Whether autograd and references of these workers hold nothing any more."""
    return eventually(
        lambda: all(
            rpc.rpc_sync(name, handlers.leftovers) == handlers.CLEAN
            and rpc.rpc_sync(name, functions.counts) == NO_REFERENCES
            for name in names
        )
    )


def resident(name):
    """The resident memory of a worker's process, in bytes."""
    return rpc.rpc_sync(name, lambda: psutil.Process().memory_info().rss)


def kill(process):
    os.kill(process, signal.SIGKILL)


@pytest.mark.parametrize("end", [kill, stop], ids=["killed", "stopped"])
def test_a_worker_lost_before_the_pass_fails_it_by_name_and_another_can_go_on(end):
    with LocalCluster(["victim", "b", "c"], options=Options(lost_after=3.0)) as cluster:
        one = x()
        with autograd.context() as context_id:
            y = rpc.rpc_sync("victim", handlers.scale, (one,))
            z = rpc.rpc_sync("b", handlers.through, (["c"], y))
            end(cluster.process("victim").pid)
            with pytest.raises(WorkerLost, match="victim"):
                autograd.backward(context_id, [z.sum()])
            assert autograd.get_gradients(context_id) == {}
            assert rpc.rpc_sync("c", handlers.gradient, (context_id,)) is None
            # What does not lead over the lost worker still can be differentiated.
            again = rpc.rpc_sync("b", handlers.through, (["c"], one))
            autograd.backward(context_id, [again.sum()])
            assert autograd.get_gradients(context_id)[one].numpy().tolist() == (W * W).tolist()
        assert is_clean("main", "b", "c")
        # The end of the cluster gives what is stopped some seconds.
        cluster.process("victim").kill()


@pytest.mark.parametrize("names", ["bc", "cb"])
def test_a_failure_is_raised_while_another_worker_is_busy_whose_local_pass_is_aborted(names):
    there = {"b": handlers.with_failing_rule, "c": handlers.with_hook_that_waits}
    with LocalCluster(["b", "c"]) as cluster:
        one = x()
        with autograd.context() as context_id:
            y, z = (rpc.rpc_sync(name, there[name], (one,)) for name in names)
            loss = (y * z).sum()
            with pytest.raises(ZeroDivisionError) as caught:
                autograd.backward(context_id, [loss], retain_graph=True)
            notes = "\n".join(caught.value.__notes__)
            assert "raised on worker 'b'" in notes
            assert "ThriceBackward" in notes
            # Only now may the other go on, and nothing of it is seen.
            assert rpc.rpc_sync("c", handlers.open_gate)
            assert rpc.rpc_sync("c", handlers.gradient, (context_id,)) is None
            autograd.backward(context_id, [loss])
            assert rpc.rpc_sync("c", handlers.gradient, (context_id,)) == (3 * X * X * W).tolist()
        assert is_clean(*cluster.names)


@pytest.mark.parametrize("end", [kill, stop], ids=["killed", "stopped"])
def test_a_worker_lost_after_its_local_pass_takes_only_its_own_gradients(end):
    with LocalCluster(["victim", "c"], options=Options(lost_after=3.0)) as cluster:
        one = x()
        with autograd.context() as context_id:
            y = rpc.rpc_sync("victim", handlers.through, (["c"], one))
            autograd.backward(context_id, [y.sum()])
            end(cluster.process("victim").pid)
            with pytest.raises(WorkerLost, match="victim"):
                rpc.rpc_sync("victim", functions.who)
            assert autograd.get_gradients(context_id)[one].numpy().tolist() == (W * W).tolist()
            assert rpc.rpc_sync("c", handlers.gradient, (context_id,)) == (X * W).tolist()
        assert is_clean("main", "c")
        cluster.process("victim").kill()


def test_passes_good_and_bad_leave_no_thread_descriptor_or_reference_behind():
    with LocalCluster(["b", "c"]) as cluster:

        def work():
            with autograd.context() as context_id:
                one = x()
                model = rpc.remote("b", handlers.Model)
                y = model.rpc_sync().forward(rpc.rpc_sync("c", handlers.through, (["b"], one)))
                autograd.backward(context_id, [y.sum()])
                fail_once(context_id, one)
                large = tg.tensor(np.ones(100_000), requires_grad=True)
                y = rpc.rpc_sync("c", handlers.square, (large,))
                autograd.backward(context_id, [y.sum()])
                assert autograd.get_gradients(context_id)[large].numpy()[0] == 2.0

        # On its own: an exception that was caught holds the variables of the frame that caught it.
        def fail_once(context_id, one):
            bad = rpc.rpc_sync("b", handlers.with_failing_hook, (one,))
            with pytest.raises(handlers.Unlucky):
                autograd.backward(context_id, [bad.sum()])

        def resources():
            return [rpc.rpc_sync(name, functions.resources) for name in cluster.names]

        # Who must notify whom of an abort depends on who hears of it first: links that it would
        # open at any time are opened now.
        for name in cluster.names:
            rpc.rpc_sync(name, functions.meet, (cluster.names,))
        for _ in range(5):
            work()
        before = resources()
        for _ in range(amount(20, 2000)):
            work()
        assert is_clean(*cluster.names)

        def is_back():
            return all(
                threads_now <= threads and fds_now <= fds and not in_use
                for (threads, fds, _), (threads_now, fds_now, in_use) in zip(before, resources())
            )

        assert eventually(is_back, 20), (before, resources())


def test_thirty_two_trainers_over_four_processes_get_exact_gradients_and_memory_stays_flat():
    trainers = ["t0", "t1", "t2", "t3"]
    with LocalCluster(["server", *trainers]) as cluster:

        def train_all(steps):
            calls = [
                rpc.rpc_async(trainers[i % 4], handlers.train, ("server", steps, i), timeout=3600)
                for i in range(32)
            ]
            return sum(call.wait() for call in calls)

        assert train_all(amount(5, 100)) == 0
        before = [resident(name) for name in cluster.names]
        assert train_all(amount(20, 1000)) == 0
        growth = [resident(name) - start for name, start in zip(cluster.names, before)]
        assert is_clean(*cluster.names)
        if SOAK:
            print("growth in KiB:", [g // 1024 for g in growth])
        assert max(growth) < 8 << 20
