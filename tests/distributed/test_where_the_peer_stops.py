"""Where PyTorch's distributed autograd hangs, refuses or is silently wrong, and ours goes on.

With real processes. The rows about security and connections are tests of ``rpc``.
"""

import os
import signal

import numpy as np
import psutil
import pytest
from tests.distributed import handlers
from tests.rpc.neighbours import eventually, neighbours

import telegrad as tg
from telegrad.autograd import forward_ad
from telegrad.distributed import LocalCluster, autograd, rpc
from telegrad.distributed.worker_autograd import attach_autograd
from telegrad.errors import WorkerLost
from telegrad.nn.parameter import Parameter
from telegrad.rpc.current import set_default_worker
from telegrad.rpc.options import Options

pytestmark = pytest.mark.processes

W = np.array([2.0, 3.0])
"""The parameter that every worker has."""
X = np.array([5.0, 7.0])


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(["b", "c"]) as cluster:
        yield cluster
        for name in cluster.names:
            assert eventually(lambda n=name: rpc.rpc_sync(n, handlers.leftovers) == handlers.CLEAN)


@pytest.fixture
def x():
    return tg.tensor(X, requires_grad=True)


def test_a_call_whose_result_is_not_used_does_not_hang_the_pass(cluster, x):
    with autograd.context() as context_id:
        used = rpc.rpc_sync("b", handlers.scale, (x,))
        rpc.rpc_sync("b", handlers.scale, (x,))
        rpc.rpc_sync("b", handlers.ignore_another, (x, "c"))
        autograd.backward(context_id, [used.sum()])
        assert autograd.get_gradients(context_id)[x].numpy().tolist() == W.tolist()
        assert rpc.rpc_sync("b", handlers.gradient, (context_id,)) == [5.0, 7.0]
        assert rpc.rpc_sync("c", handlers.gradient, (context_id,)) is None


def test_calls_nested_deeper_than_any_pool_of_threads_are_differentiated(cluster, x):
    depth = 200
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.bounce, ("c", depth, x / 3))
        autograd.backward(context_id, [tg.log(y).sum()])
        found = autograd.get_gradients(context_id)[x].numpy()
        np.testing.assert_allclose(found, 1 / X)
        theirs = rpc.rpc_sync("b", handlers.gradient, (context_id,))
        np.testing.assert_allclose(theirs, (depth // 2 + 1) / W)


def test_a_root_that_is_no_scalar_takes_a_gradient(cluster, x):
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (x,))
        autograd.backward(context_id, [y], grad_tensors=[tg.tensor(np.array([1.0, 10.0]))])
        assert autograd.get_gradients(context_id)[x].numpy().tolist() == [2.0, 30.0]


def test_create_graph_gives_gradients_that_can_be_differentiated_again(cluster, x):
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.weigh_and_sum, (x,))
        for order in (3 * W * X**2, 6 * W * X, 6 * W):
            (found,) = autograd.grad(context_id, y, x, create_graph=True)
            np.testing.assert_allclose(found.detach().numpy(), order)
            y = found.sum()


def test_the_tangent_of_a_dual_argument_is_sent_there_and_back(cluster, x):
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.detach(), tg.ones_like(x.detach()))
        assert rpc.rpc_sync("b", handlers.tangent_of, (dual,)).numpy().tolist() == [1.0, 1.0]
        answer = rpc.rpc_sync("b", handlers.square, (dual,))
        tangent = forward_ad.unpack_dual(answer).tangent
        assert tangent.numpy().tolist() == [10.0, 14.0]


def test_tangents_of_nested_dual_levels_are_sent_too(cluster, x):
    ones = tg.ones_like(x.detach())
    with forward_ad.dual_level() as outer, forward_ad.dual_level() as inner:
        dual = forward_ad.make_dual(x.detach(), ones, level=outer)
        dual = forward_ad.make_dual(dual, ones, level=inner)
        answer = rpc.rpc_sync("b", handlers.weigh_and_sum, (dual,))
        first = forward_ad.unpack_dual(answer, level=inner).tangent
        second = forward_ad.unpack_dual(first, level=outer).tangent
        np.testing.assert_allclose(second.detach().numpy(), (6 * W * X).sum())


