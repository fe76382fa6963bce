"""Derivatives of functions of JAX: beside JAX itself, beside differences, at any order."""

import itertools

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from tests.interop.jax import simulators

import telegrad as tg
from telegrad.autograd import forward_ad
from telegrad.autograd import functional as F
from telegrad.errors import AnomalyError
from telegrad.jax import from_jax
from telegrad.testing import gradient_check

pytestmark = pytest.mark.usefixtures("_both_roads")
RNG = np.random.default_rng(0)
X, W = RNG.normal(size=(2, 3)), RNG.normal(size=(3, 2))


def leaf(array):
    return tg.tensor(array, requires_grad=True)


def pendulum_of(angle, speed, gravity, damping):
    path, last = simulators.pendulum(
        {"angle": angle, "speed": speed}, {"gravity": gravity, "damping": damping}
    )
    return path, last["angle"], last["speed"]


def test_gradients_are_those_of_jax():
    x, w = leaf(X), leaf(W)
    simulators.mix(x, w).sum().backward()
    f = simulators.mix.__wrapped__
    expected = jax.jit(jax.grad(lambda x, w: f(x, w).sum(), argnums=(0, 1)))(X, W)
    assert np.allclose(x.grad.numpy(), expected[0], rtol=1e-14, atol=0)
    assert np.allclose(w.grad.numpy(), expected[1], rtol=1e-14, atol=0)


def test_trees_go_in_and_come_out():
    state, parameters = simulators.start()
    tensors = jax.tree.map(leaf, parameters)
    path, last = simulators.pendulum(jax.tree.map(tg.tensor, state), tensors)
    assert path.shape == (12, 2)
    assert sorted(last) == ["angle", "speed"]
    (path.sum() + last["speed"].sum()).backward()

    def loss(parameters):
        path, last = simulators.pendulum.__wrapped__(state, parameters)
        return path.sum() + last["speed"].sum()

    expected = jax.grad(loss)(parameters)
    for name, tensor in tensors.items():
        assert np.allclose(tensor.grad.numpy(), expected[name], rtol=1e-12)


def test_both_modes_and_all_mixtures_agree_with_differences():
    state, parameters = simulators.start()
    inputs = [*state.values(), *parameters.values()]
    gradient_check(pendulum_of, inputs, order=2)


def test_third_order_agrees_with_differences():
    gradient_check(
        from_jax(lambda x, y: jnp.sin(x * y) * x), [np.array(0.4), np.array(1.2)], order=3
    )


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_every_mixture_of_modes_gives_the_same_derivative(order):
    f = from_jax(lambda x: jnp.exp(jnp.sin(x)) * x)
    one = tg.tensor(1.0, dtype=tg.float64)
    modes = {"r": F.grad, "f": lambda g: lambda x: F.jvp(g, x, one)[1]}
    expected = lambda x: jnp.exp(jnp.sin(x)) * x
    for _ in range(order):
        expected = jax.grad(expected)
    wanted = float(expected(0.7))
    for mixture in itertools.product("rf", repeat=order):
        derived = f
        for mode in mixture:
            derived = modes[mode](derived)
        found = derived(tg.tensor(0.7, dtype=tg.float64)).item()
        assert found == pytest.approx(wanted, rel=1e-12), mixture


def test_functions_of_jax_and_of_telegrad_mix_at_second_order():
    f = from_jax(lambda x: jnp.tanh(x) ** 2)
    gradient_check(lambda x: tg.sin(f(tg.exp(x)) * x), [np.array([0.1, -0.4])], order=2)


def test_dual_levels_nest():
    f = from_jax(lambda x: x**3)
    x = tg.tensor(2.0, dtype=tg.float64)
    one = tg.tensor(1.0, dtype=tg.float64)
    with forward_ad.dual_level():
        outer = forward_ad.make_dual(x, one)
        with forward_ad.dual_level():
            y = f(forward_ad.make_dual(outer, one))
            inner = forward_ad.unpack_dual(y).tangent
        assert forward_ad.unpack_dual(inner).tangent.item() == 12.0


