"""Magnitudes, signs and the parts of complex values, element by element."""
# mypy: disable-error-code="empty-body"

from telegrad.ops.arguments import ArrayLike, as_tensor
from telegrad.ops.elementwise import elementwise
from telegrad.ops.filled import zeros_like
from telegrad.rules import complex_parts as _parts
from telegrad.rules import magnitude as _primitives
from telegrad.tensors import Tensor, apply


@elementwise(_primitives.ABS)
def abs(x: ArrayLike, /) -> Tensor:
    """Return the magnitude of each element.

    Examples:
        >>> tg.abs(tg.tensor([-1.0, 2.0, 3.0 + 4.0j]))
        tensor([1., 2., 5.])
    """


@elementwise(_primitives.SIGN)
def sign(x: ArrayLike, /) -> Tensor:
    """Return -1, 0 or 1; for complex elements the number of magnitude 1 in their direction, or 0.

    Examples:
        >>> tg.sign(tg.tensor([-3.0, 0.0, 2.0]))
        tensor([-1.,  0.,  1.])
    """


@elementwise(_primitives.COPYSIGN)
def copysign(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Return the magnitude of ``x1`` with the sign of ``x2``.

    Examples:
        >>> tg.copysign(tg.tensor([1.0, 2.0]), tg.tensor([-1.0, 1.0]))
        tensor([-1.,  2.])
    """


def conj(x: ArrayLike, /) -> Tensor:
    """Return the complex conjugate of each element; a real tensor itself.

    Examples:
        >>> tg.conj(tg.tensor([1.0 + 2.0j]))
        tensor([1.-2.j], dtype=complex64)
    """
    x = as_tensor(x, "conj")
    return apply(_parts.CONJ, x) if x.dtype.kind == "c" else x


def real(x: ArrayLike, /) -> Tensor:
    """Return the real part of each element; a real tensor itself.

    Examples:
        >>> tg.real(tg.tensor([1.0 + 2.0j]))
        tensor([1.])
    """
    x = as_tensor(x, "real")
    return apply(_parts.REAL, x) if x.dtype.kind == "c" else x


def imag(x: ArrayLike, /) -> Tensor:
    """Return the imaginary part of each element; zeros for a real tensor.

    Examples:
        >>> tg.imag(tg.tensor([1.0 + 2.0j]))
        tensor([2.])
    """
    x = as_tensor(x, "imag")
    return apply(_parts.IMAG, x) if x.dtype.kind == "c" else zeros_like(x)
