"""Clipping gradients, under the name that it has in ``torch.nn.utils``."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from telegrad.arrays import backend_of
from telegrad.arrays.host import for_numpy
from telegrad.errors import GradientError, UsageError
from telegrad.nn.module import Module
from telegrad.nn.torch_names import UTILS
from telegrad.ops.creation import tensor
from telegrad.tensors import Tensor, wrap
from telegrad.tensors.torch_hints import advice_on_names

__all__ = ["clip_grad_norm_"]


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """Make all gradients together no longer than `max_norm`.

    Arguments:
        parameters: The tensors whose gradients to shorten.
        max_norm: The largest norm they may have.
        norm_type: The order of the norm.
        error_if_nonfinite: Whether a norm that is not finite is an error.

    Returns:
        Their norm before.

    Raises:
        GradientError: If the norm is not finite and that is an error.
        UsageError: If an option is out of range.

    Examples:
        >>> x = tg.tensor([3.0, 4.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> tg.nn.utils.clip_grad_norm_(x, 1.0), x.grad
        (tensor(10.), tensor([0.6, 0.8]))
    """
    if isinstance(parameters, Module):
        raise UsageError(
            f"expected parameters to clip the gradients of, got {type(parameters).__name__}; pass "
            "its parameters()"
        )
    if not max_norm >= 0:
        raise UsageError(f"expected max_norm of 0 or more in clip_grad_norm_, got {max_norm}")
    chosen = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    order = float(norm_type)
    if order <= 0:
        raise UsageError(f"expected a positive norm_type in clip_grad_norm_, got {norm_type}")
    leaves = [p for p in chosen if p.grad is not None]
    if not leaves:
        return tensor(0.0)
    given = [p.grad.array for p in leaves if p.grad is not None]
    arrays = [for_numpy(array) for array in given]
    total = _norm(np.array([_norm(array, order) for array in arrays]), order)
    if error_if_nonfinite and not math.isfinite(total):
        raise GradientError(
            f"expected finite gradients, got a total norm of {total}; nothing was changed"
        )
    scale = min(1.0, max_norm / (total + 1e-6)) if not math.isnan(total) else total
    if scale != 1.0:
        for leaf, array, own in zip(leaves, arrays, given):
            scaled = for_numpy(array * array.dtype.type(scale))
            xp = backend_of(own)
            leaf.grad = wrap(scaled if xp.is_numpy else xp.asarray(scaled))
    return wrap(np.asarray(total, np.result_type(*[array.real.dtype for array in arrays])))


def _norm(array: Any, order: float) -> float:
    if not array.size:
        return 0.0
    if order == 2:
        flat = array.reshape(-1)
        return math.sqrt(float(np.vdot(flat, flat).real))
    size = np.abs(array)
    return float(size.max()) if math.isinf(order) else float((size**order).sum()) ** (1 / order)


if not TYPE_CHECKING:  # or a type checker would take every name for known
    __getattr__ = advice_on_names(__name__, UTILS)
