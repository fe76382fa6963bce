"""Dropout as a layer."""

from typing import Never

from telegrad.errors import UsageError
from telegrad.nn import functional
from telegrad.nn.module import Module
from telegrad.ops.random import Generator
from telegrad.tensors import Tensor
from telegrad.tensors.torch_hints import unexpected


class Dropout(Module):
    """In training, makes elements zero with probability `p`, and divides the others by ``1 - p``.

    Arguments:
        p: From 0 to 1.
        generator: Where the choice comes from; the generator of the process by default.

    Examples:
        >>> tg.nn.Dropout(0.5).eval()(tg.ones(3))
        tensor([1., 1., 1.])
    """

    def __init__(
        self, p: float = 0.5, *, generator: Generator | None = None, **unknown: Never
    ) -> None:
        super().__init__()
        if unknown:
            raise unexpected("Dropout", unknown)
        if not 0 <= p <= 1:
            raise UsageError(f"expected a probability from 0 to 1 in Dropout, got {p}")
        self.p = p
        self.generator = generator

    def forward(self, input: Tensor) -> Tensor:
        return functional.dropout(input, self.p, self.training, generator=self.generator)

    def extra_repr(self) -> str:
        return f"p={self.p}"
