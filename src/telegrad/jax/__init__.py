"""Functions of JAX as functions of telegrad, and the other way round; needs JAX 0.10 or newer."""

from telegrad.interop.jax import version as _version

_version.require()

from telegrad.interop.jax.callback import to_jax  # noqa: E402
from telegrad.interop.jax.function import from_jax  # noqa: E402

__all__ = ["from_jax", "to_jax"]
