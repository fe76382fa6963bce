"""Functions of telegrad inside of JAX's programs."""

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import telegrad as tg
from telegrad.errors import DTypeError, NotDifferentiable, UsageError
from telegrad.jax import from_jax, to_jax

X = np.array([0.3, -1.2, 0.8])


def own(tree, scale):
    y = tg.sin(tree["x"]) * scale
    return {"y": y, "n": tree["n"] + 1, "total": (y**2).sum()}


def same(tree, scale):
    y = jnp.sin(tree["x"]) * scale
    return {"y": y, "n": tree["n"] + 1, "total": (y**2).sum()}


def loss_of(f):
    def loss(x, scale):
        out = f({"x": jnp.exp(x), "n": jnp.arange(2)}, scale)
        return (out["y"] * jnp.arange(3)).sum() + out["total"] ** 2

    return loss


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["plain", "jit"])
def test_values_and_gradients_are_those_of_jax(transform):
    ours, theirs = (transform(jax.value_and_grad(loss_of(f), (0, 1))) for f in (to_jax(own), same))
    (value, gradients), (expected, wanted) = ours(X, 2.0), theirs(X, 2.0)
    assert np.allclose(value, expected)
    assert np.allclose(gradients[0], wanted[0])
    assert np.allclose(gradients[1], wanted[1])


def test_jacobians_and_vmap_run_it_once_for_each_element():
    f = to_jax(lambda x: tg.sin(x) * x)
    assert np.allclose(jax.jacrev(f)(X), np.diag(np.sin(X) + X * np.cos(X)))
    assert np.allclose(jax.vmap(f)(X), np.sin(X) * X)
    assert np.allclose(jax.vmap(jax.grad(f))(X), np.sin(X) + X * np.cos(X))


def test_a_gradient_runs_the_function_once():
    runs = []

    def g(x):
        runs.append(1)
        return (x**2).sum()

    f = jax.jit(jax.grad(to_jax(g, results=jax.ShapeDtypeStruct((), "float64"))))
    assert np.allclose(f(X), 2 * X)
    assert len(runs) == 1


def test_a_pullback_that_is_used_again_computes_its_graph_again():
    runs = []

    def g(x):
        runs.append(1)
        return x**3

    _, pull = jax.vjp(to_jax(g, results=jax.ShapeDtypeStruct((3,), "float64")), jnp.asarray(X))
    for _ in range(2):
        assert np.allclose(pull(jnp.ones(3))[0], 3 * X**2)
    assert len(runs) == 2


def test_graphs_that_nobody_asks_for_are_dropped():
    runs = []

    def g(x):
        runs.append(1)
        return x**2

    f = to_jax(g, results=jax.ShapeDtypeStruct((3,), "float64"))
    pulls = [jax.vjp(f, jnp.asarray(X * k))[1] for k in range(66)]
    assert len(runs) == 66
    for k, pull in enumerate(pulls):
        assert np.allclose(pull(jnp.ones(3))[0], 2 * X * k)
    assert len(runs) == 66 + 2


def test_complex_gradients_follow_jaxs_convention():
    z = np.array([0.3 + 0.7j, -1.1 + 0.2j])
    ours = jax.grad(to_jax(lambda z: (tg.abs(z) ** 2).sum()))(z)
    assert np.allclose(ours, jax.grad(lambda z: (jnp.abs(z) ** 2).sum())(z))


def test_there_and_back_again():
    f = from_jax(lambda x: jnp.sum(to_jax(tg.sin)(x) ** 2))
    x = tg.tensor(X, requires_grad=True)
    f(x).backward()
    assert np.allclose(x.grad.numpy(), 2 * np.sin(X) * np.cos(X))


@pytest.mark.parametrize(
    "twice", [lambda f: jax.grad(jax.grad(f)), jax.hessian], ids=["reverse", "forward"]
)
def test_a_second_derivative_is_refused(twice):
    f = to_jax(lambda x: x**3)
    with pytest.raises(NotDifferentiable, match="has first derivatives in reverse mode only"):
        twice(f)(2.0)


def test_forward_mode_is_refused():
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(to_jax(lambda x: x**3), (2.0,), (1.0,))


def test_results_that_are_not_as_promised_are_refused():
    f = to_jax(lambda x: x, results=jax.ShapeDtypeStruct((2,), "float64"))
    with pytest.raises(Exception, match=r"expected shape \(2,\) .* say what it gives with to_jax"):
        jax.block_until_ready(f(X))
    with pytest.raises(DTypeError, match="expected Tensors from the function for to_jax, got str"):
        to_jax(lambda x: "text")(X)


def test_wrong_arguments_are_refused():
    with pytest.raises(DTypeError, match="call the function of telegrad itself with Tensors"):
        to_jax(tg.sin)(tg.ones(2))
    with pytest.raises(UsageError, match="expected a function of telegrad for to_jax, got int"):
        to_jax(3)
