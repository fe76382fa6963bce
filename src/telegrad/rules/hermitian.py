"""Words that the rules of linear algebra share: adjoints, and a matrix's parts under them.

Everything here works on real matrices at no cost: there the adjoint is the transpose.
"""

from typing import Any


def is_complex(xp: Any, x: Any) -> bool:
    """Tell whether the elements are complex."""
    return bool(xp.dtype_of(x).kind == "c")


def imag(xp: Any, x: Any) -> Any:
    """Return the imaginary part of a complex array as a complex one: ``1j`` times a number."""
    return (x - xp.conj(x)) * 0.5


def adjoint(xp: Any, x: Any) -> Any:
    """Return the conjugate of the transposed matrix."""
    return xp.conj(x).mT


def hermitian_part(xp: Any, x: Any) -> Any:
    """Return ``(x + x^H) / 2``."""
    return (x + adjoint(xp, x)) * 0.5


def skew_part(xp: Any, x: Any) -> Any:
    """Return ``x - x^H``, without the half."""
    return x - adjoint(xp, x)


def identity_like(xp: Any, x: Any) -> Any:
    """Return the identity matrix that multiplies x from the left."""
    return xp.eye(x.shape[-2], dtype=xp.dtype_of(x))


def diagonal_part(xp: Any, x: Any) -> Any:
    """Return a square matrix with everything off the diagonal zero."""
    return x * identity_like(xp, x)


def lower_half(xp: Any, x: Any) -> Any:
    """Return the lower triangle with half of the diagonal: plus its adjoint, a Hermitian x."""
    return xp.tril(x) - diagonal_part(xp, x) * 0.5
