"""The elements of a raw array in host memory, where they can be printed and read."""

from typing import Any

import numpy as np

from telegrad.arrays.cupy import is_cupy


def in_host_memory(array: Any) -> np.ndarray[Any, Any]:
    """Return the elements as a NumPy array: the same memory where NumPy can see it, else a copy."""
    if type(array) is np.ndarray:
        return array
    return array.get() if is_cupy(array) else np.asarray(array)


def for_numpy(array: Any) -> Any:
    """Return an array that NumPy's functions take; they take CuPy's, and compute on the device."""
    return array if is_cupy(array) else np.asarray(array)
