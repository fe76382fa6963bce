"""Run a backward pass over a graph. Uses nodes only through their protocol: no op, no Tensor."""

from telegrad.engine.local import GraphTask
from telegrad.engine.ordered import OrderedTask
from telegrad.engine.task import BoundaryReached, are_captured, keep_retained

__all__ = ["BoundaryReached", "GraphTask", "OrderedTask", "are_captured", "keep_retained"]
