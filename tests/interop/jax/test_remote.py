"""Functions of JAX on other workers: the same gradients as in one process, at every order."""

import jax
import numpy as np
import pytest
import torch
from jax import numpy as jnp
from tests.interop.jax import simulators
from tests.rpc.neighbours import eventually

import telegrad as tg
from telegrad.autograd import forward_ad
from telegrad.autograd import functional as F
from telegrad.distributed import LocalCluster, autograd, rpc
from telegrad.errors import DTypeError
from telegrad.jax import from_jax, to_jax

pytestmark = pytest.mark.processes

X, W = np.random.default_rng(1).normal(size=(2, 3, 3))


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(["sim", "other"]) as cluster:
        for name in ("sim", "other"):
            rpc.rpc_sync(name, simulators.runs)
        yield cluster


def leaf(array):
    return tg.tensor(array, requires_grad=True)


def on(worker, function):
    return lambda *args: rpc.rpc_sync(worker, function, args)


def test_gradients_are_those_of_one_process_bit_for_bit(cluster):
    here = leaf(X), leaf(W)
    simulators.mix(simulators.mix(*here), here[1]).sum().backward()
    there = leaf(X), leaf(W)
    with autograd.context() as context_id:
        y = on("other", simulators.mix)(on("sim", simulators.mix)(*there), there[1])
        autograd.backward(context_id, [y.sum()])
        found = autograd.get_gradients(context_id)
        for mine, theirs in zip(here, there):
            assert np.array_equal(mine.grad.numpy(), found[theirs].numpy())


def dispatches_at_once():
    return not jax.config.read("jax_cpu_enable_async_dispatch")


def test_a_worker_that_serves_functions_of_jax_runs_them_on_the_thread_that_waits(cluster):
    before = dispatches_at_once()
    assert rpc.rpc_sync("sim", simulators.mix, (tg.tensor(X), tg.tensor(W))).shape == X.shape
    assert rpc.rpc_sync("sim", dispatches_at_once)
    simulators.mix(tg.tensor(X), tg.tensor(W))
    assert dispatches_at_once() == before, "here it is the user's to choose"


def test_residuals_stay_there_and_go_with_the_pass(cluster):
    x = leaf(np.ones(100_000))
    before, empty = rpc.rpc_sync("sim", simulators.runs), rpc.rpc_sync("sim", simulators.live_bytes)
    with autograd.context() as context_id:
        y = on("sim", simulators.wide)(x)
        z = on("sim", simulators.counted)(x)
        assert rpc.rpc_sync("sim", simulators.live_bytes) - empty >= 3 * x.nbytes
        autograd.backward(context_id, [y.sum() + z])
        assert rpc.rpc_sync("sim", simulators.live_bytes) <= empty + 2 * x.nbytes
        assert rpc.rpc_sync("sim", simulators.runs) - before == 1
    assert eventually(lambda: rpc.rpc_sync("sim", simulators.live_bytes) == empty)


def test_second_order_over_two_workers_is_that_of_one_process(cluster):
    def second(call_first, call_second, x, w, grad):
        y = call_second(call_first(x, w), w).sum()
        (g,) = grad(y, x)
        return (g * g).sum()

    here = leaf(X), leaf(W)
    local = second(
        simulators.mix,
        simulators.mix,
        *here,
        lambda y, x: tg.autograd.grad(y, x, create_graph=True),
    )
    local.backward()
    there = leaf(X), leaf(W)
    with autograd.context() as context_id:
        loss = second(
            on("sim", simulators.mix),
            on("other", simulators.mix),
            *there,
            lambda y, x: autograd.grad(context_id, y, x, create_graph=True),
        )
        autograd.backward(context_id, [loss])
        found = autograd.get_gradients(context_id)
        for mine, theirs in zip(here, there):
            assert np.allclose(mine.grad.numpy(), found[theirs].numpy(), rtol=1e-12)


