"""Special functions, activations and softmax in plain form, for backends without their own.

Most are written with the standard's functions. The error and gamma functions can't be: they go
through SciPy, in host memory, for NumPy as well; a backend for a device brings its own.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from telegrad.errors import DTypeError

__all__ = [
    "digamma",
    "erf",
    "erfc",
    "lgamma",
    "log_softmax",
    "logsumexp",
    "ndtr",
    "polygamma",
    "relu",
    "sigmoid",
    "softmax",
    "softplus",
    "where_nonzero",
]


@functools.cache
def scipy_special() -> Any:
    """``scipy.special``, imported when first needed: that takes 0.2 s."""
    import scipy.special

    return scipy.special


def _of_scipy(name: str) -> Callable[[Any, Any], Any]:
    def call(xp: Any, x: Any) -> Any:
        return xp.asarray(getattr(scipy_special(), name)(np.asarray(x)))

    return call


erf, erfc, ndtr, digamma = map(_of_scipy, ("erf", "erfc", "ndtr", "digamma"))


def lgamma(xp: Any, x: Any) -> Any:
    """Return the logarithm of the absolute value of the gamma function."""
    x = np.asarray(x)
    found = scipy_special().gammaln(x)
    lowest = np.isneginf(x)
    # Beyond all poles it is inf, as in C; SciPy has the other sign.
    return xp.asarray(np.where(lowest, np.inf, found).astype(x.dtype) if lowest.any() else found)


def polygamma(xp: Any, n: int, x: Any) -> Any:
    """Return the n-th derivative of ``digamma``."""
    return xp.asarray(polygamma_from_zeta(scipy_special(), n, np.asarray(x)))


def polygamma_from_zeta(special: Any, n: int, x: Any) -> Any:
    """Return ``polygamma`` by a module with SciPy's special functions."""
    if n == 0:
        return special.digamma(x)
    if x.dtype.kind == "c":
        raise DTypeError(
            f"expected a real dtype in polygamma with n of 1 or more, also as the derivative of "
            f"digamma, got {x.dtype}; only digamma itself takes complex values"
        )
    sign = 1.0 if n % 2 else -1.0
    # SciPy's own polygamma computes digamma besides, and always in double precision.
    return special.zeta(x.dtype.type(n + 1), x) * x.dtype.type(sign * math.factorial(n))


def relu(xp: Any, x: Any) -> Any:
    """Return each element, or zero where it is negative."""
    dtype = xp.dtype_of(x)
    if dtype.kind == "c":
        raise unordered("relu", dtype)
    return xp.maximum(x, xp.zeros((), dtype=dtype))


def where_nonzero(xp: Any, x: Any, y: Any) -> Any:
    """Return the elements of x where y is not zero, else zero, also where x is infinite or NaN."""
    return xp.where(y == 0, xp.zeros((), dtype=xp.dtype_of(x)), x)


def unordered(name: str, dtype: Any) -> DTypeError:
    """Return what is wrong with complex numbers in a function that needs their order."""
    return DTypeError(f"expected real values in {name}, got {dtype}, which has no order")


def sigmoid(xp: Any, x: Any) -> Any:
    """Return ``1 / (1 + exp(-x))`` without overflow, and with all its digits where it is small."""
    left = (xp.real(x) if xp.dtype_of(x).kind == "c" else x) < 0
    small = xp.exp(xp.where(left, x, -x))
    return xp.where(left, small, xp.ones_like(small)) / (small + 1)


def softplus(xp: Any, x: Any) -> Any:
    """Return ``log(1 + exp(x))`` without overflow, and with all its digits where it is small."""
    dtype = xp.dtype_of(x)
    if dtype.kind == "c":
        raise unordered("softplus", dtype)
    return xp.maximum(x, xp.zeros((), dtype=dtype)) + xp.log1p(xp.exp(-xp.abs(x)))


def _largest(xp: Any, x: Any, axis: Any) -> Any:
    """Return the largest along some axes, which stay; zero where there is none."""
    if not math.prod(x.shape):
        return xp.sum(x, axis=axis, keepdims=True)
    return xp.max(x, axis=axis, keepdims=True)


def softmax(xp: Any, x: Any, *, axis: Any) -> Any:
    """Return exponentials divided by their sum along some axes."""
    powers = xp.exp(x - _largest(xp, x, axis))
    return powers / xp.sum(powers, axis=axis, keepdims=True)


def log_softmax(xp: Any, x: Any, *, axis: Any) -> Any:
    """Return the logarithm of ``softmax``, without its underflow."""
    shifted = x - _largest(xp, x, axis)
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=axis, keepdims=True))


def logsumexp(xp: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool = False) -> Any:
    """Return the logarithm of the sum of exponentials along some axes."""
    shift = _largest(xp, x, axis)
    # Shifting by an infinity would make NaN of it.
    shift = xp.where(xp.isfinite(shift), shift, xp.zeros_like(shift))
    result = xp.log(xp.sum(xp.exp(x - shift), axis=axis, keepdims=True)) + shift
    return result if keepdims else xp.squeeze(result, axis=axis)
