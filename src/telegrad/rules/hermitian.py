"""Adjoints and the Hermitian, skew and triangular parts of matrices, for the rules of algebra.

For real matrices, whose adjoint is the transpose, nothing here costs more.
"""

from typing import Any


def is_complex(xp: Any, x: Any) -> bool:
    """Say whether the elements are complex."""
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
    """Return the lower triangle and half the diagonal: with its adjoint it makes a Hermitian x."""
    return xp.tril(x) - diagonal_part(xp, x) * 0.5
