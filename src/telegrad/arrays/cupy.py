"""CuPy's functions under the standard's names, and its own kernels for the extras.

CuPy follows NumPy's names, which are nearly the standard's, but its arrays don't name a namespace.
It is imported when one of its arrays is first met. Nothing here copies device memory to the host.
"""

import functools
import math
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import numpy as np

from telegrad.arrays.plain.special import polygamma_from_zeta
from telegrad.arrays.standard import CREATION

BACKEND_NAME: Final = "cupy"


def is_cupy(array: Any) -> bool:
    """Say whether this is one of CuPy's arrays; asking does not import CuPy."""
    kind: Any = type(array)
    return _is_of_cupy(kind)


@functools.cache
def _is_of_cupy(kind: Any) -> bool:
    return str(kind.__module__).partition(".")[0] == BACKEND_NAME


def namespace_and_extras() -> tuple[Any, dict[str, Any]]:
    """Return the namespace to make a backend of, and the kernels that replace the plain extras."""
    # Here: CuPy need not be installed, and with one of its arrays at hand it is loaded already.
    import cupy
    from cupyx.scipy import special

    functions = {name: getattr(cupy, name) for name in dir(cupy) if not name.startswith("_")}
    for name in CREATION:
        functions[name] = _on_device(cupy, functions[name])
    functions.update(_rearranged(cupy))
    functions["bool"] = np.dtype(bool)
    functions["linalg"] = SimpleNamespace(**{**vars(cupy.linalg), **_linear_algebra(cupy)})
    return SimpleNamespace(__name__=BACKEND_NAME, **functions), _extras(cupy, special)


def _on_device(cupy: ModuleType, create: Callable[..., Any]) -> Callable[..., Any]:
    """Return a creating function with the standard's keyword ``device``."""

    def call(*args: Any, device: Any = None, **options: Any) -> Any:
        if device is None:
            return create(*args, **options)
        with cupy.cuda.Device(device):
            return create(*args, **options)

    return call


def _rearranged(cupy: ModuleType) -> dict[str, Any]:
    """Return functions that CuPy lacks, or that take other arguments than the standard's."""

    def argsort(x: Any, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
        if not descending:
            return cupy.argsort(x, axis=axis, kind="stable")
        order = cupy.argsort(cupy.flip(x, axis=axis), axis=axis, kind="stable")
        return x.shape[axis] - 1 - cupy.flip(order, axis=axis)

    def sort(x: Any, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
        result = cupy.sort(x, axis=axis, kind="stable")
        return cupy.flip(result, axis=axis) if descending else result

    def std(x: Any, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
        return cupy.std(x, axis=axis, ddof=correction, keepdims=keepdims)

    def var(x: Any, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
        return cupy.var(x, axis=axis, ddof=correction, keepdims=keepdims)

    def unstack(x: Any, *, axis: int = 0) -> tuple[Any, ...]:
        return tuple(cupy.moveaxis(x, axis, 0))

    def vecdot(x: Any, y: Any, *, axis: int = -1) -> Any:
        return cupy.sum(cupy.conj(x) * y, axis=axis)

    return {
        "argsort": argsort,
        "sort": sort,
        "std": std,
        "unstack": unstack,
        "var": var,
        "vecdot": vecdot,
    }


def _linear_algebra(cupy: ModuleType) -> dict[str, Any]:
    def diagonal(x: Any, *, offset: int = 0) -> Any:
        return cupy.diagonal(x, offset=offset, axis1=-2, axis2=-1)

    def trace(x: Any, *, offset: int = 0, dtype: Any = None) -> Any:
        return cupy.sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)

    def outer(x: Any, y: Any) -> Any:
        return x[:, None] * y[None, :]

    def svdvals(x: Any) -> Any:
        return cupy.linalg.svd(x, compute_uv=False)

    def matrix_norm(x: Any, *, keepdims: bool = False, ord: Any = "fro") -> Any:
        return cupy.linalg.norm(x, ord=ord, axis=(-2, -1), keepdims=keepdims)

    def cholesky(x: Any, *, upper: bool = False) -> Any:
        lower = cupy.linalg.cholesky(x)
        return cupy.conj(lower.mT) if upper else lower

    def pinv(x: Any, *, rtol: Any = None) -> Any:
        if not x.size:
            return cupy.zeros((*x.shape[:-2], x.shape[-1], x.shape[-2]), dtype=x.dtype)
        if rtol is None:
            rtol = max(x.shape[-2:]) * np.finfo(x.dtype).eps
        return cupy.linalg.pinv(x, rcond=rtol)

    def matrix_rank(x: Any, *, rtol: Any = None) -> Any:
        values = svdvals(x)
        if rtol is None:
            rtol = max(x.shape[-2:]) * np.finfo(x.dtype).eps
        largest = cupy.max(values, axis=-1, keepdims=True)
        return cupy.count_nonzero(values > largest * rtol, axis=-1)

    def solve(a: Any, b: Any) -> Any:
        if b.ndim == 1:
            return solve(a, b[:, None])[..., 0]
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        whole = [cupy.broadcast_to(x, batch + x.shape[-2:]) for x in (a, b)]
        return cupy.linalg.solve(*whole)

    def cross(x: Any, y: Any, *, axis: int = -1) -> Any:
        return cupy.linalg.cross(*cupy.broadcast_arrays(x, y), axis=axis)

    def vector_norm(x: Any, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
        axes = tuple(range(x.ndim)) if axis is None else axis if type(axis) is tuple else (axis,)
        kept = [i for i in range(x.ndim) if i not in {a % x.ndim for a in axes}]
        flat = cupy.moveaxis(x, axes, range(len(axes)))
        flat = flat.reshape(math.prod(x.shape[i] for i in axes), *(x.shape[i] for i in kept))
        result = cupy.linalg.norm(flat, ord=ord, axis=0)
        return cupy.expand_dims(result, axes) if keepdims else result

    return {
        "cholesky": cholesky,
        "cross": cross,
        "diagonal": diagonal,
        "matrix_norm": matrix_norm,
        "matrix_rank": matrix_rank,
        "outer": outer,
        "pinv": pinv,
        "solve": solve,
        "svdvals": svdvals,
        "tensordot": cupy.tensordot,
        "trace": trace,
        "vecdot": _rearranged(cupy)["vecdot"],
        "vector_norm": vector_norm,
    }


def _extras(cupy: ModuleType, special: ModuleType) -> dict[str, Any]:
    def polygamma(n: int, x: Any) -> Any:
        return polygamma_from_zeta(special, n, x)

    def index_add(x: Any, values: Any, *, index: Any) -> Any:
        out, places = x.copy(), _on_the_device(cupy, index)
        if out.dtype.kind != "c":
            cupy.add.at(out, places, values)
        else:
            values = cupy.asarray(values, dtype=out.dtype)
            cupy.add.at(out.real, places, values.real)
            cupy.add.at(out.imag, places, values.imag)
        return out

    return {
        "digamma": special.digamma,
        "erf": special.erf,
        "erfc": special.erfc,
        "index_add": index_add,
        "lgamma": special.gammaln,
        "ndtr": special.ndtr,
        "polygamma": polygamma,
    }


def _on_the_device(cupy: ModuleType, index: Any) -> Any:
    parts = index if type(index) is tuple else (index,)
    return tuple(cupy.asarray(p) if isinstance(p, np.ndarray) else p for p in parts)
