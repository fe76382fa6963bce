"""Functions of JAX in telegrad's graphs and remote calls; ``telegrad.jax`` is the door to it."""
