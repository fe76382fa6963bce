"""Activations as layers."""

from typing import Literal, Never

from telegrad.nn import functional
from telegrad.nn.module import Module
from telegrad.tensors import Tensor
from telegrad.tensors.torch_hints import unexpected

__all__ = ["GELU", "ReLU", "SiLU", "Sigmoid", "Softmax", "Tanh"]


class ReLU(Module):
    """Each element, or zero where it is negative."""

    def __init__(self, **unknown: Never) -> None:
        super().__init__()
        if unknown:
            raise unexpected("ReLU", unknown)

    def forward(self, input: Tensor) -> Tensor:
        return functional.relu(input)


class GELU(Module):
    """Each element times the share of a normal distribution below it."""

    def __init__(self, approximate: Literal["none", "tanh"] = "none") -> None:
        super().__init__()
        self.approximate: Literal["none", "tanh"] = approximate

    def forward(self, input: Tensor) -> Tensor:
        return functional.gelu(input, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class SiLU(Module):
    """``x * sigmoid(x)``."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.silu(input)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.tanh(input)


class Sigmoid(Module):
    """``1 / (1 + exp(-x))``."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.sigmoid(input)


class Softmax(Module):
    """Exponentials divided by their sum along the axis `dim`."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return functional.softmax(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"
