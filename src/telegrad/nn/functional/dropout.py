"""Dropout."""

from telegrad.errors import UsageError
from telegrad.ops.filled import zeros_like
from telegrad.ops.random import Generator, bernoulli
from telegrad.tensors import Tensor

__all__ = ["dropout"]


def dropout(
    input: Tensor, p: float = 0.5, training: bool = True, *, generator: Generator | None = None
) -> Tensor:
    """In training, each element zero with probability `p`, the others divided by ``1 - p``."""
    if not 0 <= p <= 1:
        raise UsageError(f"expected a probability from 0 to 1 in dropout, got {p}")
    if not training or p == 0:
        return input
    if p == 1:
        return input * zeros_like(input.detach())
    kept = bernoulli(1 - p, input.shape, generator=generator, dtype=input.dtype)
    return input * (kept / (1 - p))
