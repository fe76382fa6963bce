"""The mistakes that newcomers make: each is told what to do, or does no harm."""

import contextvars
import operator
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from tests.distributed import handlers

import telegrad as tg
from telegrad.distributed import LocalCluster, rpc
from telegrad.distributed import autograd as dist_autograd
from telegrad.errors import (
    CallTimeout,
    ContextError,
    GradientError,
    GraphFreedError,
    NotInitialized,
    UnknownWorker,
    Unserializable,
    UsageError,
)
from telegrad.rpc.api import join
from telegrad.rpc.membership.rendezvous import Meeting
from telegrad.rpc.security.keys import ClusterKey

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(["ps"]) as cluster:
        yield cluster


@pytest.fixture
def x(cluster):
    return tg.tensor([1.0, 2.0, 3.0], requires_grad=True)


def test_calls_before_init_rpc():
    with pytest.raises(NotInitialized, match=r"call init_rpc first, or use `with .*LocalCluster\("):
        rpc.rpc_sync("ps", operator.add, (1, 2))
    with pytest.raises(NotInitialized, match="call init_rpc first"):
        dist_autograd.context().__enter__()


def test_init_rpc_in_a_script_that_nobody_started_as_a_worker_is_one_of_its_own():
    names = ("RANK", "WORLD_SIZE", "MASTER_PORT", "TELEGRAD_WORKER_NAME")
    bare = {name: value for name, value in os.environ.items() if name not in names}
    for arguments in ("'me'", "'me', rank=0", "'me', rank=0, world_size=1"):
        script = (
            f"from telegrad.distributed import rpc; rpc.init_rpc({arguments}); "
            "print(rpc.rpc_sync('me', abs, (-2,))); rpc.shutdown()"
        )
        done = subprocess.run([sys.executable, "-c", script], env=bare, capture_output=True)
        assert (done.stdout.decode(), done.stderr.decode()) == ("2\n", "")


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("backend", "there is one, leave it out"),
        ("rpc_backend_options", r"use options=rpc.Options\(...\)"),
    ],
)
def test_an_option_of_pytorchs_init_rpc(option, advice):
    with pytest.raises(TypeError, match=rf"init_rpc\(\) has no option '{option}': {advice}"):
        rpc.init_rpc("me", rank=0, world_size=1, **{option: None})


@pytest.mark.parametrize("name", ["TensorPipeRpcBackendOptions", "BackendType", "functions"])
def test_a_name_of_pytorchs_rpc_that_is_not_there(name):
    assert not hasattr(rpc, name)
    with pytest.raises(AttributeError, match=f"'telegrad.distributed.rpc' .*'{name}': ..."):
        getattr(rpc, name)


def test_a_worker_that_was_not_started():
    meeting = Meeting("tcp://127.0.0.1:0", ClusterKey.fresh())
    with pytest.raises(CallTimeout, match=r"1 of 2 workers came .* Are the others running"):
        join("ps", rank=0, world_size=2, options=rpc.Options(join_timeout=0.2), meeting=meeting)


def test_a_lambda_as_the_function_simply_works(cluster):
    assert rpc.rpc_sync("ps", lambda a: a + 1, (1,)) == 2


@pytest.mark.parametrize("result", [5, np.ones(3), tg.ones(3)], ids=["int", "array", "tensor"])
def test_the_result_of_a_function_in_the_place_of_the_function(cluster, result):
    with pytest.raises(UsageError, match=r"expected a function to run .* args=\(x,\), not func\(x"):
        rpc.rpc_sync("ps", result, (1,))


def test_arguments_without_a_tuple(x):
    with pytest.raises(UsageError, match=r"written with a comma: \(x,\)"):
        rpc.rpc_sync("ps", operator.neg, x)


def test_a_worker_that_is_not_there(cluster):
    with pytest.raises(UnknownWorker, match="there is no worker 'sp'; the workers are"):
        rpc.rpc_sync("sp", operator.neg, (1,))


def test_a_future_as_an_argument(cluster):
    future = rpc.rpc_async("ps", operator.neg, (1,))
    with pytest.raises(
        Unserializable, match=r"args\[0\] can't be sent: .*send what wait\(\) returns"
    ):
        rpc.rpc_sync("ps", operator.neg, (future,))
    assert future.wait() == -1


def test_the_result_of_a_future_as_the_standard_library_spells_it(cluster):
    assert rpc.rpc_async("ps", operator.neg, (1,)).result() == -1


def test_a_call_outside_of_the_context(x):
    y = rpc.rpc_sync("ps", operator.mul, (x, 2.0))
    inside = r"make the call inside of `with .*context\(\)`"
    with dist_autograd.context() as context_id, pytest.raises(ContextError, match=inside):
        dist_autograd.backward(context_id, [y.sum()])
    with pytest.raises(ContextError, match=r"or detach\(\) the tensor"):
        y.sum().backward()


