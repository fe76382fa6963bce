"""Adding at an index as NumPy does it best."""

import math
from typing import Any

import numpy as np

__all__ = ["index_add"]


def index_add(x: Any, values: Any, *, index: Any) -> Any:
    out = x.copy()
    if _is_basic(index):
        out[index] += values
    else:
        _add_at(out, index, values)
    return out


_MANY = 512
"""From this many numbers on, indexing all axes as one pays off."""


def _add_at(out: Any, index: Any, values: Any) -> None:
    """``np.add.at`` in the same order; on one axis it is about five times as fast as on several."""
    parts = index if type(index) is tuple else (index,)
    count = len(parts)
    if all(type(part) is np.ndarray and part.dtype.kind in "iu" for part in parts):
        rest = math.prod(out.shape[count:])
        shape = np.broadcast_shapes(*(part.shape for part in parts))
        if rest * math.prod(shape) >= _MANY:
            lengths = out.shape[:count]
            # As int64, for n may be more than an index of few bits can hold.
            wide = [part.astype(np.int64, copy=False) for part in parts]
            counted = [np.where(part < 0, part + n, part) for part, n in zip(wide, lengths)]
            rows = np.ravel_multi_index(tuple(counted), lengths).reshape(-1, 1)
            places = (rows * rest + np.arange(rest)).reshape(-1)
            values = np.broadcast_to(values, (*shape, *out.shape[count:]))
            np.add.at(out.reshape(-1), places, values.reshape(-1))
            return
    np.add.at(out, index, values)


def _is_basic(index: Any) -> bool:
    """Say whether no place can be named twice: slices, integers, None and the ellipsis only."""
    parts = index if type(index) is tuple else (index,)
    return all(
        part is None or part is Ellipsis or isinstance(part, (slice, int, np.integer))
        for part in parts
    )
