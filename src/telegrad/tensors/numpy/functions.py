"""NumPy's functions that are not elementwise, with NumPy's arguments, by telegrad's functions.

Each entry takes the namespace and the arguments that it can serve, by NumPy's names and in NumPy's
order; any other, such as ``out=`` or ``order=``, is refused by name.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from telegrad.errors import ShapeError
from telegrad.tensors.numpy.linalg import FFT, LINALG


def _reduction(name: str) -> Callable[..., Any]:
    def reduce(xp: Any, a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        return getattr(xp, name)(a, axis=axis, keepdims=keepdims)

    return reduce


def _total(name: str) -> Callable[..., Any]:
    def total(
        xp: Any, a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False
    ) -> Any:
        return getattr(xp, name)(a, axis=axis, dtype=dtype, keepdims=keepdims)

    return total


def _spread(name: str) -> Callable[..., Any]:
    def spread(
        xp: Any,
        a: Any,
        axis: Any = None,
        *,
        ddof: float = 0,
        correction: float = 0,
        keepdims: bool = False,
    ) -> Any:
        return getattr(xp, name)(a, axis=axis, correction=correction or ddof, keepdims=keepdims)

    return spread


def _running(name: str) -> Callable[..., Any]:
    def running(xp: Any, a: Any, axis: int | None = None, dtype: Any = None) -> Any:
        values = xp.reshape(a, (-1,)) if axis is None else a
        return getattr(xp, name)(values, axis=axis or 0, dtype=dtype)

    return running


def _axes(axis: Any) -> Any:
    """Return axes as a tuple: some of NumPy's functions take lists, too."""
    return tuple(axis) if isinstance(axis, list) else axis


def _expand_dims(xp: Any, a: Any, axis: Any) -> Any:
    axes = _axes(axis) if isinstance(axis, (tuple, list)) else (axis,)
    ndim = a.ndim + len(axes)
    for each in sorted(normalize_axis_tuple(axes, ndim)):
        a = xp.expand_dims(a, axis=each)
    return a


def _transpose(xp: Any, a: Any, axes: Any = None) -> Any:
    order = tuple(reversed(range(a.ndim))) if axes is None else tuple(axes)
    return xp.permute_dims(a, order)


def _reshape(xp: Any, a: Any, /, shape: Any) -> Any:
    return xp.reshape(a, (shape,) if isinstance(shape, int) else tuple(shape))


def _array(xp: Any, x: Any) -> Any:
    """Return a Tensor of `x`; its numbers have NumPy's dtype, not float32: no digit is lost."""
    made = xp.asarray(x)
    if made is x or isinstance(x, np.ndarray) or made.requires_grad or made.is_dual:
        return made
    return xp.asarray(np.asarray(x))


def _concatenate(xp: Any, arrays: Any, axis: int | None = 0) -> Any:
    return xp.concat(tuple(_array(xp, each) for each in arrays), axis=axis)


def _atleast(ndim: int) -> Callable[..., Any]:
    def atleast(xp: Any, *arys: Any) -> Any:
        made = [_array(xp, a) for a in arys]
        made = [xp.reshape(a, (*(1,) * (ndim - a.ndim), *a.shape)) for a in made]
        return made[0] if len(made) == 1 else tuple(made)

    return atleast


def _hstack(xp: Any, tup: Any) -> Any:
    parts = [_atleast(1)(xp, a) for a in tup]
    return _concatenate(xp, parts, axis=0 if parts[0].ndim == 1 else 1)


