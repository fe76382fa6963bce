"""NumPy's other functions, with NumPy's arguments, over the functions of telegrad.

Each entry takes the arguments that it can serve, by NumPy's names and in NumPy's order; any other,
such as ``out=`` or ``order=``, is refused by name.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from telegrad.errors import ShapeError
from telegrad.tensors.late_bound import late_bound
from telegrad.tensors.numpy.linalg import FFT, LINALG


def _reduction(name: str) -> Callable[..., Any]:
    def reduce(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        return getattr(late_bound.namespace, name)(a, axis=axis, keepdims=keepdims)

    return reduce


def _total(name: str) -> Callable[..., Any]:
    def total(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
        return getattr(late_bound.namespace, name)(a, axis=axis, dtype=dtype, keepdims=keepdims)

    return total


def _spread(name: str) -> Callable[..., Any]:
    def spread(
        a: Any, axis: Any = None, *, ddof: float = 0, correction: float = 0, keepdims: bool = False
    ) -> Any:
        function = getattr(late_bound.namespace, name)
        return function(a, axis=axis, correction=correction or ddof, keepdims=keepdims)

    return spread


def _running(name: str) -> Callable[..., Any]:
    def running(a: Any, axis: int | None = None, dtype: Any = None) -> Any:
        values = late_bound.namespace.reshape(a, (-1,)) if axis is None else a
        return getattr(late_bound.namespace, name)(values, axis=axis or 0, dtype=dtype)

    return running


def _axes(axis: Any) -> Any:
    """Return axes as a tuple: some functions of NumPy's take lists, too."""
    return tuple(axis) if isinstance(axis, list) else axis


def _expand_dims(a: Any, axis: Any) -> Any:
    axes = _axes(axis) if isinstance(axis, (tuple, list)) else (axis,)
    ndim = a.ndim + len(axes)
    for each in sorted(normalize_axis_tuple(axes, ndim)):
        a = late_bound.namespace.expand_dims(a, axis=each)
    return a


def _transpose(a: Any, axes: Any = None) -> Any:
    order = tuple(reversed(range(a.ndim))) if axes is None else tuple(axes)
    return late_bound.namespace.permute_dims(a, order)


def _reshape(a: Any, /, shape: Any) -> Any:
    return late_bound.namespace.reshape(a, (shape,) if isinstance(shape, int) else tuple(shape))


def _array(x: Any) -> Any:
    """Return a Tensor of `x`; its numbers have NumPy's dtype, not float32: no digit is lost."""
    made = late_bound.namespace.asarray(x)
    if made is x or isinstance(x, np.ndarray) or made.requires_grad or made.is_dual:
        return made
    return late_bound.namespace.asarray(np.asarray(x))


def _concatenate(arrays: Any, axis: int | None = 0) -> Any:
    return late_bound.namespace.concat(tuple(map(_array, arrays)), axis=axis)


def _atleast(ndim: int) -> Callable[..., Any]:
    def atleast(*arys: Any) -> Any:
        xp = late_bound.namespace
        made = [_array(a) for a in arys]
        made = [xp.reshape(a, (*(1,) * (ndim - a.ndim), *a.shape)) for a in made]
        return made[0] if len(made) == 1 else tuple(made)

    return atleast


def _hstack(tup: Any) -> Any:
    parts = [_atleast(1)(a) for a in tup]
    return _concatenate(parts, axis=0 if parts[0].ndim == 1 else 1)


def _split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
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


def _take(a: Any, indices: Any, axis: int | None = None) -> Any:
    xp = late_bound.namespace
    values = xp.reshape(a, (-1,)) if axis is None else a
    index = (slice(None),) * ((axis or 0) % values.ndim)
    return values[(*index, indices if isinstance(indices, int) else np.asarray(indices))]


def _take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Any:
    values = late_bound.namespace.reshape(arr, (-1,)) if axis is None else arr
    return late_bound.namespace.take_along_axis(values, indices, axis=axis or 0)


def _clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    low, high = (min if a_min is None else a_min), (max if a_max is None else a_max)
    return late_bound.namespace.clip(a, low, high)


def _ordering(name: str) -> Callable[..., Any]:
    def order(a: Any, axis: int | None = -1, *, stable: bool = True) -> Any:
        values = late_bound.namespace.reshape(a, (-1,)) if axis is None else a
        at = -1 if axis is None else axis
        return getattr(late_bound.namespace, name)(values, axis=at, stable=stable)

    return order


def _round(a: Any, decimals: int = 0) -> Any:
    scale = 10.0**decimals
    return (
        late_bound.namespace.round(a * scale) / scale if decimals else late_bound.namespace.round(a)
    )


def _diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    ends = [_array(end) if isinstance(end, (list, tuple)) else end for end in (prepend, append)]
    return late_bound.namespace.diff(a, axis=axis, n=n, prepend=ends[0], append=ends[1])


