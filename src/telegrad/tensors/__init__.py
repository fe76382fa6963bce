"""A value that remembers: Tensor, the recording modes, and how a primitive is called."""

from telegrad.tensors.tensor import LEAF, Tensor, history_of, wrap  # isort: skip
from telegrad.tensors.calling import apply

__all__ = ["LEAF", "Tensor", "apply", "history_of", "wrap"]
