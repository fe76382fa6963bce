"""Sums of many float32 numbers that keep their digits.

NumPy adds in pairs only along the axis whose elements lie next to each other in memory. Along any
other it adds row after row: a million equal rows, as the gradient of a bias may have, give a sum
that is off by a hundredth. Here such an axis is cut into blocks, whose sums are added.
"""

from typing import Any

import numpy as np

_MANY = 1 << 13
"""With fewer numbers, NumPy's own sum is taken."""
_BLOCK = 32
"""How many rows are added one after the other: few roundings, and little to store."""
_LONG = 256
"""From this many rows on, they are added in blocks."""
_COARSE = (np.dtype("float32"), np.dtype("complex64"))


def total(x: Any, *, axis: Any = None, dtype: Any = None, keepdims: Any = False) -> Any:
    """Return ``np.add.reduce``, in blocks where it would add many rows one after the other."""
    if x.size >= _MANY and (x.dtype if dtype is None else dtype) in _COARSE:
        along = _row_after_row(x, axis)
        if along is not None:
            x = _shortened(x, along, dtype)
    return np.add.reduce(x, axis=axis, dtype=dtype, keepdims=keepdims)


def _shortened(x: Any, along: int, dtype: Any) -> Any:
    """Return fewer rows with the same sum: of blocks, then of blocks of those, and so on."""
    while (rows := x.shape[along]) >= 2 * _BLOCK:
        head, rest = np.split(x, [rows - rows % _BLOCK], axis=along)
        cut = (*x.shape[:along], rows // _BLOCK, _BLOCK, *x.shape[along + 1 :])
        sums = head.reshape(cut).sum(axis=along + 1, dtype=dtype)
        x = np.concatenate([sums, rest], axis=along) if rest.size else sums
    return x


def _row_after_row(x: Any, axis: Any) -> int | None:
    """Return the longest axis to sum over, if it is long and NumPy goes along it by whole rows."""
    if axis is None:
        return None
    axes = [a % x.ndim for a in (axis if isinstance(axis, tuple) else (axis,))]
    if not 0 < len(axes) < x.ndim:
        return None
    longest = max(axes, key=x.shape.__getitem__)
    if x.shape[longest] < _LONG:
        return None
    wide = [a for a in range(x.ndim) if x.shape[a] > 1]
    # NumPy leaves the order of the axes where one of them is the same element over and over.
    if all(x.strides[a] for a in wide):
        wide.sort(key=lambda a: -abs(x.strides[a]))
    return None if wide[-1] == longest else longest
