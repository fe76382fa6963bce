"""Activations."""

from telegrad.ops.arguments import ArrayLike
from telegrad.rules import activations as _rows
from telegrad.tensors import Tensor
from telegrad.tensors.hot import unary

__all__ = ["relu", "sigmoid"]

_relu = unary(_rows.RELU)
_sigmoid = unary(_rows.SIGMOID)


def relu(x: ArrayLike, /) -> Tensor:
    """Each element, or zero where it is negative."""
    return _relu(x)


def sigmoid(x: ArrayLike, /) -> Tensor:
    """``1 / (1 + exp(-x))`` of each element."""
    return _sigmoid(x)
