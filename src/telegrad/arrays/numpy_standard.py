"""Functions of the array API standard that NumPy has otherwise, or not at all."""

from typing import Any

import numpy as np

__all__ = ["OVERRIDES"]


def argsort(x: Any, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """NumPy sorts only upwards; equal values keep their order downwards too."""
    if not descending:
        return np.argsort(x, axis=axis, stable=stable)
    order = np.flip(np.argsort(np.flip(x, axis=axis), axis=axis, stable=True), axis=axis)
    return x.shape[axis] - 1 - order


def sort(x: Any, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """Equal values can't be told apart, so downwards is upwards read from behind."""
    result = np.sort(x, axis=axis, stable=stable)
    return np.flip(result, axis=axis) if descending else result


def expm1(x: Any) -> Any:
    """Complex infinities, NaNs and zeros as the standard has them: as ``exp(x) - 1``."""
    if x.dtype.kind != "c":
        return np.expm1(x)
    with np.errstate(all="ignore"):
        return np.where(np.isfinite(x), np.expm1(x) + 0.0, np.exp(x) - 1)


def floor_divide(x: Any, y: Any) -> Any:
    """Infinities as in ``floor(x / y)``, where NumPy has NaN or -1."""
    infinite = np.isinf(x) | np.isinf(y)
    if not infinite.any():
        return np.floor_divide(x, y)
    with np.errstate(all="ignore"):
        return np.where(infinite, np.floor(np.divide(x, y)), np.floor_divide(x, y))


def tanh(x: Any) -> Any:
    """At complex infinities the imaginary zero has the sign of the argument's imaginary part."""
    result = np.tanh(x)
    if result.dtype.kind != "c":
        return result
    ends = np.isinf(x.real) & np.isfinite(x.imag)
    if not ends.any():
        return result
    fixed = np.array(result)
    fixed.imag = np.where(ends, np.copysign(0.0, x.imag), result.imag)
    return fixed


OVERRIDES: dict[str, Any] = {
    "argsort": argsort,
    "expm1": expm1,
    "floor_divide": floor_divide,
    "sort": sort,
    "tanh": tanh,
}
