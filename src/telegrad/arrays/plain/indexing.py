"""Taking parts of an array, and putting parts into a copy of one, in plain form."""

from typing import Any

import numpy as np

__all__ = ["getitem", "index_add", "index_set"]


def getitem(xp: Any, x: Any, *, index: Any) -> Any:
    """Return ``x[index]``."""
    return x[_complete(xp, index)]


def _complete(xp: Any, index: Any) -> Any:
    """Complete an index for the standard: arrays of the backend, every axis accounted for."""
    parts = index if isinstance(index, tuple) else (index,)
    if any(isinstance(part, np.ndarray) for part in parts):
        parts = tuple(xp.asarray(part) if isinstance(part, np.ndarray) else part for part in parts)
    elif all(part is None or isinstance(part, (int, slice)) for part in parts):
        parts = (*parts, Ellipsis)
    return parts[0] if len(parts) == 1 else parts


def index_add(xp: Any, x: Any, values: Any, *, index: Any) -> Any:
    """Return a copy of x with `values` added at ``index``; a place named twice receives both."""
    parts = index if isinstance(index, tuple) else (index,)
    places = tuple(np.asarray(part) if hasattr(part, "shape") else part for part in parts)
    out = np.array(np.asarray(x))
    np.add.at(out, places, np.asarray(values))
    return xp.asarray(out)


def index_set(xp: Any, x: Any, values: Any, *, index: Any) -> Any:
    """Return a copy of x with `values` at ``index``."""
    out = xp.asarray(x, copy=True)
    out[_complete(xp, index)] = values
    return out
