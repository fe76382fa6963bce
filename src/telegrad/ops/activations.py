"""Activations."""
# mypy: disable-error-code="empty-body"

from typing import Literal

from telegrad.errors import UsageError
from telegrad.ops.arguments import ArrayLike
from telegrad.ops.elementwise import elementwise
from telegrad.rules import activations as _primitives
from telegrad.tensors import Tensor
from telegrad.tensors.recording.fast_paths import unary

__all__ = ["gelu", "log_sigmoid", "relu", "sigmoid", "silu", "softplus"]

_gelu = unary(_primitives.GELU)
_gelu_tanh = unary(_primitives.GELU_TANH)
_softplus = unary(_primitives.SOFTPLUS)


@elementwise(_primitives.RELU)
def relu(x: ArrayLike, /) -> Tensor:
    """Each element, or zero where it is negative."""


@elementwise(_primitives.SIGMOID)
def sigmoid(x: ArrayLike, /) -> Tensor:
    """``1 / (1 + exp(-x))`` of each element."""


@elementwise(_primitives.LOG_SIGMOID)
def log_sigmoid(x: ArrayLike, /) -> Tensor:
    """The logarithm of ``sigmoid``, without its underflow."""


def softplus(x: ArrayLike, /, beta: float = 1.0) -> Tensor:
    """``log(1 + exp(beta * x)) / beta`` of each element, exact for all sizes of x."""
    if beta == 1:
        return _softplus(x)
    if beta <= 0:
        raise UsageError(f"expected a positive beta in softplus, got {beta}")
    return _softplus(x * beta) / beta


@elementwise(_primitives.SILU)
def silu(x: ArrayLike, /) -> Tensor:
    """``x * sigmoid(x)`` of each element."""


def gelu(x: ArrayLike, /, *, approximate: Literal["none", "tanh"] = "none") -> Tensor:
    """Each element times the share of a normal distribution below it; ``"tanh"`` approximates."""
    if approximate == "none":
        return _gelu(x)
    if approximate == "tanh":
        return _gelu_tanh(x)
    raise UsageError(f"expected 'none' or 'tanh' as approximate in gelu, got {approximate!r}")
