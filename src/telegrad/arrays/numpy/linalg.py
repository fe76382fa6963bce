"""NumPy's linear algebra as telegrad serves it.

NumPy only says "Singular matrix"; here the error for a matrix that a function can't take says what
was expected. Besides, the functions beyond the standard, as NumPy and SciPy do them best.
"""

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from telegrad.arrays.plain import matrices
from telegrad.arrays.standard import LINALG
from telegrad.errors import UsageError

__all__ = ["cofactor", "diagonal_matrix", "expm", "linalg", "matrix_product", "solve_triangular"]

_EXPECTED = {
    "cholesky": "a Hermitian matrix whose eigenvalues are all positive",
    "eigh": "a matrix of finite numbers",
    "eigvalsh": "a matrix of finite numbers",
    "inv": "a matrix that has an inverse",
    "pinv": "a matrix of finite numbers",
    "solve": "a matrix that has an inverse",
    "svd": "a matrix of finite numbers",
    "svdvals": "a matrix of finite numbers",
}


def _served(name: str) -> Callable[..., Any]:
    """NumPy's function; those that may fail on some matrices say what they expected."""
    function: Callable[..., Any] = getattr(np.linalg, name)
    expected = _EXPECTED.get(name)
    if expected is None:
        return function

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except np.linalg.LinAlgError as error:
            raise UsageError(f"expected {expected} in {name}, got another: {error}") from error

    return call


linalg = SimpleNamespace(**{name: _served(name) for name in LINALG})


def cofactor(x: Any) -> Any:
    """Return ``det(x) inv(x)^T`` where that is accurate, else by singular values."""
    try:
        inverse = np.linalg.inv(x)
    except np.linalg.LinAlgError:
        return matrices.cofactor(np, x)
    condition = np.linalg.matrix_norm(x) * np.linalg.matrix_norm(inverse)
    # From this condition on, half of the digits are lost. NaN counts as too large.
    if not np.all(condition * np.sqrt(np.finfo(x.dtype).eps) < 1.0):
        return matrices.cofactor(np, x)
    return np.linalg.det(x)[..., None, None] * inverse.mT


def diagonal_matrix(x: Any) -> Any:
    n = x.shape[-1]
    out = np.zeros((*x.shape, n), dtype=x.dtype)
    out[..., np.arange(n), np.arange(n)] = x
    return out


_SMALL = 32
"""Up to this many rows NumPy's general solution is faster than SciPy's triangular one."""


def solve_triangular(a: Any, b: Any, *, upper: bool) -> Any:
    try:
        if a.ndim > 2 or b.ndim > 2 or a.shape[-1] <= _SMALL or not b.size:
            return np.linalg.solve(np.triu(a) if upper else np.tril(a), b)
        import scipy.linalg  # Here, since it takes 0.4 s to load and few programs need it.

        return scipy.linalg.solve_triangular(a, b, lower=not upper, check_finite=False)
    except np.linalg.LinAlgError as error:
        raise UsageError(
            f"expected a triangular matrix without zeros on its diagonal in solve_triangular, got "
            f"another: {error}"
        ) from error


def expm(x: Any) -> Any:
    import scipy.linalg  # Here, for the same reason.

    return scipy.linalg.expm(x) if x.size else x


# The same product by BLAS; matmul takes 0.7 µs longer to get there, np.dot 0.3.
matrix_product = np.ndarray.dot
