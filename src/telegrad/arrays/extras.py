"""What a backend has beyond the standard: each kernel in plain form, over the standard alone.

Every function takes the backend first. ``NAMES`` lists them; each is a differentiable row too, so
rules may use them at any order.
"""

from typing import Any

import numpy as np

from telegrad.arrays.contraction import einsum
from telegrad.arrays.convolution import convolve, convolve_input, convolve_weight
from telegrad.arrays.matrices import (
    cofactor,
    diagonal_matrix,
    expm,
    matrix_product,
    solve_triangular,
)
from telegrad.arrays.pooling import pool_max, pool_put, pool_spread, pool_sum, pool_take
from telegrad.arrays.sliding import overlap_add, pad, windows
from telegrad.arrays.special import (
    digamma,
    erf,
    erfc,
    lgamma,
    log_softmax,
    logsumexp,
    ndtr,
    polygamma,
    relu,
    sigmoid,
    softmax,
    softplus,
    where_nonzero,
)

__all__ = [
    "NAMES",
    "cofactor",
    "convolve",
    "convolve_input",
    "convolve_weight",
    "diagonal_matrix",
    "digamma",
    "einsum",
    "erf",
    "erfc",
    "expm",
    "getitem",
    "index_add",
    "index_set",
    "lgamma",
    "log_softmax",
    "logsumexp",
    "matrix_product",
    "ndtr",
    "overlap_add",
    "pad",
    "polygamma",
    "pool_max",
    "pool_put",
    "pool_spread",
    "pool_sum",
    "pool_take",
    "relu",
    "sigmoid",
    "softmax",
    "softplus",
    "solve_triangular",
    "where_nonzero",
    "windows",
]

NAMES = tuple(name for name in __all__ if name != "NAMES")


def getitem(xp: Any, x: Any, *, index: Any) -> Any:
    """``x[index]``."""
    return x[_complete(xp, index)]


def _complete(xp: Any, index: Any) -> Any:
    """An index as the standard wants it: arrays of the backend, and every axis accounted for."""
    parts = index if isinstance(index, tuple) else (index,)
    if any(isinstance(part, np.ndarray) for part in parts):
        parts = tuple(xp.asarray(part) if isinstance(part, np.ndarray) else part for part in parts)
    elif all(part is None or isinstance(part, (int, slice)) for part in parts):
        parts = (*parts, Ellipsis)
    return parts[0] if len(parts) == 1 else parts


def index_add(xp: Any, x: Any, values: Any, *, index: Any) -> Any:
    """A copy of x with `values` added at ``index``; a place named twice receives both."""
    parts = index if isinstance(index, tuple) else (index,)
    places = tuple(np.asarray(part) if hasattr(part, "shape") else part for part in parts)
    out = np.array(np.asarray(x))
    np.add.at(out, places, np.asarray(values))
    return xp.asarray(out)


def index_set(xp: Any, x: Any, values: Any, *, index: Any) -> Any:
    """A copy of x with `values` at ``index``."""
    out = xp.asarray(x, copy=True)
    out[_complete(xp, index)] = values
    return out
