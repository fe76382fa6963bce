"""Functions of matrices beyond the standard, over the standard alone."""

from typing import Any

__all__ = ["cofactor", "diagonal_matrix", "expm", "matrix_product", "solve_triangular"]


def cofactor(xp: Any, x: Any) -> Any:
    """Return the gradient of the determinant: ``det(x) inv(x)^T``, also where x has no inverse.

    By singular values: between the singular vectors x is diagonal, and the cofactors of a diagonal
    matrix are the products of all its other values.
    """
    u, values, vh = xp.linalg.svd(x, full_matrices=False)
    values = xp.expand_dims(values, axis=-2)
    others = xp.where(xp.eye(x.shape[-1], dtype=bool), xp.ones_like(values), values)
    scale = xp.expand_dims(xp.prod(others, axis=-1), axis=-2)
    phase = xp.linalg.det(u) * xp.linalg.det(vh)
    inner = xp.matmul(xp.conj(u) * scale, xp.conj(vh))
    return xp.reshape(phase, (*phase.shape, 1, 1)) * inner


def diagonal_matrix(xp: Any, x: Any) -> Any:
    """Return square matrices with the last axis of x on the diagonal and zeros elsewhere."""
    on = xp.eye(x.shape[-1], dtype=bool)
    return xp.where(on, xp.expand_dims(x, axis=-1), xp.zeros((), dtype=xp.dtype_of(x)))


def matrix_product(xp: Any, x: Any, y: Any) -> Any:
    """Return ``x @ y`` of two matrices: no stacks, no vectors."""
    return xp.matmul(x, y)


def solve_triangular(xp: Any, a: Any, b: Any, *, upper: bool) -> Any:
    """Solve ``a @ x = b`` for matrices, reading only one triangle of `a`."""
    return xp.linalg.solve(xp.triu(a) if upper else xp.tril(a), b)


_TERMS = 18
"""Enough for double precision where the norm is at most a half: 2**-18 / 18! is below 1e-21."""


def expm(xp: Any, x: Any) -> Any:
    """Return the exponential of square matrices: a scaled Taylor sum, then squared back."""
    if 0 in x.shape:
        return x
    largest = float(xp.max(xp.linalg.matrix_norm(x, ord=float("inf"))))
    halvings = 0
    while largest > 0.5 and halvings < 1100:
        largest /= 2
        halvings += 1
    small = x * 0.5**halvings
    one = xp.eye(x.shape[-1], dtype=xp.dtype_of(x))
    total = one + small * (1.0 / _TERMS)
    for k in range(_TERMS - 1, 0, -1):
        total = one + xp.matmul(small, total) * (1.0 / k)
    for _ in range(halvings):
        total = xp.matmul(total, total)
    return total
