"""The extras as NumPy and SciPy do them best."""

import math
from typing import Any

import numpy as np

from telegrad.arrays import (
    numpy_attention,
    numpy_convolution,
    numpy_gelu,
    numpy_layer_norm,
    numpy_linalg,
    numpy_pooling,
    numpy_recurrence,
    numpy_rows,
    numpy_sliding,
    numpy_special,
)

__all__ = ["OVERRIDES"]


def index_add(x: Any, values: Any, *, index: Any) -> Any:
    out = x.copy()
    if _is_basic(index):
        out[index] += values
    else:
        _add_at(out, index, values)
    return out


_MANY = 512


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
    """Whether no place can be named twice: slices, integers, None and the ellipsis only."""
    parts = index if type(index) is tuple else (index,)
    return all(
        part is None or part is Ellipsis or isinstance(part, (slice, int, np.integer))
        for part in parts
    )


def total(x: Any, *, axis: Any = None, dtype: Any = None, keepdims: Any = False) -> Any:
    """``sum`` without NumPy's Python wrapper, which takes longer than the sum of a small array."""
    return np.add.reduce(x, axis=axis, dtype=dtype, keepdims=keepdims)


def mean(x: Any, *, axis: Any = None, keepdims: Any = False) -> Any:
    """The average, likewise."""
    result = np.add.reduce(x, axis=axis, keepdims=keepdims)
    size = x.size if axis is None else math.prod(x.shape[a] for a in _axes(axis))
    if not size:
        return np.mean(x, axis=axis, keepdims=keepdims)
    return result / x.dtype.type(size)


def _axes(axis: Any) -> tuple[int, ...]:
    return axis if isinstance(axis, tuple) else (axis,)


_SMALL = 1 << 14


def broadcast_to(x: Any, shape: Any) -> Any:
    """A small result is filled (NumPy's view takes 2.8 µs to make), a large one is a view."""
    if math.prod(shape) > _SMALL:
        return np.broadcast_to(x, shape)
    out = np.empty(shape, dtype=x.dtype)
    out[...] = x
    return out


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """Without NumPy's Python wrapper: every pass from a scalar begins with one."""
    out = np.empty(shape, dtype, device=device)
    out.fill(1)
    return out


def reshape(x: Any, shape: Any) -> Any:
    return x.reshape(shape) if type(x) is np.ndarray else np.reshape(x, shape)


def astype(x: Any, dtype: Any, /, *, copy: bool = True) -> Any:
    """Without NumPy's Python wrapper, which takes three times as long for a small array."""
    return x.astype(dtype, copy=copy)


def conj(x: Any) -> Any:
    """A real array itself: NumPy's ``conj`` copies it."""
    return np.conj(x) if x.dtype.kind == "c" else x


OVERRIDES: dict[str, Any] = {
    "astype": astype,
    "broadcast_to": broadcast_to,
    "conj": conj,
    "index_add": index_add,
    "mean": mean,
    "ones": ones,
    "reshape": reshape,
    "sum": total,
    **numpy_linalg.OVERRIDES,
    **numpy_special.OVERRIDES,
    **numpy_sliding.OVERRIDES,
    **numpy_convolution.OVERRIDES,
    **numpy_pooling.OVERRIDES,
    **numpy_recurrence.OVERRIDES,
    **numpy_gelu.OVERRIDES,
    **numpy_layer_norm.OVERRIDES,
    **numpy_rows.OVERRIDES,
    **numpy_attention.OVERRIDES,
}
