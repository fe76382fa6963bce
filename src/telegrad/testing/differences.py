"""Jacobians by evaluating the function only: the reference for derivative rules.

There are two methods. Central differences with four points have an error that falls with the fourth
power of the step. If the function is analytic, one evaluation at ``x + ih`` for each column is
enough, where nothing cancels. Whether it is analytic is found out by trying: the complex step is
used only if, along one random direction, it agrees with central differences.
"""

import warnings
from collections.abc import Callable

import numpy as np

from telegrad.errors import TelegradError
from telegrad.testing.layout import Array

_TINY = 1e-30
"""The complex step, so small that its square vanishes beside 1."""

Vectors = Callable[[Array], Array]


def jacobian(f: Vectors, at: Array, step: float, probe: Array, analytic: Vectors | None) -> Array:
    """Return the matrix of partial derivatives of `f`, a function of real vectors.

    `analytic` is f on complex vectors, if that may be possible; `probe` is the direction to try.
    """
    columns = at.size
    if not columns:
        return np.zeros((f(at).size, 0))
    if analytic is not None and _agree(f, analytic, at, step, probe):
        return np.stack([_complex_step(analytic, at, e) for e in np.eye(columns)], axis=1)
    return np.stack([_central(f, at, step, e) for e in np.eye(columns)], axis=1)


def _central(f: Vectors, at: Array, step: float, direction: Array) -> Array:
    near = f(at + step * direction) - f(at - step * direction)
    far = f(at + 2 * step * direction) - f(at - 2 * step * direction)
    slope: Array = (8 * near - far) / (12 * step)
    return slope


def _complex_step(f: Vectors, at: Array, direction: Array) -> Array:
    slope: Array = f(at + 1j * _TINY * direction).imag / _TINY
    return slope


def _agree(f: Vectors, analytic: Vectors, at: Array, step: float, probe: Array) -> bool:
    expected = _central(f, at, step, probe)
    with warnings.catch_warnings():
        # A cast to a real dtype would drop the imaginary part, and with it the derivative.
        warnings.simplefilter("error", np.exceptions.ComplexWarning)
        try:
            found = _complex_step(analytic, at, probe)
        except (TelegradError, TypeError, ValueError, ArithmeticError, RuntimeWarning):
            return False
    if found.shape != expected.shape:
        return False
    size = min(1.0, np.abs(expected).max(initial=0.0))
    return np.allclose(found, expected, rtol=1e-6, atol=1e-8 * size)
