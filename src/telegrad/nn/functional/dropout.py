"""Dropout."""

from telegrad.errors import UsageError
from telegrad.ops.filled import zeros_like
from telegrad.ops.random import Generator, bernoulli
from telegrad.tensors import Tensor


def dropout(
    input: Tensor, p: float = 0.5, training: bool = True, *, generator: Generator | None = None
) -> Tensor:
    """Return each element, in training zero with probability `p`, the others divided by ``1 - p``.

    Arguments:
        input: The values.
        p: From 0 to 1.
        training: Whether to drop anything.
        generator: Where the choice comes from; the generator of the process by default.

    Raises:
        UsageError: If p is not from 0 to 1.

    Examples:
        >>> tg.nn.functional.dropout(tg.ones(3), training=False)
        tensor([1., 1., 1.])
    """
    if not 0 <= p <= 1:
        raise UsageError(f"expected a probability from 0 to 1 in dropout, got {p}")
    if not training or p == 0:
        return input
    if p == 1:
        return input * zeros_like(input.detach())
    kept = bernoulli(1 - p, input.shape, generator=generator, dtype=input.dtype)
    return input * (kept / (1 - p))
