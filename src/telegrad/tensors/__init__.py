"""A value that remembers: Tensor, the recording modes, and how a primitive is called."""

from telegrad.tensors.tensor import LEAF, Tensor, history_of, wrap  # isort: skip
from telegrad.tensors.calling import apply
from telegrad.tensors.hot import binary, unary

__all__ = ["LEAF", "Tensor", "apply", "binary", "history_of", "unary", "wrap"]
