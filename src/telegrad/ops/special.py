"""The error function, the logarithm of the gamma function, and their derivatives."""
# mypy: disable-error-code="empty-body"

from telegrad.errors import UsageError
from telegrad.ops.arguments import ArrayLike
from telegrad.ops.elementwise import elementwise
from telegrad.rules import special as _primitives
from telegrad.tensors import Tensor, apply


@elementwise(_primitives.ERF)
def erf(x: ArrayLike, /) -> Tensor:
    """Return the error function of each element.

    Examples:
        >>> tg.erf(tg.tensor([0.0, 1.0]))
        tensor([0.    , 0.8427])
    """


@elementwise(_primitives.ERFC)
def erfc(x: ArrayLike, /) -> Tensor:
    """Return ``1 - erf(x)`` of each element, with all its digits where that is small.

    Examples:
        >>> tg.erfc(tg.tensor([0.0, 1.0]))
        tensor([1.    , 0.1573])
    """


@elementwise(_primitives.NDTR)
def ndtr(x: ArrayLike, /) -> Tensor:
    """Return the share of a normal distribution (mean 0, variance 1) below each element.

    Examples:
        >>> tg.ndtr(tg.tensor([0.0, 1.96]))
        tensor([0.5  , 0.975])
    """


@elementwise(_primitives.LGAMMA)
def lgamma(x: ArrayLike, /) -> Tensor:
    """Return the logarithm of the absolute value of the gamma function at each element.

    Examples:
        >>> tg.lgamma(tg.tensor([1.0, 4.0]))
        tensor([0.    , 1.7918])
    """


@elementwise(_primitives.DIGAMMA)
def digamma(x: ArrayLike, /) -> Tensor:
    """Return the derivative of ``lgamma`` at each element.

    Examples:
        >>> tg.digamma(tg.tensor([1.0, 4.0]))
        tensor([-0.5772,  1.2561])
    """


def polygamma(n: int, x: ArrayLike, /) -> Tensor:
    """Return the n-th derivative of ``digamma`` at each element.

    Raises:
        UsageError: If n is negative.

    Examples:
        >>> tg.polygamma(1, tg.tensor([1.0, 2.0]))
        tensor([1.6449, 0.6449])
    """
    if n < 0:
        raise UsageError(f"expected n of 0 or more in polygamma, got {n}")
    return apply(_primitives.POLYGAMMA, x, n=n)
