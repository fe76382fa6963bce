"""Activations and softmax under the names of ``torch.nn.functional``."""

from telegrad import ops
from telegrad.ops import gelu, relu, sigmoid, silu, softplus, tanh
from telegrad.ops import log_sigmoid as logsigmoid
from telegrad.tensors import Tensor

__all__ = [
    "gelu",
    "log_softmax",
    "logsigmoid",
    "relu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "tanh",
]


def softmax(input: Tensor, dim: int) -> Tensor:
    """Exponentials divided by their sum along an axis."""
    return ops.softmax(input, axis=dim)


def log_softmax(input: Tensor, dim: int) -> Tensor:
    """The logarithm of ``softmax``."""
    return ops.log_softmax(input, axis=dim)