def test_complex_gradients_follow_telegrads_convention():
    z = np.array([0.3 + 0.7j, -1.1 + 0.2j])
    gradient_check(from_jax(lambda z: jnp.exp(z) * jnp.conj(z)), [z], order=2)
    gradient_check(from_jax(lambda z: jnp.abs(z) ** 2), [z], order=2)
    gradient_check(from_jax(lambda x: jnp.exp(1j * x)), [z.real], order=2)
    own, theirs = leaf(z), leaf(z)
    (tg.abs(own) ** 2).sum().backward()
    from_jax(lambda z: (jnp.abs(z) ** 2).sum())(theirs).backward()
    assert np.allclose(own.grad.numpy(), theirs.grad.numpy())


def test_only_wanted_gradients_are_computed():
    x, w = leaf(X), tg.tensor(W)
    y = simulators.mix(x, w)
    y.sum().backward()
    assert w.grad is None
    other = leaf(X)
    simulators.mix(other, leaf(W)).sum().backward()
    assert np.allclose(x.grad.numpy(), other.grad.numpy(), rtol=1e-14)


def test_a_result_without_cotangent_counts_as_zero():
    x = leaf(X[0])
    f = from_jax(lambda x: (x.sum(), jnp.exp(x), x * 2))
    f(x)[1].sum().backward()
    assert np.allclose(x.grad.numpy(), np.exp(X[0]))


def test_gradients_add_up_over_uses_and_passes():
    x = leaf(X[0])
    f = from_jax(lambda x: (x**2).sum())
    for _ in range(2):
        (f(x) + f(x)).backward()
    assert np.allclose(x.grad.numpy(), 8 * X[0])
    with tg.no_grad():
        x -= 0.1 * x.grad
    assert np.allclose(x.detach().numpy(), 0.2 * X[0])


def test_functions_without_recording_run_plainly():
    x = leaf(X[0])
    with tg.no_grad():
        y = simulators.counted(x)
    assert not y.requires_grad
    assert not simulators.counted(x.detach()).requires_grad


def test_parameters_in_a_module_train_through_jax():
    weight = tg.nn.Parameter(tg.tensor(np.zeros(3)))
    optimizer = tg.optim.SGD([weight], lr=0.2)
    loss_of = from_jax(lambda w, target: ((w - target) ** 2).sum())
    for _ in range(40):
        optimizer.zero_grad()
        loss_of(weight, np.array([1.0, 2.0, 3.0])).backward()
        optimizer.step()
    assert np.allclose(weight.detach().numpy(), [1, 2, 3], atol=1e-6)


def test_hooks_see_gradients_and_may_change_them():
    x = leaf(X[0])
    y = from_jax(lambda x: x * 3.0)(x)
    seen = []
    y.register_hook(lambda g: seen.append(g.tolist()) or g * 2.0)
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append(len(inputs)))
    y.retain_grad()
    y.sum().backward()
    assert seen[0] == [1.0, 1.0, 1.0]
    assert np.allclose(x.grad.numpy(), 6.0)
    assert np.allclose(y.grad.numpy(), 2.0)


def test_saved_values_may_be_packed():
    x = leaf(X[0])
    kept = []
    with tg.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        y = from_jax(lambda x: (x**3).sum())(x)
    assert kept
    (g,) = tg.autograd.grad(y, x, create_graph=True)
    (h,) = tg.autograd.grad(g.sum(), x)
    assert np.allclose(h.numpy(), 6 * X[0])


def test_nan_is_found_by_name():
    x = leaf(np.array([-1.0]))
    with tg.autograd.detect_anomaly():
        y = from_jax(lambda x: jnp.sqrt(x).sum())(x)
        with pytest.raises(AnomalyError, match="<lambda>Backward gave NaN"):
            y.backward()


def test_a_checkpoint_runs_it_again_in_the_pass():
    x = leaf(X[0])
    tg.autograd.checkpoint(from_jax(lambda x: jnp.exp(x).sum()), x).backward()
    assert np.allclose(x.grad.numpy(), np.exp(X[0]))


def test_gradients_of_results_inside_of_a_graph_can_be_asked_for():
    x = leaf(X[0])
    first, second = from_jax(lambda x: (x * 2.0, x**2))(x)
    found = tg.autograd.grad((first * second).sum(), [first, second, x])
    for got, expected in zip(found, (X[0] ** 2, 2 * X[0], 6 * X[0] ** 2)):
        assert np.allclose(got.numpy(), expected)