def _isclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    found = np.isclose(_values(a), _values(b), rtol=rtol, atol=atol, equal_nan=equal_nan)
    return late_bound.namespace.asarray(found)


def _allclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    return bool(np.allclose(_values(a), _values(b), rtol=rtol, atol=atol, equal_nan=equal_nan))


def _array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    return bool(np.array_equal(_values(a1), _values(a2), equal_nan=equal_nan))


def _values(x: Any) -> Any:
    """Return what a comparison reads: its result is a truth value, which has no graph."""
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
    np.astype: lambda x, dtype, /: x.to(dtype),
    np.atleast_1d: _atleast(1),
    np.atleast_2d: _atleast(2),
    np.broadcast_arrays: lambda *args: late_bound.namespace.broadcast_arrays(*args),
    np.broadcast_to: lambda array, shape: late_bound.namespace.broadcast_to(array, shape),
    np.concatenate: _concatenate,
    np.copy: lambda a: late_bound.namespace.clone(a),
    np.expand_dims: _expand_dims,
    np.flip: lambda m, axis=None: late_bound.namespace.flip(m, axis=axis),
    np.fliplr: lambda m: late_bound.namespace.flip(m, axis=1),
    np.flipud: lambda m: late_bound.namespace.flip(m, axis=0),
    np.hstack: _hstack,
    np.matrix_transpose: lambda x, /: x.mT,
    np.moveaxis: lambda a, source, destination: late_bound.namespace.moveaxis(
        a, _axes(source), _axes(destination)
    ),
    np.ravel: lambda a: late_bound.namespace.reshape(a, (-1,)),
    np.repeat: lambda a, repeats, axis=None: late_bound.namespace.repeat(a, repeats, axis=axis),
    np.reshape: _reshape,
    np.roll: lambda a, shift, axis=None: late_bound.namespace.roll(
        a, _axes(shift), axis=_axes(axis)
    ),
    np.split: _split,
    np.squeeze: lambda a, axis=None: late_bound.namespace.squeeze(a, axis=axis),
    np.stack: lambda arrays, axis=0: late_bound.namespace.stack(
        tuple(map(_array, arrays)), axis=axis
    ),
    np.swapaxes: lambda a, axis1, axis2: a.transpose(axis1, axis2),
    np.tile: lambda A, reps: late_bound.namespace.tile(
        A, (reps,) if isinstance(reps, int) else reps
    ),
    np.transpose: _transpose,
    np.tril: lambda m, k=0: late_bound.namespace.tril(m, k=k),
    np.triu: lambda m, k=0: late_bound.namespace.triu(m, k=k),
    np.unstack: lambda x, /, *, axis=0: late_bound.namespace.unstack(x, axis=axis),
    np.vstack: lambda tup: _concatenate([_atleast(2)(a) for a in tup], axis=0),
    # Choosing, finding and filling
    np.argsort: _ordering("argsort"),
    np.clip: _clip,
    np.diff: _diff,
    np.empty_like: lambda prototype, dtype=None: late_bound.namespace.empty_like(
        prototype, dtype=dtype
    ),
    np.full_like: lambda a, fill_value, dtype=None: late_bound.namespace.full_like(
        a, fill_value, dtype=dtype
    ),
    np.nonzero: lambda a: late_bound.namespace.nonzero(a),
    np.ones_like: lambda a, dtype=None: late_bound.namespace.ones_like(a, dtype=dtype),
    np.pad: lambda array, pad_width, mode="constant", *, constant_values=0: (
        late_bound.namespace.pad(array, pad_width, mode=mode, constant_values=constant_values)
    ),
    np.searchsorted: lambda a, v, side="left": late_bound.namespace.searchsorted(
        late_bound.namespace.asarray(a), late_bound.namespace.asarray(v), side=side
    ),
    np.sort: _ordering("sort"),
    np.take: _take,
    np.take_along_axis: _take_along_axis,
    np.where: lambda condition, x, y, /: late_bound.namespace.where(condition, x, y),
    np.zeros_like: lambda a, dtype=None: late_bound.namespace.zeros_like(a, dtype=dtype),
    # Parts and rounding
    np.around: _round,
    np.imag: lambda val: late_bound.namespace.imag(val),
    np.real: lambda val: late_bound.namespace.real(val),
    np.round: _round,
    # Questions, answered by plain Python values
    np.allclose: _allclose,
    np.array_equal: _array_equal,
    np.isclose: _isclose,
    np.iscomplexobj: lambda x: x.dtype.kind == "c",
    np.isrealobj: lambda x: x.dtype.kind != "c",
    np.ndim: lambda a: a.ndim,
    np.result_type: lambda *arrays_and_dtypes: late_bound.namespace.result_type(*arrays_and_dtypes),
    np.shape: lambda a: a.shape,
    np.size: lambda a, axis=None: a.size if axis is None else a.shape[axis],
    **LINALG,
    **FFT,
}
