"""Activations and softmax under the names of ``torch.nn.functional``."""

from typing import Literal

from telegrad import ops
from telegrad.ops import log_sigmoid as logsigmoid
from telegrad.ops import relu, sigmoid, silu, softplus, tanh
from telegrad.rules.gating import GELU_WITH_SLOPE
from telegrad.tensors import Tensor, apply

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


def gelu(input: Tensor, approximate: Literal["none", "tanh"] = "none") -> Tensor:
    """Each element times the share of a normal distribution below it; ``"tanh"`` approximates."""
    if approximate == "none" and input.requires_grad and input.dtype.kind == "f":
        return apply(GELU_WITH_SLOPE, input)[0]  # type: ignore[no-any-return]
    return ops.gelu(input, approximate=approximate)


def softmax(input: Tensor, dim: int) -> Tensor:
    """Exponentials divided by their sum along an axis."""
    return ops.softmax(input, axis=dim)


def log_softmax(input: Tensor, dim: int) -> Tensor:
    """The logarithm of ``softmax``."""
    return ops.log_softmax(input, axis=dim)