def _split(xp: Any, ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    length = ary.shape[axis]
    if np.ndim(indices_or_sections) == 0:
        sections = indices_or_sections
        if sections < 1 or length % sections:
            raise ShapeError(
                f"expected a number above 0 that divides {length} in np.split, got {sections}"
            )
        cuts = [length // sections * i for i in range(1, sections)]
    else:
        cuts = list(indices_or_sections)
    before = (slice(None),) * (axis % ary.ndim)
    return [ary[(*before, slice(a, b))] for a, b in zip([0, *cuts], [*cuts, length])]


def _take(xp: Any, a: Any, indices: Any, axis: int | None = None) -> Any:
    values = xp.reshape(a, (-1,)) if axis is None else a
    index = (slice(None),) * ((axis or 0) % values.ndim)
    return values[(*index, indices if isinstance(indices, int) else np.asarray(indices))]


def _take_along_axis(xp: Any, arr: Any, indices: Any, axis: int | None = -1) -> Any:
    values = xp.reshape(arr, (-1,)) if axis is None else arr
    return xp.take_along_axis(values, indices, axis=axis or 0)


def _clip(
    xp: Any, a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None
) -> Any:
    low, high = (min if a_min is None else a_min), (max if a_max is None else a_max)
    return xp.clip(a, low, high)


def _ordering(name: str) -> Callable[..., Any]:
    def order(xp: Any, a: Any, axis: int | None = -1, *, stable: bool = True) -> Any:
        values = xp.reshape(a, (-1,)) if axis is None else a
        at = -1 if axis is None else axis
        return getattr(xp, name)(values, axis=at, stable=stable)

    return order


def _round(xp: Any, a: Any, decimals: int = 0) -> Any:
    scale = 10.0**decimals
    return xp.round(a * scale) / scale if decimals else xp.round(a)


def _diff(
    xp: Any, a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None
) -> Any:
    ends = [_array(xp, end) if isinstance(end, (list, tuple)) else end for end in (prepend, append)]
    return xp.diff(a, axis=axis, n=n, prepend=ends[0], append=ends[1])


def _isclose(
    xp: Any, a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    found = np.isclose(_values(a), _values(b), rtol=rtol, atol=atol, equal_nan=equal_nan)
    return xp.asarray(found)


def _allclose(
    xp: Any, a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    return bool(np.allclose(_values(a), _values(b), rtol=rtol, atol=atol, equal_nan=equal_nan))


def _array_equal(xp: Any, a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    return bool(np.array_equal(_values(a1), _values(a2), equal_nan=equal_nan))


def _values(x: Any) -> Any:
    """Return the numbers to compare: a truth value has no graph."""
    return x.detach().numpy() if hasattr(x, "detach") else x


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    # Many values to fewer
    np.all: _reduction("all"),
    np.amax: _reduction("max"),
    np.amin: _reduction("min"),
    np.any: _reduction("any"),
    np.argmax: _reduction("argmax"),
    np.argmin: _reduction("argmin"),
    np.count_nonzero: _reduction("count_nonzero"),
    np.cumprod: _running("cumulative_prod"),
    np.cumsum: _running("cumulative_sum"),
    np.max: _reduction("max"),
    np.mean: _reduction("mean"),
    np.min: _reduction("min"),
    np.prod: _total("prod"),
    np.std: _spread("std"),
    np.sum: _total("sum"),
    np.var: _spread("var"),
    # The same values in another shape or order
    np.astype: lambda xp, x, dtype, /: x.to(dtype),
    np.atleast_1d: _atleast(1),
    np.atleast_2d: _atleast(2),
    np.broadcast_arrays: lambda xp, *args: xp.broadcast_arrays(*args),
    np.broadcast_to: lambda xp, array, shape: xp.broadcast_to(array, shape),
    np.concatenate: _concatenate,
    np.copy: lambda xp, a: xp.clone(a),
    np.expand_dims: _expand_dims,
    np.flip: lambda xp, m, axis=None: xp.flip(m, axis=axis),
    np.fliplr: lambda xp, m: xp.flip(m, axis=1),
    np.flipud: lambda xp, m: xp.flip(m, axis=0),
    np.hstack: _hstack,
    np.matrix_transpose: lambda xp, x, /: x.mT,
    np.moveaxis: lambda xp, a, source, destination: xp.moveaxis(
        a, _axes(source), _axes(destination)
    ),
    np.ravel: lambda xp, a: xp.reshape(a, (-1,)),
    np.repeat: lambda xp, a, repeats, axis=None: xp.repeat(a, repeats, axis=axis),
    np.reshape: _reshape,
    np.roll: lambda xp, a, shift, axis=None: xp.roll(a, _axes(shift), axis=_axes(axis)),
    np.split: _split,
    np.squeeze: lambda xp, a, axis=None: xp.squeeze(a, axis=axis),
    np.stack: lambda xp, arrays, axis=0: xp.stack(
        tuple(_array(xp, each) for each in arrays), axis=axis
    ),
    np.swapaxes: lambda xp, a, axis1, axis2: a.transpose(axis1, axis2),
    np.tile: lambda xp, A, reps: xp.tile(A, (reps,) if isinstance(reps, int) else reps),
    np.transpose: _transpose,
    np.tril: lambda xp, m, k=0: xp.tril(m, k=k),
    np.triu: lambda xp, m, k=0: xp.triu(m, k=k),
    np.unstack: lambda xp, x, /, *, axis=0: xp.unstack(x, axis=axis),
    np.vstack: lambda xp, tup: _concatenate(xp, [_atleast(2)(xp, a) for a in tup], axis=0),
    # Choosing, finding and filling
    np.argsort: _ordering("argsort"),
    np.clip: _clip,
    np.diff: _diff,
    np.empty_like: lambda xp, prototype, dtype=None: xp.empty_like(prototype, dtype=dtype),
    np.full_like: lambda xp, a, fill_value, dtype=None: xp.full_like(a, fill_value, dtype=dtype),
    np.nonzero: lambda xp, a: xp.nonzero(a),
    np.ones_like: lambda xp, a, dtype=None: xp.ones_like(a, dtype=dtype),
    np.pad: lambda xp, array, pad_width, mode="constant", *, constant_values=0: xp.pad(
        array, pad_width, mode=mode, constant_values=constant_values
    ),
    np.searchsorted: lambda xp, a, v, side="left": xp.searchsorted(
        xp.asarray(a), xp.asarray(v), side=side
    ),
    np.sort: _ordering("sort"),
    np.take: _take,
    np.take_along_axis: _take_along_axis,
    np.where: lambda xp, condition, x, y, /: xp.where(condition, x, y),
    np.zeros_like: lambda xp, a, dtype=None: xp.zeros_like(a, dtype=dtype),
    # Parts and rounding
    np.around: _round,
    np.imag: lambda xp, val: xp.imag(val),
    np.real: lambda xp, val: xp.real(val),
    np.round: _round,
    # Questions, answered by plain Python values
    np.allclose: _allclose,
    np.array_equal: _array_equal,
    np.isclose: _isclose,
    np.iscomplexobj: lambda xp, x: x.dtype.kind == "c",
    np.isrealobj: lambda xp, x: x.dtype.kind != "c",
    np.ndim: lambda xp, a: a.ndim,
    np.result_type: lambda xp, *arrays_and_dtypes: xp.result_type(*arrays_and_dtypes),
    np.shape: lambda xp, a: a.shape,
    np.size: lambda xp, a, axis=None: a.size if axis is None else a.shape[axis],
    **LINALG,
    **FFT,
}
