"""NumPy's functions on Tensors: ``np.sin(t)`` is ``telegrad.sin(t)``.

NumPy asks an argument that is not an array what to do: through ``__array_ufunc__`` for elementwise
functions and through ``__array_function__`` for all others. Both look into explicit tables
(``ufuncs.py``, ``functions.py``) and call a public function, so the result is recorded like any
other. A function in no table, or an option that a Tensor can't serve such as ``out=``, raises an
error that names it; nothing is computed outside of the graph.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from telegrad.errors import NotDifferentiable, UsageError
from telegrad.tensors.late_bound import late_bound
from telegrad.tensors.numpy.functions import FUNCTIONS
from telegrad.tensors.numpy.ufuncs import ACCUMULATIONS, REDUCTIONS, function_of


class NumpyProtocols:
    """A part of Tensor: what NumPy asks it."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        name = f"np.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
        options = {key: value for key, value in options.items() if not _is_default(key, value)}
        if "out" in options:
            raise UsageError(
                f"{name} can't write its result into out= when a Tensor takes part, since that "
                "would leave the graph; use what it returns, e.g. a = a + t instead of a += t"
            )
        if method == "__call__":
            return _served(name, function_of(ufunc), inputs, options)
        if method == "reduce":
            return _served(name, _reduction(ufunc), inputs, options)
        if method == "accumulate":
            return _served(name, _accumulation(ufunc), inputs, options)
        if method == "outer":
            return _served(name, _outer(function_of(ufunc)), inputs, options)
        raise _without_rule(name)

    def __array_function__(self, func: Any, types: Any, args: Any, options: Any) -> Any:
        if not all(issubclass(kind, (NumpyProtocols, np.ndarray, np.generic)) for kind in types):
            return NotImplemented
        module = func.__module__.replace("numpy", "np", 1)
        found = FUNCTIONS.get(func)
        served = None if found is None else partial(found, late_bound.namespace)
        return _served(f"{module}.{func.__name__}", served, args, options)


def _is_default(key: str, value: Any) -> bool:
    """Say whether an option asks for what would happen without it."""
    return value is None if key in ("out", "dtype") else key == "where" and value is True


def _served(name: str, function: Callable[..., Any] | None, args: Any, options: Any) -> Any:
    if function is None:
        raise _without_rule(name)
    try:
        return function(*args, **options)
    except TypeError as error:
        _refuse_arguments(name, function, args, options, error)
        raise


def _refuse_arguments(
    name: str, function: Callable[..., Any], args: Any, options: Any, error: TypeError
) -> None:
    """Raise if the error came from arguments that the function does not take."""
    import inspect  # Here, since it takes 10 ms to load and only errors need it.

    signature = inspect.signature(function)
    try:
        signature.bind(*args, **options)
    except TypeError as reason:
        known = ", ".join(signature.parameters)
        raise UsageError(
            f"{name} takes the arguments ({known}) when a Tensor takes part: {reason}"
        ) from error


def _without_rule(name: str) -> NotDifferentiable:
    return NotDifferentiable(
        f"{name} has no rule for Tensors; write it with functions of telegrad, or call it on "
        "x.detach().numpy() to leave the graph on purpose"
    )


def _reduction(ufunc: Any) -> Callable[..., Any] | None:
    known = REDUCTIONS.get(ufunc)

    def reduce(array: Any, axis: Any = 0, dtype: Any = None, keepdims: bool = False) -> Any:
        values = array if dtype is None else array.to(dtype)
        return getattr(late_bound.namespace, str(known))(values, axis=axis, keepdims=keepdims)

    return None if known is None else reduce


def _accumulation(ufunc: Any) -> Callable[..., Any] | None:
    known = ACCUMULATIONS.get(ufunc)

    def accumulate(array: Any, axis: int = 0, dtype: Any = None) -> Any:
        return getattr(late_bound.namespace, str(known))(array, axis=axis, dtype=dtype)

    return None if known is None else accumulate


def _outer(function: Callable[..., Any] | None) -> Callable[..., Any] | None:
    def outer(a: Any, b: Any) -> Any:
        xp = late_bound.namespace
        left, right = xp.asarray(a), xp.asarray(b)
        stretched = xp.reshape(left, (*left.shape, *(1,) * right.ndim))
        return function(stretched, right)  # type: ignore[misc]

    return None if function is None else outer
