"""The namespace that serves a raw array: the array API standard plus a short list of kernels.

A rule is handed a Backend as ``xp`` and may use nothing else. ``extras.py`` lists what a backend
has beyond the standard, with a plain version of each; a backend may bring faster ones. Dtypes
inside telegrad are NumPy's dtype objects on every backend: one whose own dtypes differ is wrapped
here, so that it takes and returns NumPy's.
"""

import functools
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from telegrad.arrays import cupy
from telegrad.arrays.devices import placed
from telegrad.arrays.numpy import (
    attention,
    convolution,
    gelu,
    indexing,
    layer_norm,
    linalg,
    ndtr,
    pooling,
    recurrence,
    rows,
    sliding,
    special,
    standard,
)
from telegrad.arrays.plain.extras import KERNELS, kernels_of
from telegrad.arrays.standard import CREATION, DTYPED, ELEMENTWISE, FFT, LINALG, OTHER
from telegrad.errors import DTypeError


class Backend:
    """One kind of raw array: the standard's functions, ``linalg``, ``fft`` and the extras."""

    def __init__(self, name: str, namespace: Any, overrides: dict[str, Any] | None = None) -> None:
        self.name = name
        self.namespace = namespace
        self.newaxis = None
        self.to_device = placed
        self.e, self.inf, self.nan, self.pi = math.e, math.inf, math.nan, math.pi
        for each in (*ELEMENTWISE, *CREATION, *OTHER):
            setattr(self, each, getattr(namespace, each))
        self.linalg = _pick(getattr(namespace, "linalg", None), LINALG)
        self.fft = _pick(getattr(namespace, "fft", None), FFT)
        self.is_numpy = namespace is np
        if not self.is_numpy:
            self._translate_dtypes(namespace)
        for each, kernel in KERNELS.items():
            setattr(self, each, functools.partial(kernel, self))
        for each, function in (overrides or {}).items():
            setattr(self, each, function)

    def _translate_dtypes(self, namespace: Any) -> None:
        def own(dtype: Any) -> Any:
            return getattr(namespace, _as_ours(dtype).name)

        def taking(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, dtype: Any = None, **options: Any) -> Any:
                if dtype is not None:
                    options["dtype"] = own(dtype)
                return function(*args, **options)

            return call

        for each in DTYPED:
            setattr(self, each, taking(getattr(namespace, each)))
        self.astype = lambda x, dtype, /, **options: namespace.astype(x, own(dtype), **options)
        # Rules ask with the dtypes of raw arrays too.
        self.isdtype = lambda dtype, kind: np.isdtype(_as_ours(dtype), kind)
        self.finfo = lambda dtype: np.finfo(_as_ours(dtype))

    def dtype_of(self, array: Any) -> np.dtype[Any]:
        """Return the dtype of a raw array, as telegrad names it."""
        return array.dtype if self.is_numpy else _as_ours(array.dtype)

    def __repr__(self) -> str:
        return f"<backend {self.name}>"


def _pick(namespace: Any, names: tuple[str, ...]) -> SimpleNamespace:
    found = {name: getattr(namespace, name) for name in names if hasattr(namespace, name)}
    return SimpleNamespace(**found)


def _as_ours(dtype: Any) -> np.dtype[Any]:
    if isinstance(dtype, (np.dtype, type)):
        return np.dtype(dtype)
    return np.dtype(str(dtype).rsplit(".", 1)[-1])


_OF_NUMPY = kernels_of(
    *(standard, indexing, linalg, special, ndtr, gelu),
    *(sliding, convolution, pooling, recurrence, layer_norm),
    *(rows, attention),
)
NUMPY = Backend("numpy", np, _OF_NUMPY)
_BY_TYPE: dict[type, Any] = {np.ndarray: NUMPY, np.bool_: NUMPY}
_BY_TYPE.update((kind, NUMPY) for kind in np.sctypeDict.values())


def backend_of_type(kind: type) -> Any:
    """Return the backend that serves this type, or None."""
    return _BY_TYPE.get(kind)


def backend_of(array: Any) -> Any:
    """Return the backend that serves this raw array; found once for each type."""
    found = _BY_TYPE.get(type(array))
    if found is not None:
        return found
    if isinstance(array, np.ndarray):
        return NUMPY
    if cupy.is_cupy(array):
        found = Backend(cupy.BACKEND_NAME, *cupy.namespace_and_extras())
    elif hasattr(array, "__array_namespace__"):
        namespace = array.__array_namespace__()
        found = Backend(namespace.__name__, namespace)
    else:
        raise DTypeError(
            f"expected an array of the array API standard, got {type(array).__name__}; convert it "
            "with telegrad.asarray first"
        )
    _BY_TYPE[type(array)] = found
    return found
