"""Activations."""

from typing import Literal

from telegrad.errors import UsageError
from telegrad.ops.arguments import ArrayLike
from telegrad.rules import activations as _rows
from telegrad.tensors import Tensor
from telegrad.tensors.hot import unary

__all__ = ["gelu", "log_sigmoid", "relu", "sigmoid", "silu", "softplus"]

_gelu = unary(_rows.GELU)
_gelu_tanh = unary(_rows.GELU_TANH)
_log_sigmoid = unary(_rows.LOG_SIGMOID)
_relu = unary(_rows.RELU)
_sigmoid = unary(_rows.SIGMOID)
_silu = unary(_rows.SILU)
_softplus = unary(_rows.SOFTPLUS)


def relu(x: ArrayLike, /) -> Tensor:
    """Each element, or zero where it is negative."""
    return _relu(x)


def sigmoid(x: ArrayLike, /) -> Tensor:
    """``1 / (1 + exp(-x))`` of each element."""
    return _sigmoid(x)


def log_sigmoid(x: ArrayLike, /) -> Tensor:
    """The logarithm of ``sigmoid``, without its underflow."""
    return _log_sigmoid(x)


def softplus(x: ArrayLike, /, beta: float = 1.0) -> Tensor:
    """``log(1 + exp(beta * x)) / beta`` of each element, exact for all sizes of x."""
    if beta == 1:
        return _softplus(x)
    if beta <= 0:
        raise UsageError(f"expected a positive beta in softplus, got {beta}")
    return _softplus(x * beta) / beta


def silu(x: ArrayLike, /) -> Tensor:
    """``x * sigmoid(x)`` of each element."""
    return _silu(x)


def gelu(x: ArrayLike, /, *, approximate: Literal["none", "tanh"] = "none") -> Tensor:
    """Each element times the share of a normal distribution below it; ``"tanh"`` approximates."""
    if approximate == "none":
        return _gelu(x)
    if approximate == "tanh":
        return _gelu_tanh(x)
    raise UsageError(f"expected 'none' or 'tanh' as approximate in gelu, got {approximate!r}")
