"""The error function, the logarithm of the gamma function, and their derivatives."""
# mypy: disable-error-code="empty-body"

from telegrad.errors import UsageError
from telegrad.ops.arguments import ArrayLike
from telegrad.ops.elementwise import elementwise
from telegrad.rules import special as _primitives
from telegrad.tensors import Tensor, apply

__all__ = ["digamma", "erf", "erfc", "lgamma", "ndtr", "polygamma"]


@elementwise(_primitives.ERF)
def erf(x: ArrayLike, /) -> Tensor:
    """The error function of each element."""


@elementwise(_primitives.ERFC)
def erfc(x: ArrayLike, /) -> Tensor:
    """``1 - erf(x)`` of each element, with all its digits where that is small."""


@elementwise(_primitives.NDTR)
def ndtr(x: ArrayLike, /) -> Tensor:
    """The share of a normal distribution (mean 0, variance 1) below each element."""


@elementwise(_primitives.LGAMMA)
def lgamma(x: ArrayLike, /) -> Tensor:
    """The logarithm of the absolute value of the gamma function at each element."""


@elementwise(_primitives.DIGAMMA)
def digamma(x: ArrayLike, /) -> Tensor:
    """The derivative of ``lgamma`` at each element."""


def polygamma(n: int, x: ArrayLike, /) -> Tensor:
    """The n-th derivative of ``digamma`` at each element."""
    if n < 0:
        raise UsageError(f"expected n of 0 or more in polygamma, got {n}")
    return apply(_primitives.POLYGAMMA, x, n=n)