def test_transforms_and_forward_mode_reach_over_workers(cluster):
    remote = on("sim", simulators.counted)
    x = tg.tensor(np.array([0.2, 0.9]))
    f = simulators.counted.__wrapped__
    with autograd.context():
        hessian = F.hessian(remote)(x)
    assert np.allclose(hessian.detach().numpy(), jax.hessian(f)(x.numpy()))
    with forward_ad.dual_level():
        y = remote(forward_ad.make_dual(x, tg.ones(2, dtype=tg.float64)))
        tangent = forward_ad.unpack_dual(y).tangent
    assert np.allclose(tangent.item(), jax.jvp(f, (x.numpy(),), (np.ones(2),))[1])


def test_trees_travel_and_torch_tensors_are_at_either_end(cluster):
    state, parameters = simulators.start()
    own = jax.tree.map(leaf, parameters)
    theirs = jax.tree.map(lambda a: torch.tensor(a, requires_grad=True), parameters)
    found = []
    for tree, make in ((own, tg.tensor), (theirs, torch.tensor)):
        with autograd.context() as context_id:
            path, last = on("sim", simulators.pendulum)(jax.tree.map(make, state), tree)
            assert type(path) is type(make([1.0]))
            loss = (path * path).sum() + last["speed"].sum()
            autograd.backward(context_id, [loss])
            gradients = autograd.get_gradients(context_id)
            found.append([gradients[each].numpy() for each in tree.values()])
    assert np.allclose(found[0], found[1], rtol=1e-13)


def test_functions_of_the_script_and_closures_compile_once_there(cluster):
    factor = 3.0

    @from_jax
    def scaled(x):
        simulators.RUNS.append(1)
        return x * factor

    before = rpc.rpc_sync("sim", simulators.runs)
    for _ in range(3):
        x = leaf(np.ones(2))
        with autograd.context() as context_id:
            autograd.backward(context_id, [on("sim", scaled)(x).sum()])
            assert autograd.get_gradients(context_id)[x].tolist() == [3.0, 3.0]
    # Traced once: Python's side of it ran when it was compiled, and not since.
    assert rpc.rpc_sync("sim", simulators.runs) - before == 1


def test_a_random_key_travels(cluster):
    key = jax.random.key(3)
    y, after = on("sim", simulators.noisy)(tg.tensor(np.ones(3)), key)
    expected, theirs = simulators.noisy.__wrapped__(np.ones(3), key)
    assert np.array_equal(y.numpy(), expected)
    assert jnp.array_equal(jax.random.key_data(after), jax.random.key_data(theirs))


def turn_x64(on):
    jax.config.update("jax_enable_x64", on)


def test_a_worker_without_x64_refuses_by_an_error_with_its_name(cluster):
    rpc.rpc_sync("other", turn_x64, (False,))
    try:
        with pytest.raises(DTypeError, match="on every worker that runs JAX") as info:
            on("other", simulators.mix)(leaf(X), leaf(W))
    finally:
        rpc.rpc_sync("other", turn_x64, (True,))
    assert "'other'" in "".join(info.value.__notes__)


def test_a_function_of_telegrad_with_remote_calls_runs_inside_of_jax(cluster):
    before = rpc.rpc_sync("sim", simulators.runs)
    remote = to_jax(on("sim", simulators.counted), results=jax.ShapeDtypeStruct((), "float64"))

    @jax.jit
    def loss(x):
        return remote(jnp.tanh(x)) ** 2

    f = simulators.counted.__wrapped__
    expected = jax.grad(lambda x: f(jnp.tanh(x)) ** 2)(X[0])
    assert np.allclose(jax.grad(loss)(X[0]), expected, rtol=1e-13)
    assert rpc.rpc_sync("sim", simulators.runs) - before == 1
    assert np.allclose(loss(X[0]), f(jnp.tanh(X[0])) ** 2)
    assert eventually(lambda: rpc.rpc_sync("sim", count_contexts) == 0)


def count_contexts():
    from telegrad.distributed.current import autograd_of
    from telegrad.rpc.current import current_worker

    return len(autograd_of(current_worker()).contexts)
