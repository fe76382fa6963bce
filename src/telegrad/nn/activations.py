"""Activations as layers."""

from typing import Literal, Never

from telegrad.nn import functional
from telegrad.nn.module import Module
from telegrad.tensors import Tensor
from telegrad.tensors.torch_hints import unexpected


class ReLU(Module):
    """Each element, or zero where it is negative.

    Examples:
        >>> tg.nn.ReLU()(tg.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """

    def __init__(self, **unknown: Never) -> None:
        super().__init__()
        if unknown:
            raise unexpected("ReLU", unknown)

    def forward(self, input: Tensor) -> Tensor:
        return functional.relu(input)


class GELU(Module):
    """Each element times the share of a normal distribution below it.

    Arguments:
        approximate: "none", or "tanh" for the approximation by a hyperbolic tangent.

    Examples:
        >>> tg.nn.GELU()(tg.tensor([-1.0, 2.0]))
        tensor([-0.1587,  1.9545])
    """

    def __init__(self, approximate: Literal["none", "tanh"] = "none") -> None:
        super().__init__()
        self.approximate: Literal["none", "tanh"] = approximate

    def forward(self, input: Tensor) -> Tensor:
        return functional.gelu(input, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class SiLU(Module):
    """``x * sigmoid(x)``.

    Examples:
        >>> tg.nn.SiLU()(tg.tensor([-1.0, 2.0]))
        tensor([-0.2689,  1.7616])
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.silu(input)


class Tanh(Module):
    """The hyperbolic tangent.

    Examples:
        >>> tg.nn.Tanh()(tg.tensor([-1.0, 2.0]))
        tensor([-0.7616,  0.964 ])
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.tanh(input)


class Sigmoid(Module):
    """``1 / (1 + exp(-x))``.

    Examples:
        >>> tg.nn.Sigmoid()(tg.tensor([-1.0, 2.0]))
        tensor([0.2689, 0.8808])
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.sigmoid(input)


class Softmax(Module):
    """Exponentials divided by their sum along the axis `dim`.

    Arguments:
        dim: The axis to go along.

    Examples:
        >>> tg.nn.Softmax(dim=-1)(tg.tensor([1.0, 1.0]))
        tensor([0.5, 0.5])
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return functional.softmax(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"
