"""Activations: PyTorch's values and derivatives, and what happens far from zero."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.ops.twins import assert_twins, complexes, normals

import telegrad as tg
from telegrad.arrays.backend import NUMPY, Backend
from telegrad.errors import DTypeError, UsageError

F = torch.nn.functional
PAIRS: dict[str, tuple[Any, Any]] = {
    "sigmoid": (tg.sigmoid, torch.sigmoid),
    "log_sigmoid": (tg.log_sigmoid, F.logsigmoid),
    "softplus": (tg.softplus, F.softplus),
    "softplus, beta": (lambda x: tg.softplus(x, beta=2.5), lambda x: F.softplus(x, beta=2.5)),
    "silu": (tg.silu, F.silu),
    "gelu": (tg.gelu, F.gelu),
    "gelu, tanh": (
        lambda x: tg.gelu(x, approximate="tanh"),
        lambda x: F.gelu(x, approximate="tanh"),
    ),
    "relu": (tg.relu, torch.relu),
}


@pytest.mark.parametrize("name", PAIRS)
def test_an_activation_is_pytorchs_in_value_and_both_orders(name: str) -> None:
    assert_twins(*PAIRS[name], normals(3, 4))


def test_sigmoid_and_silu_take_complex_numbers() -> None:
    assert_twins(tg.sigmoid, torch.sigmoid, complexes(3))
    # PyTorch's own silu is not differentiable there.
    assert_twins(tg.silu, lambda x: x * torch.sigmoid(x), complexes(3))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sigmoid_keeps_its_digits_where_it_is_small(dtype: str) -> None:
    x = np.asarray([-80.0, -40.0, -20.0], dtype=dtype)
    got = tg.sigmoid(tg.asarray(x)).numpy()
    np.testing.assert_allclose(got, np.exp(x.astype("float64")), rtol=1e-6)


@pytest.mark.parametrize("backend", [NUMPY, Backend("plain", np)], ids=["numpy", "plain"])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_a_complex_sigmoid_keeps_its_digits_where_it_is_small(backend: Any, dtype: str) -> None:
    x = np.asarray([-80.0 + 1j, -40.0 - 2j, -20.0 + 3j], dtype=dtype)
    with np.errstate(over="raise", invalid="raise"):
        got = backend.sigmoid(x)
        np.testing.assert_array_equal(backend.sigmoid(x * 1000 - 5j).real, 0)
        np.testing.assert_array_equal(backend.sigmoid(x * -1000), 1)
    assert got.dtype == dtype
    np.testing.assert_allclose(got, np.exp(x.astype("complex128")), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", PAIRS)
def test_an_activation_stays_finite_and_quiet_far_out(name: str, dtype: str) -> None:
    x = tg.tensor([-1e4, -800.0, 800.0, 1e4], dtype=dtype, requires_grad=True)
    with np.errstate(over="raise", invalid="raise"):
        y = PAIRS[name][0](x)
        (gradient,) = tg.autograd.grad(y.sum(), x)
    assert np.isfinite(y.detach().numpy()).all()
    assert np.isfinite(gradient.numpy()).all()


def test_activations_carry_nan_and_know_infinity() -> None:
    x = tg.tensor([float("nan"), float("inf"), -float("inf")])
    np.testing.assert_array_equal(tg.sigmoid(x).numpy(), [np.nan, 1.0, 0.0])
    np.testing.assert_array_equal(tg.relu(x).numpy(), [np.nan, np.inf, 0.0])
    np.testing.assert_array_equal(tg.softplus(x).numpy(), [np.nan, np.inf, 0.0])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_silu_and_its_slope_vanish_at_the_lowest_numbers(dtype: str) -> None:
    x = tg.tensor([float(np.finfo(dtype).min)], dtype=dtype, requires_grad=True)
    y = tg.silu(x)
    (gradient,) = tg.autograd.grad(y.sum(), x)
    assert (y.item(), gradient.item()) == (0.0, 0.0)


def test_relu_of_integers_are_integers_as_in_pytorch() -> None:
    found, expected = tg.relu(tg.tensor([-1, 2])), torch.relu(torch.tensor([-1, 2]))
    assert found.dtype == tg.int64
    assert found.tolist() == expected.tolist()


def test_relu_has_slope_zero_at_zero_as_in_pytorch() -> None:
    x = tg.tensor([0.0], requires_grad=True)
    (gradient,) = tg.autograd.grad(tg.relu(x).sum(), x)
    assert gradient.item() == 0.0


def test_integers_become_float32_but_for_relu() -> None:
    for name, (function, _) in PAIRS.items():
        expected = tg.int64 if name == "relu" else tg.float32
        assert function(tg.asarray([1, 2])).dtype == expected


@pytest.mark.parametrize("name", ["relu", "softplus", "log_sigmoid"])
def test_complex_numbers_are_refused_where_an_order_is_needed(name: str) -> None:
    function = "softplus" if name == "log_sigmoid" else name
    with pytest.raises(DTypeError, match=f"expected real values in {function}, got complex64"):
        PAIRS[name][0](tg.asarray([1j]))


@pytest.mark.parametrize("name", ["relu", "softplus"])
def test_a_library_without_an_activation_refuses_complex_numbers_in_it_too(name: str) -> None:
    with pytest.raises(DTypeError, match=f"expected real values in {name}, got complex64"):
        getattr(Backend("plain", np), name)(np.ones(2, dtype="complex64"))


def test_gelu_refuses_an_approximation_it_does_not_know() -> None:
    with pytest.raises(UsageError, match="expected 'none' or 'tanh' as approximate in gelu"):
        tg.gelu(tg.ones(2), approximate="erf")  # type: ignore[arg-type]


def test_softplus_refuses_a_beta_that_is_not_positive() -> None:
    with pytest.raises(UsageError, match="expected a positive beta in softplus, got 0"):
        tg.softplus(tg.ones(2), beta=0)


def test_the_slope_of_relu_can_be_differentiated_again_and_gives_zeros() -> None:
    values = normals(3, 4)
    x = tg.tensor(values, requires_grad=True)
    (slope,) = tg.autograd.grad(tg.relu(x).sum(), x, create_graph=True)
    (second,) = tg.autograd.grad(slope.sum(), x)
    y = torch.tensor(values, requires_grad=True)
    (expected,) = torch.autograd.grad(torch.relu(y).sum(), y, create_graph=True)
    assert slope.requires_grad == expected.requires_grad
    np.testing.assert_array_equal(slope.detach(), expected.detach())
    (expected,) = torch.autograd.grad(expected.sum(), y)
    np.testing.assert_array_equal(second, expected)
