"""A value that remembers: Tensor, the recording modes, and how a primitive is called."""

from telegrad.tensors.tensor import LEAF, Tensor, history_of, wrap  # isort: skip
from telegrad.tensors.recording.primitive_call import apply, apply_several

__all__ = ["LEAF", "Tensor", "apply", "apply_several", "history_of", "wrap"]
