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


OVERRIDES: dict[str, Any] = {"argsort": argsort, "sort": sort}
