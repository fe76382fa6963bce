"""Layers that are an affine map, or a table."""

import math
from numbers import Integral
from typing import Any

import numpy as np

from telegrad.arrays.host import in_host_memory
from telegrad.errors import UsageError
from telegrad.nn import functional, init
from telegrad.nn.functional.linear import checked_padding
from telegrad.nn.module import Module
from telegrad.nn.parameter import Parameter
from telegrad.ops.filled import empty
from telegrad.tensors import Tensor
from telegrad.tensors.recording.modes import no_grad


class Linear(Module):
    """``x @ weight.T + bias``.

    Arguments:
        in_features: How many features come in.
        out_features: How many go out.
        bias: Whether there is a bias.
        device: Where the parameters are to be, such as "cuda"; the CPU by default.
        dtype: The dtype of the parameters; float32 by default.

    Examples:
        >>> tg.nn.Linear(3, 2)
        Linear(in_features=3, out_features=2, bias=True)
        >>> tg.nn.Linear(3, 2)(tg.ones(4, 3)).shape
        (4, 2)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        for name, size in (("in_features", in_features), ("out_features", out_features)):
            if not isinstance(size, Integral) or size < 0:
                raise UsageError(f"expected {name} of 0 or more in Linear, got {size!r}")
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(empty((out_features, in_features), dtype=dtype, device=device))
        self.bias = Parameter(empty((out_features,), dtype=dtype, device=device)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new first values."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features else 0.0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return functional.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class Embedding(Module):
    """A table of vectors, looked up by integers.

    Arguments:
        num_embeddings: How many vectors.
        embedding_dim: How long each is.
        padding_idx: The vector that is zero and receives no gradient.
        device: Where the parameters are to be, such as "cuda"; the CPU by default.
        dtype: The dtype of the parameters; float32 by default.

    Examples:
        >>> tg.nn.Embedding(10, 4)(tg.tensor([1, 5, 1])).shape
        (3, 4)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if num_embeddings < 1 or embedding_dim < 1:
            raise UsageError(
                f"expected at least one row and one column in an Embedding, got {num_embeddings} "
                f"and {embedding_dim}"
            )
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        if padding_idx is not None:
            padding_idx = checked_padding(padding_idx, num_embeddings)
        self.padding_idx = padding_idx
        self.weight = Parameter(empty((num_embeddings, embedding_dim), dtype=dtype, device=device))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new first values."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            value = np.array(in_host_memory(self.weight.array))
            value[self.padding_idx] = 0
            with no_grad():
                self.weight.copy_(value)

    def forward(self, input: Tensor) -> Tensor:
        return functional.embedding(input, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"