def test_a_parameter_as_an_argument_gets_its_gradient(cluster, x):
    weight = Parameter(np.array([4.0, 6.0]))
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", tg.multiply, (x, weight))
        autograd.backward(context_id, [y.sum()])
        found = autograd.get_gradients(context_id)
        assert found[weight].numpy().tolist() == [5.0, 7.0]
        assert found[x].numpy().tolist() == [4.0, 6.0]


def test_a_tensor_captured_by_a_closure_gets_its_gradient(cluster, x):
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", lambda: x * x)
        autograd.backward(context_id, [y.sum()])
        assert autograd.get_gradients(context_id)[x].numpy().tolist() == [10.0, 14.0]


def test_a_tensor_inside_an_object_gets_its_gradient(cluster, x):
    model = handlers.Model()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.Model.forward, (model, x))
        autograd.backward(context_id, [y.sum()])
        assert autograd.get_gradients(context_id)[model.weight].numpy().tolist() == [5.0, 7.0]


def test_plain_backward_runs_over_workers(cluster, x):
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (x,))
        (y * x).sum().backward()
        assert x.grad.numpy().tolist() == [20.0, 42.0]
        assert autograd.get_gradients(context_id)[x].numpy().tolist() == [20.0, 42.0]
        assert rpc.rpc_sync("b", handlers.gradient, (context_id,)) == [25.0, 49.0]


def test_an_update_between_the_forward_and_backward_of_another_does_no_harm(cluster, x):
    rref = rpc.remote("b", handlers.Model)
    with autograd.context() as context_id:
        y = rref.rpc_sync().forward(x)
        rpc.rpc_sync("b", _descend, (rref,))
        autograd.backward(context_id, [y.sum()])
        assert autograd.get_gradients(context_id)[x].numpy().tolist() == W.tolist()
        assert rref.rpc_sync().gradient(context_id) == [5.0, 7.0]
    assert rref.rpc_sync().forward(x).detach().numpy().tolist() == [5.0, 14.0]


def _descend(rref):
    weight = rref.local_value().weight
    with tg.no_grad():
        weight -= 1.0


def test_many_workers_live_in_one_process(x):
    with neighbours("a", "b", "c") as workers:
        for worker in workers:
            attach_autograd(worker)
        before = set_default_worker(workers[0])
        try:
            with autograd.context() as context_id:
                y = workers[0].rpc_sync("b", handlers.through, (["c", "a"], x))
                autograd.backward(context_id, [y.sum()])
                found = autograd.get_gradients(context_id)[x].numpy()
                assert found.tolist() == (W**3).tolist()
                theirs = [
                    workers[0].rpc_sync(name, handlers.gradient, (context_id,)) for name in "abc"
                ]
                assert theirs == [(X * W**2).tolist()] * 3
            for worker in workers:
                assert eventually(lambda w=worker: handlers.leftovers(w) == handlers.CLEAN)
        finally:
            set_default_worker(before)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_worker_killed_or_stopped_during_the_pass_is_lost_by_name(x, number):
    with LocalCluster(["victim", "c"], options=Options(lost_after=3.0)) as cluster:
        with autograd.context() as context_id:
            y = rpc.rpc_sync("c", handlers.scale, (x,))
            z = rpc.rpc_sync("victim", handlers.with_signal_in_backward, (y, int(number)))
            with pytest.raises(WorkerLost, match="worker 'victim' was lost"):
                autograd.backward(context_id, [z.sum()])
            # All or nothing: nobody shows a part of it.
            assert autograd.get_gradients(context_id) == {}
            assert rpc.rpc_sync("c", handlers.gradient, (context_id,)) is None
        assert eventually(lambda: rpc.rpc_sync("c", handlers.leftovers) == handlers.CLEAN)
        assert handlers.leftovers() == handlers.CLEAN
        pid = cluster.process("victim").pid
    assert not psutil.pid_exists(pid)


def test_when_the_caller_dies_its_contexts_go_everywhere(x):
    with LocalCluster(["caller", "b", "c"]) as cluster:
        held = rpc.rpc_async("caller", handlers.open_and_hold, (["b", "c"], x.detach()))

        def contexts(name):
            return rpc.rpc_sync(name, handlers.leftovers)["contexts"]

        assert eventually(lambda: contexts("b") == contexts("c") == 1)
        os.kill(cluster.process("caller").pid, signal.SIGKILL)
        with pytest.raises(WorkerLost, match="'caller'"):
            held.wait(30)
        assert eventually(lambda: contexts("b") == contexts("c") == 0)