def test_a_reference_made_outside_of_the_context(x):
    y = rpc.remote("ps", operator.mul, (x, 2.0))
    with dist_autograd.context() as context_id:
        dist_autograd.backward(context_id, [y.to_here().sum()])
        found = dist_autograd.get_gradients(context_id)
        with pytest.raises(KeyError, match=r"recorded if it is made inside of `with context\(\)`"):
            found[x]
        assert found.get(x) is None


def test_a_call_on_a_thread_that_did_not_enter_the_context(x):
    made = []
    with dist_autograd.context() as context_id:
        # In contextvars of its own on every Python: some hand those of the current thread on.
        call = threading.Thread(
            target=contextvars.Context().run,
            args=(lambda: made.append(rpc.rpc_sync("ps", operator.mul, (x, 2.0))),),
        )
        call.start()
        call.join()
        with pytest.raises(ContextError, match="on the thread that entered it"):
            dist_autograd.backward(context_id, [made[0].sum()])


def test_the_id_of_a_context_that_has_ended(x):
    with dist_autograd.context() as context_id:
        y = rpc.rpc_sync("ps", operator.mul, (x, x)).sum()
    with pytest.raises(ContextError, match=r"inside of `with context\(\) as context_id`"):
        dist_autograd.backward(context_id, [y])


def test_a_pass_over_constants_is_told_what_to_make_require_grad(cluster):
    constant = tg.ones(3)
    with dist_autograd.context() as context_id:
        y = rpc.rpc_sync("ps", operator.mul, (constant, 2.0))
        with pytest.raises(GradientError, match="expected a tensor that requires grad"):
            dist_autograd.backward(context_id, [y.sum()])
        with pytest.raises(KeyError, match="make it with requires_grad=True, before the calls"):
            dist_autograd.get_gradients(context_id)[constant]


def test_the_gradient_of_a_tensor_that_was_computed(x):
    with dist_autograd.context() as context_id:
        y = x * 2.0
        dist_autograd.backward(context_id, [rpc.rpc_sync("ps", operator.mul, (y, y)).sum()])
        with pytest.raises(KeyError, match=r"only leaves have one here; .* grad\(context_id"):
            dist_autograd.get_gradients(context_id)[y]
        with pytest.raises(KeyError, match="expected a tensor as the key of a gradient, got str"):
            dist_autograd.get_gradients(context_id)["x"]
        with pytest.raises(KeyError, match=r"got RRef; .* is had on its owner, or by grad"):
            dist_autograd.get_gradients(context_id)[rpc.RRef(x)]


def gradients_here(context_id):
    return dist_autograd.get_gradients(context_id)


def test_gradients_are_sent_as_a_plain_dict(cluster):
    x = tg.tensor([4.0, 5.0])
    with dist_autograd.context() as context_id:
        y = rpc.rpc_sync("ps", handlers.scale, (x,))
        dist_autograd.backward(context_id, [y.sum()])
        found = rpc.rpc_sync("ps", gradients_here, (context_id,))
    assert type(found) is dict
    assert [gradient.tolist() for gradient in found.values()] == [[4.0, 5.0]]


def test_reading_the_gradient_from_the_tensor(x):
    with dist_autograd.context() as context_id:
        dist_autograd.backward(context_id, [rpc.rpc_sync("ps", operator.mul, (x, x)).sum()])
        assert x.grad is None
        assert dist_autograd.get_gradients(context_id)[x].tolist() == [2.0, 4.0, 6.0]


def test_a_second_backward_is_told_of_retain_graph(x):
    with dist_autograd.context() as context_id:
        y = rpc.rpc_sync("ps", operator.mul, (x, x)).sum()
        dist_autograd.backward(context_id, [y])
        with pytest.raises(GraphFreedError, match="retain_graph=True to that earlier call"):
            dist_autograd.backward(context_id, [y])


def test_an_array_that_is_changed_after_it_was_sent(cluster):
    sent = np.ones(3)
    future = rpc.rpc_async("ps", np.negative, (sent,))
    sent[:] = 7.0
    assert future.wait().tolist() == [-1.0, -1.0, -1.0]


def refuse_shard(number):
    raise ValueError(f"no shard {number}")


def test_an_exception_in_the_function(cluster):
    with pytest.raises(ValueError, match="no shard 3") as caught:
        rpc.rpc_sync("ps", refuse_shard, (3,))
    (note,) = caught.value.__notes__
    assert note.startswith("raised on worker 'ps'; the traceback there:")
    assert "in refuse_shard" in note
