"""Sums of many float32 numbers keep their digits, along whichever axis they are."""

from typing import Any

import numpy as np
import pytest

import telegrad as tg
from telegrad.arrays.backend import NUMPY

ROWS = 100_003
LAYOUTS: dict[str, tuple[Any, Any]] = {
    "rows": (lambda x: x, 0),
    "rows, counted from behind": (lambda x: x, -2),
    "rows of a stack": (lambda x: x[None], (0, 1)),
    "rows of short rows": (lambda x: np.repeat(x[:, :, None], 2, axis=2), (0, 2)),
    "columns of the transpose": (lambda x: x.T, 1),
    "every other row, from behind": (lambda x: np.repeat(x, 2, axis=0)[::-2], 0),
    "one row, seen often": (lambda x: np.broadcast_to(x[0], x.shape), 0),
    "one column, seen often": (lambda x: np.broadcast_to(x[:, :1], x.shape), 0),
    "one number, seen often": (lambda x: np.broadcast_to(x[0, 0], x.shape), 0),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("name", ["sum", "mean"])
def test_a_long_sum_is_that_of_float64_rounded(name: str, dtype: str, layout: str) -> None:
    arranged, axis = LAYOUTS[layout]
    x = arranged(np.full((ROWS, 3), 0.1 if dtype == "float32" else 0.1 - 0.3j, dtype=dtype))
    for keepdims in (False, True):
        found = getattr(NUMPY, name)(x, axis=axis, keepdims=keepdims)
        wide = x.astype("complex128" if dtype == "complex64" else "float64")
        wanted = getattr(np, name)(wide, axis=axis, keepdims=keepdims)
        assert found.dtype == dtype
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=2e-6)


def test_a_long_sum_in_another_dtype_keeps_its_digits_too() -> None:
    x = np.full((ROWS, 3), 16_777, dtype=np.int32)
    found = NUMPY.sum(x, axis=0, dtype=np.float32)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, 16_777.0 * ROWS, rtol=2e-6)


@pytest.mark.parametrize("name", ["var", "std"])
def test_a_long_spread_is_that_of_float64_rounded(name: str) -> None:
    x = (np.random.default_rng(0).random((ROWS, 3)) + 10).astype(np.float32)
    found = getattr(tg, name)(tg.asarray(x), axis=0, correction=1)
    wanted = getattr(np, name)(x.astype(np.float64), axis=0, correction=1)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=5e-6)


def test_the_gradient_of_a_bias_of_many_rows_keeps_its_digits() -> None:
    bias = tg.zeros(3).requires_grad_()
    (tg.ones((ROWS, 3)) + bias).mean().backward()
    layer = tg.nn.Linear(3, 2)
    layer(tg.ones((ROWS, 3))).mean().backward()
    for tensor, wanted in [(bias, 1 / 3), (layer.bias, 1 / 2)]:
        assert tensor is not None
        assert tensor.grad is not None
        np.testing.assert_allclose(tensor.grad.numpy(), wanted, rtol=2e-6)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_exponentials_of_many_rows_keep_their_digits(name: str) -> None:
    x = np.full((ROWS, 3), 0.1, dtype=np.float32)
    x[0] = 0.2  # so that the others' exponentials, beside the largest, are no round numbers
    found = getattr(tg, name)(tg.asarray(x), axis=0).numpy()
    wanted = getattr(tg, name)(tg.asarray(x.astype(np.float64)), axis=0).numpy()
    np.testing.assert_allclose(found, wanted, rtol=5e-6)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("include_initial", [False, True])
def test_a_long_running_sum_and_its_gradient_keep_their_digits(
    dtype: str, include_initial: bool
) -> None:
    x = tg.asarray(np.full(ROWS, 0.1, dtype=dtype)).requires_grad_()
    found = tg.cumulative_sum(x, include_initial=include_initial)
    wanted = tg.cumulative_sum(x.detach().to(tg.complex128), include_initial=include_initial)
    assert found.dtype == dtype
    np.testing.assert_allclose(found.detach().numpy(), wanted.numpy(), rtol=2e-7)
    (gradient,) = tg.autograd.grad((found * 0.1).real.sum(), x)
    assert gradient.dtype == dtype
    np.testing.assert_allclose(gradient.numpy(), 0.1 * np.arange(ROWS, 0, -1.0), rtol=2e-7)
