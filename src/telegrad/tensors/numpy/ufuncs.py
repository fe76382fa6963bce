"""NumPy's elementwise functions and the functions of telegrad that stand for them."""

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from telegrad.tensors.late_bound import late_bound

_SAME_NAME = (
    *(np.add, np.subtract, np.multiply, np.divide, np.floor_divide, np.remainder),
    *(np.negative, np.positive, np.square, np.reciprocal, np.sqrt, np.hypot, np.matmul, np.vecdot),
    *(np.exp, np.expm1, np.log, np.log1p, np.log2, np.log10, np.logaddexp),
    *(np.sin, np.cos, np.tan, np.sinh, np.cosh, np.tanh),
    *(np.floor, np.ceil, np.trunc, np.sign, np.copysign, np.nextafter, np.signbit),
    *(np.maximum, np.minimum, np.isfinite, np.isinf, np.isnan),
    *(np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal),
    *(np.logical_and, np.logical_or, np.logical_xor, np.logical_not),
    *(np.bitwise_and, np.bitwise_or, np.bitwise_xor),
)

UFUNCS: dict[Any, str] = {
    **{ufunc: ufunc.__name__ for ufunc in _SAME_NAME},
    np.absolute: "abs",
    np.fabs: "abs",
    np.arccos: "acos",
    np.arccosh: "acosh",
    np.arcsin: "asin",
    np.arcsinh: "asinh",
    np.arctan: "atan",
    np.arctan2: "atan2",
    np.arctanh: "atanh",
    np.conjugate: "conj",
    np.invert: "bitwise_invert",
    np.left_shift: "bitwise_left_shift",
    np.power: "pow",
    np.right_shift: "bitwise_right_shift",
    np.rint: "round",
}

REDUCTIONS: dict[Any, str] = {
    np.add: "sum",
    np.logical_and: "all",
    np.logical_or: "any",
    np.maximum: "max",
    np.minimum: "min",
    np.multiply: "prod",
}

ACCUMULATIONS: dict[Any, str] = {np.add: "cumulative_sum", np.multiply: "cumulative_prod"}

# SciPy's functions, found by identity once somebody has imported them.
_OF_SCIPY = {
    "digamma": "digamma",
    "erf": "erf",
    "erfc": "erfc",
    "expit": "sigmoid",
    "gammaln": "lgamma",
    "log_expit": "log_sigmoid",
    "ndtr": "ndtr",
}

_SCALED: dict[Any, Callable[[Any], Any]] = {
    np.deg2rad: lambda x: late_bound.namespace.multiply(x, np.pi / 180),
    np.radians: lambda x: late_bound.namespace.multiply(x, np.pi / 180),
    np.rad2deg: lambda x: late_bound.namespace.multiply(x, 180 / np.pi),
    np.degrees: lambda x: late_bound.namespace.multiply(x, 180 / np.pi),
    np.exp2: lambda x: late_bound.namespace.pow(2.0, x),
}


def function_of(ufunc: Any) -> Callable[..., Any] | None:
    """Return the function that stands for a ufunc, or None."""
    name = UFUNCS.get(ufunc) or _scipy_names().get(ufunc)
    return _SCALED.get(ufunc) if name is None else getattr(late_bound.namespace, name)


def _scipy_names() -> dict[Any, str]:
    special = sys.modules.get("scipy.special")
    return {} if special is None else _names_in(special)


@functools.cache
def _names_in(special: Any) -> dict[Any, str]:
    return {getattr(special, theirs): ours for theirs, ours in _OF_SCIPY.items()}
