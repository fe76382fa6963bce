"""Exponentials, logarithms, roots and trigonometry, element by element."""

from telegrad.ops.arguments import ArrayLike
from telegrad.rules import exponential as _exponential
from telegrad.rules import trigonometric as _trigonometric
from telegrad.tensors import Tensor
from telegrad.tensors.hot import binary, unary

__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cos",
    "cosh",
    "exp",
    "expm1",
    "hypot",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
]

_acos = unary(_trigonometric.ACOS)
_acosh = unary(_trigonometric.ACOSH)
_asin = unary(_trigonometric.ASIN)
_asinh = unary(_trigonometric.ASINH)
_atan = unary(_trigonometric.ATAN)
_atanh = unary(_trigonometric.ATANH)
_cos = unary(_trigonometric.COS)
_cosh = unary(_trigonometric.COSH)
_exp = unary(_exponential.EXP)
_expm1 = unary(_exponential.EXPM1)
_log = unary(_exponential.LOG)
_log10 = unary(_exponential.LOG10)
_log1p = unary(_exponential.LOG1P)
_log2 = unary(_exponential.LOG2)
_sin = unary(_trigonometric.SIN)
_sinh = unary(_trigonometric.SINH)
_sqrt = unary(_exponential.SQRT)
_tan = unary(_trigonometric.TAN)
_tanh = unary(_trigonometric.TANH)
_atan2 = binary(_trigonometric.ATAN2)
_hypot = binary(_trigonometric.HYPOT)
_logaddexp = binary(_exponential.LOGADDEXP)


def acos(x: ArrayLike, /) -> Tensor:
    """The inverse cosine of each element."""
    return _acos(x)


def acosh(x: ArrayLike, /) -> Tensor:
    """The inverse hyperbolic cosine of each element."""
    return _acosh(x)


def asin(x: ArrayLike, /) -> Tensor:
    """The inverse sine of each element."""
    return _asin(x)


def asinh(x: ArrayLike, /) -> Tensor:
    """The inverse hyperbolic sine of each element."""
    return _asinh(x)


def atan(x: ArrayLike, /) -> Tensor:
    """The inverse tangent of each element."""
    return _atan(x)


def atanh(x: ArrayLike, /) -> Tensor:
    """The inverse hyperbolic tangent of each element."""
    return _atanh(x)


def cos(x: ArrayLike, /) -> Tensor:
    """The cosine of each element."""
    return _cos(x)


def cosh(x: ArrayLike, /) -> Tensor:
    """The hyperbolic cosine of each element."""
    return _cosh(x)


def exp(x: ArrayLike, /) -> Tensor:
    """The exponential of each element."""
    return _exp(x)


def expm1(x: ArrayLike, /) -> Tensor:
    """``exp(x) - 1``, exact near zero."""
    return _expm1(x)


def log(x: ArrayLike, /) -> Tensor:
    """The natural logarithm of each element."""
    return _log(x)


def log10(x: ArrayLike, /) -> Tensor:
    """The logarithm to base 10."""
    return _log10(x)


def log1p(x: ArrayLike, /) -> Tensor:
    """``log(1 + x)``, exact near zero."""
    return _log1p(x)


def log2(x: ArrayLike, /) -> Tensor:
    """The logarithm to base 2."""
    return _log2(x)


def sin(x: ArrayLike, /) -> Tensor:
    """The sine of each element."""
    return _sin(x)


def sinh(x: ArrayLike, /) -> Tensor:
    """The hyperbolic sine of each element."""
    return _sinh(x)


def sqrt(x: ArrayLike, /) -> Tensor:
    """The principal square root of each element."""
    return _sqrt(x)


def tan(x: ArrayLike, /) -> Tensor:
    """The tangent of each element."""
    return _tan(x)


def tanh(x: ArrayLike, /) -> Tensor:
    """The hyperbolic tangent of each element."""
    return _tanh(x)


def atan2(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The angle of the point ``(x2, x1)``."""
    return _atan2(x1, x2)


def hypot(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The length of the vector ``(x1, x2)``."""
    return _hypot(x1, x2)


def logaddexp(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``log(exp(x1) + exp(x2))`` without overflow."""
    return _logaddexp(x1, x2)
