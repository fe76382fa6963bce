"""Activations and softmax with the arguments that they have in ``torch.nn.functional``."""

from typing import Literal

from telegrad.ops import activations
from telegrad.ops import softmax as _softmax
from telegrad.rules.gelu import GELU_WITH_SLOPE
from telegrad.tensors import Tensor, apply_several


def gelu(input: Tensor, approximate: Literal["none", "tanh"] = "none") -> Tensor:
    """Return each element times the share of a normal distribution below it.

    ``approximate="tanh"`` takes the approximation by a hyperbolic tangent.

    Examples:
        >>> tg.nn.functional.gelu(tg.tensor([-1.0, 2.0]))
        tensor([-0.1587,  1.9545])
    """
    if approximate == "none" and input.requires_grad and input.dtype.kind == "f":
        return apply_several(GELU_WITH_SLOPE, input)[0]
    return activations.gelu(input, approximate=approximate)


def softmax(input: Tensor, dim: int) -> Tensor:
    """Return exponentials divided by their sum along an axis.

    Examples:
        >>> tg.nn.functional.softmax(tg.tensor([1.0, 1.0]), dim=-1)
        tensor([0.5, 0.5])
    """
    return _softmax.softmax(input, axis=dim)


def log_softmax(input: Tensor, dim: int) -> Tensor:
    """Return the logarithm of ``softmax``.

    Examples:
        >>> tg.nn.functional.log_softmax(tg.tensor([1.0, 1.0]), dim=-1)
        tensor([-0.6931, -0.6931])
    """
    return _softmax.log_softmax(input, axis=dim)
