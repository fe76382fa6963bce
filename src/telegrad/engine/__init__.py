"""How a backward pass runs over a graph. Knows nodes by their protocol alone: no operation, no Tensor."""

from telegrad.engine.task import GraphTask

__all__ = ["GraphTask"]
