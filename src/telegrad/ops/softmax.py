"""Softmax and its kin."""

from typing import Any, Never

import numpy as np

from telegrad.errors import DTypeError
from telegrad.ops.arguments import (
    ArrayLike,
    Axis,
    Unknown,
    as_tensor,
    check_keepdims,
    normalized_axes,
)
from telegrad.rules import Primitive
from telegrad.rules import softmax as _primitives
from telegrad.tensors import Tensor, apply


def softmax(x: ArrayLike, /, axis: Axis = -1, **unknown: Never) -> Tensor:
    """Return exponentials divided by their sum along an axis (several, or None for all).

    Raises:
        DTypeError: If x is complex.

    Examples:
        >>> tg.softmax(tg.tensor([0.0, 0.0, 10.0]))
        tensor([4.5396e-05, 4.5396e-05, 9.9991e-01])
    """
    return _along(_primitives.SOFTMAX, x, axis, unknown)


def log_softmax(x: ArrayLike, /, axis: Axis = -1, **unknown: Never) -> Tensor:
    """Return the logarithm of ``softmax``, without its underflow.

    Raises:
        DTypeError: If x is complex.

    Examples:
        >>> tg.log_softmax(tg.tensor([0.0, 0.0]))
        tensor([-0.6931, -0.6931])
    """
    return _along(_primitives.LOG_SOFTMAX, x, axis, unknown)


def logsumexp(
    x: ArrayLike, /, axis: Axis = None, keepdims: bool = False, **unknown: Never
) -> Tensor:
    """Return the logarithm of the sum of exponentials over some axes, or over all of them.

    The arguments are those of ``sum``.

    Raises:
        DTypeError: If x is complex.

    Examples:
        >>> tg.logsumexp(tg.tensor([1000.0, 1000.0]))
        tensor(1000.6932)
    """
    check_keepdims(keepdims, "logsumexp")
    return _along(_primitives.LOGSUMEXP, x, axis, unknown, keepdims=keepdims)


def _along(
    primitive: Primitive, x: ArrayLike, axis: Axis, unknown: Unknown, **options: Any
) -> Tensor:
    values = as_tensor(x, primitive.name, unknown)
    if values.dtype.kind == "c":
        raise DTypeError(
            f"expected real values in {primitive.name}, got {values.dtype}, among which none is "
            "the largest"
        )
    if values.dtype.kind != "f":
        values = values.to(np.float32)
    # A 0-d tensor counts as one element on one axis, as in PyTorch.
    axes = normalized_axes(axis, values.ndim, primitive.name) if values.ndim else ()
    return apply(primitive, values, axis=axes, **options)
