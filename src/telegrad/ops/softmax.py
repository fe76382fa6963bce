"""Softmax and its kin."""

from typing import Never

import numpy as np

from telegrad.errors import DTypeError
from telegrad.ops.arguments import ArrayLike, Axis, as_tensor, check_keepdims, normalized_axes
from telegrad.rules import softmax as _rows
from telegrad.tensors import Tensor, apply
from telegrad.tensors.habits import unexpected

__all__ = ["log_softmax", "logsumexp", "softmax"]


def softmax(x: ArrayLike, /, axis: Axis = -1, **unknown: Never) -> Tensor:
    """Exponentials divided by their sum along an axis (several, or None for all)."""
    if unknown:
        raise unexpected("softmax", unknown)
    x = _real(x, "softmax")
    axis = _axes(axis, x, "softmax")
    return apply(_rows.SOFTMAX, x, axis=axis)


def log_softmax(x: ArrayLike, /, axis: Axis = -1, **unknown: Never) -> Tensor:
    """The logarithm of ``softmax``, without its underflow."""
    if unknown:
        raise unexpected("log_softmax", unknown)
    x = _real(x, "log_softmax")
    axis = _axes(axis, x, "log_softmax")
    return apply(_rows.LOG_SOFTMAX, x, axis=axis)


def logsumexp(
    x: ArrayLike, /, axis: Axis = None, keepdims: bool = False, **unknown: Never
) -> Tensor:
    """The logarithm of the sum of exponentials over some axes, or over all of them."""
    if unknown:
        raise unexpected("logsumexp", unknown)
    check_keepdims(keepdims, "logsumexp")
    x = _real(x, "logsumexp")
    axis = _axes(axis, x, "logsumexp")
    return apply(_rows.LOGSUMEXP, x, axis=axis, keepdims=keepdims)


def _real(x: ArrayLike, name: str) -> Tensor:
    values = as_tensor(x, name)
    kind = values.dtype.kind
    if kind == "c":
        raise DTypeError(
            f"expected real values in {name}, got {values.dtype}, among which none is the largest"
        )
    return values if kind == "f" else values.to(np.float32)


def _axes(axis: Axis, x: Tensor, name: str) -> tuple[int, ...]:
    # A 0-d tensor counts as one element on one axis, as in PyTorch.
    return normalized_axes(axis, x.ndim, name) if x.ndim else ()
