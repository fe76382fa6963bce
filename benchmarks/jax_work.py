"""What bench_jax differentiates: functions of JAX, on a worker and here; single precision."""

from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from telegrad.jax import from_jax

__all__ = ["ARGUMENTS", "FUNCTIONS"]

STEPS = 100


@from_jax
def layer(x: Any, w: Any) -> Any:
    """A small layer; its arithmetic takes a few microseconds."""
    return jnp.tanh(x @ w).sum()


@from_jax
def pendulums(state: Any, gravity: Any) -> Any:
    """Steps of 32 pendulums by ``lax.scan``."""

    def step(now: Any, _: None) -> Any:
        speed = now[1] - 0.01 * gravity * jnp.sin(now[0])
        return jnp.stack([now[0] + 0.01 * speed, speed]), None

    return lax.scan(step, state, None, length=STEPS)[0].sum()


FUNCTIONS = {"layer of 16 × 16": layer, f"{STEPS} steps of 32 pendulums": pendulums}
_RNG = np.random.default_rng(0)


def _normal(*shape: int) -> Any:
    return _RNG.standard_normal(shape, np.float32)


ARGUMENTS = {
    "layer of 16 × 16": (_normal(16, 16), _normal(16, 16)),
    f"{STEPS} steps of 32 pendulums": (_normal(2, 32), np.full(32, 9.8, np.float32)),
}
