"""The error function, the logarithm of the gamma function, and their derivatives."""

from telegrad.errors import UsageError
from telegrad.ops.arguments import ArrayLike
from telegrad.rules import special as _rows
from telegrad.tensors import Tensor, apply
from telegrad.tensors.hot import unary

__all__ = ["digamma", "erf", "erfc", "lgamma", "ndtr", "polygamma"]

_digamma = unary(_rows.DIGAMMA)
_erf = unary(_rows.ERF)
_erfc = unary(_rows.ERFC)
_lgamma = unary(_rows.LGAMMA)
_ndtr = unary(_rows.NDTR)


def erf(x: ArrayLike, /) -> Tensor:
    """The error function of each element."""
    return _erf(x)


def erfc(x: ArrayLike, /) -> Tensor:
    """``1 - erf(x)`` of each element, with all its digits where that is small."""
    return _erfc(x)


def ndtr(x: ArrayLike, /) -> Tensor:
    """The share of a normal distribution (mean 0, variance 1) below each element."""
    return _ndtr(x)


def lgamma(x: ArrayLike, /) -> Tensor:
    """The logarithm of the absolute value of the gamma function at each element."""
    return _lgamma(x)


def digamma(x: ArrayLike, /) -> Tensor:
    """The derivative of ``lgamma`` at each element."""
    return _digamma(x)


def polygamma(n: int, x: ArrayLike, /) -> Tensor:
    """The n-th derivative of ``digamma`` at each element."""
    if n < 0:
        raise UsageError(f"expected n of 0 or more in polygamma, got {n}")
    return apply(_rows.POLYGAMMA, x, n=n)  # type: ignore[no-any-return]
