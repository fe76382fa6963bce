"""Exponentials, logarithms, roots and trigonometry, element by element."""
# mypy: disable-error-code="empty-body"

from telegrad.ops.arguments import ArrayLike
from telegrad.ops.elementwise import elementwise
from telegrad.rules import exponential as _exponential
from telegrad.rules import trigonometric as _trigonometric
from telegrad.tensors import Tensor

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


@elementwise(_trigonometric.ACOS)
def acos(x: ArrayLike, /) -> Tensor:
    """The inverse cosine of each element."""


@elementwise(_trigonometric.ACOSH)
def acosh(x: ArrayLike, /) -> Tensor:
    """The inverse hyperbolic cosine of each element."""


@elementwise(_trigonometric.ASIN)
def asin(x: ArrayLike, /) -> Tensor:
    """The inverse sine of each element."""


@elementwise(_trigonometric.ASINH)
def asinh(x: ArrayLike, /) -> Tensor:
    """The inverse hyperbolic sine of each element."""


@elementwise(_trigonometric.ATAN)
def atan(x: ArrayLike, /) -> Tensor:
    """The inverse tangent of each element."""


@elementwise(_trigonometric.ATANH)
def atanh(x: ArrayLike, /) -> Tensor:
    """The inverse hyperbolic tangent of each element."""


@elementwise(_trigonometric.COS)
def cos(x: ArrayLike, /) -> Tensor:
    """The cosine of each element."""


@elementwise(_trigonometric.COSH)
def cosh(x: ArrayLike, /) -> Tensor:
    """The hyperbolic cosine of each element."""


@elementwise(_exponential.EXP)
def exp(x: ArrayLike, /) -> Tensor:
    """The exponential of each element."""


@elementwise(_exponential.EXPM1)
def expm1(x: ArrayLike, /) -> Tensor:
    """``exp(x) - 1``, exact near zero."""


@elementwise(_exponential.LOG)
def log(x: ArrayLike, /) -> Tensor:
    """The natural logarithm of each element."""


@elementwise(_exponential.LOG10)
def log10(x: ArrayLike, /) -> Tensor:
    """The logarithm to base 10."""


@elementwise(_exponential.LOG1P)
def log1p(x: ArrayLike, /) -> Tensor:
    """``log(1 + x)``, exact near zero."""


@elementwise(_exponential.LOG2)
def log2(x: ArrayLike, /) -> Tensor:
    """The logarithm to base 2."""


@elementwise(_trigonometric.SIN)
def sin(x: ArrayLike, /) -> Tensor:
    """The sine of each element."""


@elementwise(_trigonometric.SINH)
def sinh(x: ArrayLike, /) -> Tensor:
    """The hyperbolic sine of each element."""


@elementwise(_exponential.SQRT)
def sqrt(x: ArrayLike, /) -> Tensor:
    """The principal square root of each element."""


@elementwise(_trigonometric.TAN)
def tan(x: ArrayLike, /) -> Tensor:
    """The tangent of each element."""


@elementwise(_trigonometric.TANH)
def tanh(x: ArrayLike, /) -> Tensor:
    """The hyperbolic tangent of each element."""


@elementwise(_trigonometric.ATAN2)
def atan2(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The angle of the point ``(x2, x1)``."""


@elementwise(_trigonometric.HYPOT)
def hypot(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The length of the vector ``(x1, x2)``."""


@elementwise(_exponential.LOGADDEXP)
def logaddexp(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``log(exp(x1) + exp(x2))`` without overflow."""
