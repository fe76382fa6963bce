"""Functions of JAX that the tests run, here and on workers; importing this turns 64 bits on."""

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from telegrad.jax import from_jax

jax.config.update("jax_enable_x64", True)

RUNS = []
"""One entry for each time that `counted` ran in this process."""


@from_jax
def pendulum(state, parameters):
    """Some steps of a damped pendulum, by ``lax.scan``; all positions, and the last state."""

    def step(now, _):
        pull = -parameters["gravity"] * jnp.sin(now["angle"]) - parameters["damping"] * now["speed"]
        speed = now["speed"] + 0.05 * pull
        after = {"angle": now["angle"] + 0.05 * speed, "speed": speed}
        return after, after["angle"]

    last, path = lax.scan(step, state, None, length=12)
    return path, last


def start():
    state = {"angle": np.array([0.3, -0.7]), "speed": np.array([0.1, 0.4])}
    return state, {"gravity": np.array(9.8), "damping": np.array(0.2)}


@from_jax
def mix(x, w):
    return jnp.tanh(x @ w) * jnp.sin(x.sum())


@from_jax
def counted(x):
    jax.debug.callback(lambda: RUNS.append(1))
    return jnp.exp(jnp.sin(x)).sum()


def runs():
    jax.effects_barrier()
    return len(RUNS)


def live_bytes():
    """The size of JAX's arrays in this process."""
    import gc

    gc.collect()
    return sum(each.nbytes for each in jax.live_arrays())


@from_jax
def wide(x):
    return jnp.sin(x) * jnp.cos(x)


@from_jax(static_argnames=("power", "kind"))
def steered(x, power, *, kind="sum"):
    y = x
    for _ in range(power - 1):
        y = y * x
    return y.sum() if kind == "sum" else y.mean()


@from_jax
def noisy(x, key):
    key, now = jax.random.split(key)
    return x * jax.random.normal(now, x.shape), key
