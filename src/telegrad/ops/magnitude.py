"""Magnitudes, signs and the parts of complex values, element by element."""
# mypy: disable-error-code="empty-body"

from telegrad.ops.arguments import ArrayLike, as_tensor
from telegrad.ops.elementwise import elementwise
from telegrad.ops.filled import zeros_like
from telegrad.rules import complex_parts as _parts
from telegrad.rules import magnitude as _primitives
from telegrad.tensors import Tensor, apply

__all__ = ["abs", "conj", "copysign", "imag", "real", "sign"]


@elementwise(_primitives.ABS)
def abs(x: ArrayLike, /) -> Tensor:
    """The magnitude of each element."""


@elementwise(_primitives.SIGN)
def sign(x: ArrayLike, /) -> Tensor:
    """-1, 0 or 1; for complex elements the number of magnitude 1 in their direction, or 0."""


@elementwise(_primitives.COPYSIGN)
def copysign(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The magnitude of ``x1`` with the sign of ``x2``."""


def conj(x: ArrayLike, /) -> Tensor:
    """The complex conjugate of each element; a real tensor itself."""
    x = as_tensor(x, "conj")
    return apply(_parts.CONJ, x) if x.dtype.kind == "c" else x


def real(x: ArrayLike, /) -> Tensor:
    """The real part of each element; a real tensor itself."""
    x = as_tensor(x, "real")
    return apply(_parts.REAL, x) if x.dtype.kind == "c" else x


def imag(x: ArrayLike, /) -> Tensor:
    """The imaginary part of each element; zeros for a real tensor."""
    x = as_tensor(x, "imag")
    return apply(_parts.IMAG, x) if x.dtype.kind == "c" else zeros_like(x)
