"""Activations and softmax as NumPy does them best."""

from typing import Any

import numpy as np

from telegrad.arrays.numpy.sums import total
from telegrad.arrays.plain.special import unordered

__all__ = [
    "log_softmax",
    "logsumexp",
    "relu",
    "sigmoid",
    "softmax",
    "softplus",
    "where_nonzero",
]


_ZERO: dict[Any, Any] = {np.dtype(name): np.zeros((), name) for name in ("float32", "float64")}
_BITS: dict[Any, Any] = {
    np.dtype(name): np.dtype(bits) for name, bits in (("float32", "int32"), ("float64", "int64"))
}


def relu(x: Any) -> Any:
    zero = _ZERO.get(x.dtype)
    if zero is None:
        if x.dtype.kind == "c":
            raise unordered("relu", x.dtype)
        zero = x.dtype.type(0)
    return np.maximum(x, zero)


def where_nonzero(x: Any, y: Any) -> Any:
    return only_where(x, np.not_equal(y, _ZERO.get(y.dtype, 0)))


def only_where(x: Any, mask: Any) -> Any:
    """``np.where(mask, x, 0)``: one or zero times the bits, in a tenth of the time on many."""
    bits = _BITS.get(x.dtype)
    if bits is None or not x.ndim:
        return np.where(mask, x, x.dtype.type(0))
    return (x.view(bits) * mask.astype(bits)).view(x.dtype)


def sigmoid(x: Any) -> Any:
    if x.dtype.kind == "c":
        left = x.real < 0
        small = np.exp(np.where(left, x, -x))
        return np.where(left, small, 1) / (small + 1)
    out = np.empty_like(x)
    np.negative(x, out=out)
    # An exponential beyond the largest number is infinite, and the result exactly 0.
    with np.errstate(over="ignore"):
        np.exp(out, out=out)
    out += 1
    return np.reciprocal(out, out=out)


def softplus(x: Any) -> Any:
    # NumPy's logaddexp computes the same, but takes forty times as long.
    zero = _ZERO.get(x.dtype)
    if zero is None:
        raise unordered("softplus", x.dtype)
    out = np.empty_like(x)
    np.abs(x, out=out)
    np.negative(out, out=out)
    np.exp(out, out=out)
    np.log1p(out, out=out)
    out += np.maximum(x, zero)
    return out


def _largest(x: Any, axis: Any) -> Any:
    return np.maximum.reduce(x, axis=axis, keepdims=True) if x.size else np.float32(0)


def softmax(x: Any, *, axis: Any) -> Any:
    out = np.empty_like(x)
    np.subtract(x, _largest(x, axis), out=out)
    np.exp(out, out=out)
    out /= total(out, axis=axis, keepdims=True)
    return out


def log_softmax(x: Any, *, axis: Any) -> Any:
    out = np.empty_like(x)
    np.subtract(x, _largest(x, axis), out=out)
    out -= np.log(total(np.exp(out), axis=axis, keepdims=True))
    return out


def logsumexp(x: Any, *, axis: tuple[int, ...], keepdims: bool = False) -> Any:
    shift = _largest(x, axis)
    if not np.isfinite(shift).all():
        shift = np.where(np.isfinite(shift), shift, np.zeros_like(shift))
    exponentials = total(np.exp(x - shift), axis=axis, keepdims=True)
    with np.errstate(divide="ignore"):
        # The sum over nothing, or over minus infinities alone, is zero, and its logarithm right.
        result = np.log(exponentials) + shift
    return result if keepdims else result.squeeze(axis=axis)
