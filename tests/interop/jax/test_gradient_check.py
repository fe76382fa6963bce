"""``gradient_check`` takes functions of JAX with every kind of argument and result, here and there.

Both modes and all mixtures of them at second order, beside differences.
"""

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from tests.interop.jax import simulators

from telegrad.distributed import LocalCluster, autograd, rpc
from telegrad.jax import from_jax
from telegrad.testing import GradientMismatch, gradient_check

X, W = np.random.default_rng(4).normal(size=(2, 3))


@from_jax
def picked(x, index):
    return jnp.sin(x[index]) * x


@from_jax
def optional(tree):
    x, scale = tree["x"], tree["scale"]
    return {"y": x**2 if scale is None else x**2 * scale, "nothing": None}


@from_jax
def several(x, w):
    return jnp.sin(x) * w, {"sum": (x * w).sum(), "count": jnp.sum(x > 0), "flag": x > 0}


@from_jax
def wrong(x):
    return _halved(x)


@jax.custom_vjp
def _halved(x):
    return jnp.sin(x)


_halved.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (0.5 * g * jnp.cos(x),))

CASES = {
    "a static argument by place": (lambda x: simulators.steered(x, 3), [X]),
    "a static argument by name": (lambda x: simulators.steered(x, 2, kind="mean"), [X]),
    "an integer array": (picked, [X, np.array([2, 0, 1])]),
    "an integer": (lambda x: picked(x, 1), [X]),
    "a leaf that is None": (lambda x: optional({"x": x, "scale": None})["y"], [X]),
    "the same leaf as an array": (lambda x, w: optional({"x": x, "scale": w})["y"], [X, W]),
    "several results, some without derivative": (
        lambda x, w: [several(x, w)[0], several(x, w)[1]["sum"]],
        [X, W],
    ),
    "a random key": (lambda x: simulators.noisy(x, jax.random.key(3))[0], [X]),
    "a random key of raw bits": (lambda x: simulators.noisy(x, jax.random.PRNGKey(3))[0], [X]),
    "complex numbers": (from_jax(lambda x, w: x**2 * w), [X + 1j * W, W - 2j * X]),
}


@pytest.mark.usefixtures("_both_roads")
@pytest.mark.parametrize("name", CASES)
def test_derivatives_agree_with_differences_for(name):
    function, inputs = CASES[name]
    gradient_check(function, inputs, order=2)


def test_a_wrong_derivative_is_found():
    with pytest.raises(GradientMismatch):
        gradient_check(wrong, [X], modes=["reverse"], order=1)


@pytest.mark.processes
def test_over_workers_they_agree_too():
    with LocalCluster(["sim"]), autograd.context():
        rpc.rpc_sync("sim", simulators.runs)
        key = jax.random.key(3)
        for function, inputs in (
            (lambda x: rpc.rpc_sync("sim", simulators.steered, (x, 3)), [X]),
            (lambda x: rpc.rpc_sync("sim", simulators.noisy, (x, key))[0], [X]),
            (lambda x, w: rpc.rpc_sync("sim", several, (x, w))[1]["sum"], [X, W]),
            (lambda x: rpc.rpc_sync("sim", optional, ({"x": x, "scale": None},))["y"], [X]),
            (lambda x, n: rpc.rpc_sync("sim", picked, (x, n)), [X, np.array([2, 0, 1])]),
        ):
            gradient_check(function, inputs, order=2)
