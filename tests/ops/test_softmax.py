"""Softmax, its logarithm and logsumexp: stable, and PyTorch's in every derivative."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.ops.twins import assert_twins, normals

import telegrad as tg
from telegrad.errors import DTypeError, ShapeError

INF = float("inf")


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_the_functions_are_pytorchs_in_value_and_both_orders(name: str, axis: int) -> None:
    ours, theirs = getattr(tg, name), getattr(torch, name)
    assert_twins(lambda x: ours(x, axis=axis), lambda x: theirs(x, axis), normals(2, 3, 2))


def test_logsumexp_goes_over_several_axes_or_all() -> None:
    x = normals(2, 3, 2)
    assert_twins(lambda x: tg.logsumexp(x, axis=(0, 2)), lambda x: torch.logsumexp(x, (0, 2)), x)
    assert_twins(tg.logsumexp, lambda x: torch.logsumexp(x, (0, 1, 2)), x)
    assert tg.logsumexp(tg.asarray(x), axis=(0, 2), keepdims=True).shape == (1, 3, 1)


def test_softmax_over_several_axes_sums_to_one() -> None:
    y = tg.softmax(tg.asarray(normals(2, 3, 4)), axis=(0, 2))
    np.testing.assert_allclose(y.sum(axis=(0, 2)).numpy(), np.ones(3))


@pytest.mark.parametrize("shift", [1e4, -1e4])
def test_large_values_neither_overflow_nor_underflow(shift: float) -> None:
    for ours, theirs in ((tg.softmax, torch.softmax), (tg.log_softmax, torch.log_softmax)):
        assert_twins(lambda x: ours(x, axis=-1), lambda x: theirs(x, -1), normals(2, 3) + shift)  # noqa: B023
    assert_twins(
        lambda x: tg.logsumexp(x, axis=-1),
        lambda x: torch.logsumexp(x, -1),
        normals(2, 3) + shift,
    )


def values_and_gradients(name: str, row: list[float]) -> list[Any]:
    x = tg.tensor(row, dtype=tg.float64, requires_grad=True)
    y = getattr(tg, name)(x, axis=0)
    tx = torch.tensor(row, dtype=torch.float64, requires_grad=True)
    ty = getattr(torch, name)(tx, 0)
    (got,) = tg.autograd.grad(y, x, tg.ones_like(y))
    (expected,) = torch.autograd.grad(ty, tx, torch.ones_like(ty))
    return [y.detach().numpy(), ty.detach().numpy(), got.numpy(), expected.numpy()]


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_masked_elements_have_no_weight_as_in_pytorch(name: str) -> None:
    y, ty, gradient, expected = values_and_gradients(name, [1.0, -INF, 2.0])
    np.testing.assert_allclose(y, ty)
    np.testing.assert_allclose(gradient, expected, atol=1e-15)


def test_logsumexp_of_nothing_but_minus_infinity_is_that_with_slope_zero() -> None:
    y, ty, gradient, _ = values_and_gradients("logsumexp", [-INF, -INF])
    assert y == ty == -INF
    np.testing.assert_array_equal(gradient, [0.0, 0.0])


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_softmax_of_nothing_but_minus_infinity_is_nan_as_in_pytorch() -> None:
    y, ty, *_ = values_and_gradients("softmax", [-INF, -INF])
    assert np.isnan(y).all()
    assert np.isnan(ty).all()


def test_a_single_number_counts_as_one_element() -> None:
    x = tg.tensor(3.0)
    assert tg.softmax(x).item() == 1.0
    assert tg.log_softmax(x).item() == 0.0
    assert tg.logsumexp(x).item() == 3.0


def test_the_sum_over_no_elements_is_zero() -> None:
    assert tg.logsumexp(tg.ones((2, 0)), axis=1).tolist() == [-INF, -INF]
    assert tg.softmax(tg.ones((2, 0)), axis=1).shape == (2, 0)


def test_integers_become_float32() -> None:
    x = tg.asarray([1, 2])
    for function in (tg.softmax, tg.log_softmax, tg.logsumexp):
        assert function(x).dtype == tg.float32


def test_complex_numbers_are_refused() -> None:
    with pytest.raises(DTypeError, match="expected real values in softmax, got complex64"):
        tg.softmax(tg.asarray([1j, 2.0]))


def test_an_axis_that_is_not_there_is_refused() -> None:
    with pytest.raises(ShapeError, match="expected an axis from -2 to 1 in softmax, got 2"):
        tg.softmax(tg.ones((2, 2)), axis=2)
