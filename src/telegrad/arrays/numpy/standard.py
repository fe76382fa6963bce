"""Functions of the standard that NumPy lacks, or has with other results, or slower."""

import math
from typing import Any

import numpy as np

from telegrad.arrays.numpy.sums import total
from telegrad.arrays.plain.special import scipy_special

__all__ = [
    "argsort",
    "astype",
    "broadcast_to",
    "conj",
    "cumulative_sum",
    "expm1",
    "floor_divide",
    "log1p",
    "mean",
    "ones",
    "reciprocal",
    "reshape",
    "sort",
    "std",
    "sum",
    "tanh",
    "var",
]


def argsort(x: Any, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """Sort either way, where NumPy only sorts upwards; equal values keep their order."""
    if not descending:
        return np.argsort(x, axis=axis, stable=stable)
    order = np.flip(np.argsort(np.flip(x, axis=axis), axis=axis, stable=True), axis=axis)
    return x.shape[axis] - 1 - order


def sort(x: Any, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """Sort either way: equal values can't be told apart, so downwards is upwards reversed."""
    result = np.sort(x, axis=axis, stable=stable)
    return np.flip(result, axis=axis) if descending else result


def expm1(x: Any) -> Any:
    """Give complex infinities, NaNs and zeros as the standard does: as ``exp(x) - 1``."""
    if x.dtype.kind != "c":
        return np.expm1(x)
    with np.errstate(all="ignore"):
        return np.where(np.isfinite(x), np.expm1(x) + 0.0, np.exp(x) - 1)


def log1p(x: Any) -> Any:
    """Give a complex result all digits of its real part: NumPy's adds the 1 before anything."""
    result = np.log1p(x)
    if result.dtype.kind != "c":
        return result
    fixed = np.array(result)
    exact = np.isfinite(x) & (x != -1)
    fixed.real = np.where(exact, scipy_special().log1p(x).real, result.real)
    return fixed


def reciprocal(x: Any) -> Any:
    """Give infinity at a complex 0, as ``1 / x`` does; NumPy's gives NaN in both parts."""
    return np.divide(x.dtype.type(1), x) if x.dtype.kind == "c" else np.reciprocal(x)


def floor_divide(x: Any, y: Any) -> Any:
    """Give infinities as in ``floor(x / y)``, where NumPy has NaN or -1."""
    infinite = np.isinf(x) | np.isinf(y)
    if not infinite.any():
        return np.floor_divide(x, y)
    with np.errstate(all="ignore"):
        return np.where(infinite, np.floor(np.divide(x, y)), np.floor_divide(x, y))


def tanh(x: Any) -> Any:
    """Give the imaginary zero at complex infinities the sign of the imaginary argument."""
    result = np.tanh(x)
    if result.dtype.kind != "c":
        return result
    ends = np.isinf(x.real) & np.isfinite(x.imag)
    if not ends.any():
        return result
    fixed = np.array(result)
    fixed.imag = np.where(ends, np.copysign(0.0, x.imag), result.imag)
    return fixed


sum = total  # NumPy's Python wrapper takes longer than the sum of a small array.


def cumulative_sum(
    x: Any, *, axis: Any = None, dtype: Any = None, include_initial: bool = False
) -> Any:
    """Return running sums; NumPy adds one by one, so long ones are made in double precision."""
    if dtype is None and x.dtype.char in "fF" and _count(x, axis) >= _LONG:
        wide = np.result_type(x.dtype, np.float64)
        sums = np.cumulative_sum(x, axis=axis, dtype=wide, include_initial=include_initial)
        return sums.astype(x.dtype)
    return np.cumulative_sum(x, axis=axis, dtype=dtype, include_initial=include_initial)


def mean(x: Any, *, axis: Any = None, keepdims: Any = False) -> Any:
    """Return the average, also without the wrapper."""
    result = total(x, axis=axis, keepdims=keepdims)
    size = _count(x, axis)
    if not size:
        return np.mean(x, axis=axis, keepdims=keepdims)
    return result / x.dtype.type(size)


def var(x: Any, *, axis: Any = None, correction: float = 0.0, keepdims: Any = False) -> Any:
    """Return the variance, also without the wrapper."""
    degrees = _count(x, axis) - correction
    if degrees <= 0:
        return np.var(x, axis=axis, correction=correction, keepdims=keepdims)
    distances = x - mean(x, axis=axis, keepdims=True)
    squares = (distances * distances.conj()).real if x.dtype.kind == "c" else distances**2
    return total(squares, axis=axis, keepdims=keepdims) / squares.dtype.type(degrees)


def std(x: Any, *, axis: Any = None, correction: float = 0.0, keepdims: Any = False) -> Any:
    return np.sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims))


def _count(x: Any, axis: Any) -> int:
    """Return how many elements a reduction along these axes makes one of."""
    axes = axis if isinstance(axis, tuple) else (axis,)
    return x.size if axis is None else math.prod(x.shape[a] for a in axes)


_SMALL = 1 << 14
"""Elements up to which a result is filled."""
_LONG = 256
"""From this length on, the digits that a running sum loses begin to show."""


def broadcast_to(x: Any, shape: Any) -> Any:
    """Fill a small result (NumPy's view takes 2.8 µs to make); a large one is a view."""
    if math.prod(shape) > _SMALL:
        return np.broadcast_to(x, shape)
    out = np.empty(shape, dtype=x.dtype)
    out[...] = x
    return out


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """Go without NumPy's Python wrapper: every pass from a scalar begins with one."""
    out = np.empty(shape, dtype, device=device)
    out.fill(1)
    return out


def reshape(x: Any, shape: Any) -> Any:
    return x.reshape(shape) if type(x) is np.ndarray else np.reshape(x, shape)


def astype(x: Any, dtype: Any, /, *, copy: bool = True) -> Any:
    """Go without NumPy's Python wrapper, which takes thrice as long for a small array."""
    return x.astype(dtype, copy=copy)


def conj(x: Any) -> Any:
    """Return a real array itself: NumPy's ``conj`` copies it."""
    return np.conj(x) if x.dtype.kind == "c" else x
