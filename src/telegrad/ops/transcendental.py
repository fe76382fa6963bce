"""Exponentials, logarithms, roots and trigonometry, element by element."""
# mypy: disable-error-code="empty-body"

from telegrad.ops.arguments import ArrayLike
from telegrad.ops.elementwise import elementwise
from telegrad.rules import exponential as _exponential
from telegrad.rules import trigonometric as _trigonometric
from telegrad.tensors import Tensor


@elementwise(_trigonometric.ACOS)
def acos(x: ArrayLike, /) -> Tensor:
    """Return the inverse cosine of each element.

    Examples:
        >>> tg.acos(tg.tensor([-1.0, 0.0, 1.0]))
        tensor([3.1416, 1.5708, 0.    ])
    """


@elementwise(_trigonometric.ACOSH)
def acosh(x: ArrayLike, /) -> Tensor:
    """Return the inverse hyperbolic cosine of each element.

    Examples:
        >>> tg.acosh(tg.tensor([1.0, 2.0]))
        tensor([0.   , 1.317])
    """


@elementwise(_trigonometric.ASIN)
def asin(x: ArrayLike, /) -> Tensor:
    """Return the inverse sine of each element.

    Examples:
        >>> tg.asin(tg.tensor([-1.0, 0.0, 1.0]))
        tensor([-1.5708,  0.    ,  1.5708])
    """


@elementwise(_trigonometric.ASINH)
def asinh(x: ArrayLike, /) -> Tensor:
    """Return the inverse hyperbolic sine of each element.

    Examples:
        >>> tg.asinh(tg.tensor([0.0, 1.0]))
        tensor([0.    , 0.8814])
    """


@elementwise(_trigonometric.ATAN)
def atan(x: ArrayLike, /) -> Tensor:
    """Return the inverse tangent of each element.

    Examples:
        >>> tg.atan(tg.tensor([0.0, 1.0]))
        tensor([0.    , 0.7854])
    """


@elementwise(_trigonometric.ATANH)
def atanh(x: ArrayLike, /) -> Tensor:
    """Return the inverse hyperbolic tangent of each element.

    Examples:
        >>> tg.atanh(tg.tensor([0.0, 0.5]))
        tensor([0.    , 0.5493])
    """


@elementwise(_trigonometric.COS)
def cos(x: ArrayLike, /) -> Tensor:
    """Return the cosine of each element.

    Examples:
        >>> tg.cos(tg.tensor([0.0, 1.0]))
        tensor([1.    , 0.5403])
    """


@elementwise(_trigonometric.COSH)
def cosh(x: ArrayLike, /) -> Tensor:
    """Return the hyperbolic cosine of each element.

    Examples:
        >>> tg.cosh(tg.tensor([0.0, 1.0]))
        tensor([1.    , 1.5431])
    """


@elementwise(_exponential.EXP)
def exp(x: ArrayLike, /) -> Tensor:
    """Return the exponential of each element.

    Examples:
        >>> tg.exp(tg.tensor([0.0, 1.0]))
        tensor([1.    , 2.7183])
    """


@elementwise(_exponential.EXPM1)
def expm1(x: ArrayLike, /) -> Tensor:
    """Return ``exp(x) - 1`` of each element, exact near zero.

    Examples:
        >>> tg.expm1(tg.tensor([0.0, 1.0]))
        tensor([0.    , 1.7183])
    """


@elementwise(_exponential.LOG)
def log(x: ArrayLike, /) -> Tensor:
    """Return the natural logarithm of each element.

    Examples:
        >>> tg.log(tg.tensor([1.0, 10.0]))
        tensor([0.    , 2.3026])
    """


@elementwise(_exponential.LOG10)
def log10(x: ArrayLike, /) -> Tensor:
    """Return the logarithm of each element to base 10.

    Examples:
        >>> tg.log10(tg.tensor([1.0, 10.0, 1000.0]))
        tensor([0., 1., 3.])
    """


@elementwise(_exponential.LOG1P)
def log1p(x: ArrayLike, /) -> Tensor:
    """Return ``log(1 + x)`` of each element, exact near zero.

    Examples:
        >>> tg.log1p(tg.tensor([0.0, 1.0]))
        tensor([0.    , 0.6931])
    """


@elementwise(_exponential.LOG2)
def log2(x: ArrayLike, /) -> Tensor:
    """Return the logarithm of each element to base 2.

    Examples:
        >>> tg.log2(tg.tensor([1.0, 2.0, 8.0]))
        tensor([0., 1., 3.])
    """


@elementwise(_trigonometric.SIN)
def sin(x: ArrayLike, /) -> Tensor:
    """Return the sine of each element.

    Examples:
        >>> tg.sin(tg.tensor([0.0, 1.0]))
        tensor([0.    , 0.8415])
    """


@elementwise(_trigonometric.SINH)
def sinh(x: ArrayLike, /) -> Tensor:
    """Return the hyperbolic sine of each element.

    Examples:
        >>> tg.sinh(tg.tensor([0.0, 1.0]))
        tensor([0.    , 1.1752])
    """


@elementwise(_exponential.SQRT)
def sqrt(x: ArrayLike, /) -> Tensor:
    """Return the principal square root of each element.

    Examples:
        >>> tg.sqrt(tg.tensor([4.0, 9.0]))
        tensor([2., 3.])
    """


@elementwise(_trigonometric.TAN)
def tan(x: ArrayLike, /) -> Tensor:
    """Return the tangent of each element.

    Examples:
        >>> tg.tan(tg.tensor([0.0, 1.0]))
        tensor([0.    , 1.5574])
    """


@elementwise(_trigonometric.TANH)
def tanh(x: ArrayLike, /) -> Tensor:
    """Return the hyperbolic tangent of each element.

    Examples:
        >>> tg.tanh(tg.tensor([0.0, 1.0]))
        tensor([0.    , 0.7616])
    """


@elementwise(_trigonometric.ATAN2)
def atan2(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Return the angle of the point ``(x2, x1)``.

    Examples:
        >>> tg.atan2(tg.tensor([1.0, -1.0]), 1.0)
        tensor([ 0.7854, -0.7854])
    """


@elementwise(_trigonometric.HYPOT)
def hypot(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Return the length of the vector ``(x1, x2)``.

    Examples:
        >>> tg.hypot(tg.tensor([3.0, 5.0]), tg.tensor([4.0, 12.0]))
        tensor([ 5., 13.])
    """


@elementwise(_exponential.LOGADDEXP)
def logaddexp(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Return ``log(exp(x1) + exp(x2))`` without overflow.

    Examples:
        >>> tg.logaddexp(tg.tensor([1000.0]), tg.tensor([1000.0]))
        tensor([1000.6932])
    """
