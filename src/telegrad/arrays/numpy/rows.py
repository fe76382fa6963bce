"""Sums over many rows of some hundred numbers, and a line added to such rows.

NumPy starts anew for each row. A sum is also a product with ones, for which BLAS takes a third to a
fifth of NumPy's time. On long rows NumPy is as quick, and rounds less.

A bias is repeated, so that several rows are added to at once: that takes a third less time for 512
rows of 512 numbers, and half as much for rows of 1024.
"""

import functools
import math
from typing import Any

import numpy as np

from telegrad.arrays.numpy.sums import total

__all__ = ["add_to_rows", "column_sums", "row_dots", "row_sums"]

_LONG = 4096
"""NumPy's own sum is taken for rows of more numbers."""
_AT_LEAST = 8192
"""How long a row of repeated biases is made; with half of that, nothing is gained."""


def row_sums(x: Any, axes: int = 1) -> Any:
    """Return the sums over the last `axes` axes, which stay, with length 1."""
    rows = _rows(x, axes)
    length = rows.shape[1]
    if length > _LONG:
        sums = rows.sum(axis=1)
    else:
        sums = np.dot(rows, _ones(length, x.dtype))
    return sums.reshape(x.shape[:-axes] + (1,) * axes)


def row_dots(x: Any, y: Any, axes: int = 1) -> Any:
    """Return the sums of real products over the last `axes` axes, which stay, with length 1."""
    dots = np.vecdot(_rows(x, axes), _rows(y, axes))
    return dots.reshape(x.shape[:-axes] + (1,) * axes)


def _rows(x: Any, axes: int) -> Any:
    return x.reshape(math.prod(x.shape[:-axes]), math.prod(x.shape[-axes:]))


def column_sums(x: Any) -> Any:
    """Return the sums over the first of two axes."""
    if len(x) > _LONG:
        return total(x, axis=0)
    return np.dot(_ones(len(x), x.dtype), x)


def add_to_rows(x: Any, line: Any) -> None:
    """Return ``x += line`` for a matrix, in place."""
    if x.size < 2 * _AT_LEAST:
        x += line
        return
    count, width = x.shape
    times = 1 << (_AT_LEAST // width).bit_length()
    if times == 1 or count % times or not x.flags.c_contiguous:
        x += line
        return
    repeated = np.empty((times, width), line.dtype)
    repeated[...] = line
    rows = x.reshape(count // times, times * width)
    rows += repeated.reshape(-1)


@functools.lru_cache(maxsize=32)
def _ones(length: int, dtype: Any) -> Any:
    """Kept, since making them takes as long as a small product."""
    ones = np.ones(length, dtype)
    ones.flags.writeable = False
    return ones
