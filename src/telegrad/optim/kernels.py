"""The passes over flat, contiguous real arrays, in place, that updates are made of.

NumPy's functions take CuPy's arrays too, and run on their device.

``add_scaled`` is BLAS's axpy, one pass where NumPy takes two, and ``scale`` is its scal, which
takes two thirds of NumPy's time; SciPy has both, and is loaded when first needed. Scratch memory is
kept by each thread, so that only the first step allocates any.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from telegrad.arrays.scratch import scratch as lent


@functools.cache
def _blas(routine: str, dtype: "np.dtype[Any]") -> Callable[..., Any] | None:
    """Return a routine of BLAS for a dtype; None if BLAS has none."""
    from scipy.linalg import blas

    letter = {"float32": "s", "float64": "d"}.get(dtype.name)
    return None if letter is None else getattr(blas, letter + routine)


def add_scaled(y: Any, x: Any, factor: float) -> None:
    """Do ``y += factor * x``."""
    dtype = y.dtype
    routine = _blas("axpy", dtype) if type(y) is np.ndarray else None
    if routine is not None and x.dtype == dtype and y.size:
        routine(x, y, a=factor)
    else:
        y += np.multiply(x, factor, dtype=y.dtype)


def scale(y: Any, factor: float) -> None:
    """Do ``y *= factor``."""
    routine = _blas("scal", y.dtype) if type(y) is np.ndarray else None
    if routine is not None and y.size:
        routine(factor, y)
    else:
        np.multiply(y, factor, out=y)


def remembered(state: dict[str, Any], name: str, like: Any) -> Any:
    """Return an entry of a parameter's state; zeros if an option that needs it was just set."""
    kept = state.get(name)
    if kept is None:
        kept = state[name] = np.zeros_like(like)
    return kept


def scratch(like: Any, which: str = "step") -> Any:
    """Return memory of the size and dtype of `like`, valid until the thread asks again."""
    if type(like) is not np.ndarray:
        return np.empty_like(like)
    return lent(which, like.size, like.dtype)


def flat(array: Any) -> Any:
    """Return all numbers of an array on one axis, complex ones as two; a view if contiguous."""
    line = array.ravel()
    return line.view(line.real.dtype) if line.dtype.kind == "c" else line
