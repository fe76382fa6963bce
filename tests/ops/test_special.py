"""The error and gamma functions: PyTorch's values and derivatives, at the poles too."""

import subprocess
import sys
from typing import Any

import array_api_strict
import numpy as np
import pytest
import scipy.special
import torch
from tests.ops.twins import assert_twins, complexes, normals

import telegrad as tg
from telegrad.errors import DTypeError, UsageError
from telegrad.testing import gradient_check

PAIRS: dict[str, tuple[Any, Any]] = {
    "erf": (tg.erf, torch.erf),
    "erfc": (tg.erfc, torch.erfc),
    "ndtr": (tg.ndtr, torch.special.ndtr),
    "lgamma": (tg.lgamma, torch.lgamma),
    "digamma": (tg.digamma, torch.digamma),
    "polygamma 1": (lambda x: tg.polygamma(1, x), lambda x: torch.polygamma(1, x)),
    "polygamma 4": (lambda x: tg.polygamma(4, x), lambda x: torch.polygamma(4, x)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_special_function_is_pytorchs_in_value_and_both_orders(name: str) -> None:
    assert_twins(*PAIRS[name], np.abs(normals(6)) + 0.5)


@pytest.mark.parametrize("name", ["lgamma", "digamma"])
def test_gamma_functions_agree_between_the_poles(name: str) -> None:
    assert_twins(*PAIRS[name], np.asarray([-0.5, -1.25, -2.75]))


def test_gamma_functions_have_pytorchs_values_at_the_poles() -> None:
    poles = np.asarray([0.0, -1.0])
    for ours, theirs in ((tg.lgamma, torch.lgamma), (tg.digamma, torch.digamma)):
        got, expected = ours(tg.asarray(poles)), theirs(torch.tensor(poles))
        np.testing.assert_array_equal(got.numpy(), expected.numpy())


def test_erfc_keeps_its_digits_where_it_is_small() -> None:
    got = tg.erfc(tg.tensor([20.0], dtype=tg.float64)).item()
    assert got == pytest.approx(5.3958656116079012e-176, rel=1e-12)


def test_the_share_below_keeps_its_digits_for_many_float32_elements() -> None:
    x = np.linspace(-13, 13, 100_000, dtype=np.float32)
    expected = scipy.special.ndtr(x.astype(np.float64))
    np.testing.assert_allclose(tg.ndtr(tg.asarray(x)).numpy(), expected, rtol=6e-6)
    near = np.abs(x) < 3
    np.testing.assert_allclose(tg.ndtr(tg.asarray(x[near])).numpy(), expected[near], rtol=1e-6)
    turned = tg.ndtr(tg.asarray(x.reshape(-1, 10)).T).numpy()
    np.testing.assert_allclose(turned, expected.reshape(-1, 10).T, rtol=6e-6)


def test_the_share_below_infinity_is_one_and_that_below_nan_is_nan() -> None:
    x = np.zeros(3000, dtype=np.float32)
    x[:3] = np.inf, -np.inf, np.nan
    found = tg.ndtr(tg.asarray(x)).numpy()
    np.testing.assert_array_equal(found[:3], [1.0, 0.0, np.nan])
    np.testing.assert_allclose(found[3:], 0.5, rtol=1e-6)


def test_erf_is_differentiable_at_complex_numbers() -> None:
    gradient_check(tg.erf, (complexes(3),))


def test_float32_stays_float32() -> None:
    x = tg.tensor([0.5, 1.5])
    for function, _ in PAIRS.values():
        assert function(x).dtype == tg.float32
    expected = scipy.special.polygamma(2, x.numpy())
    np.testing.assert_allclose(tg.polygamma(2, x).numpy(), expected, rtol=1e-5)


def test_polygamma_of_order_zero_is_digamma() -> None:
    x = tg.tensor([0.5, 1.5])
    np.testing.assert_array_equal(tg.polygamma(0, x).numpy(), tg.digamma(x).numpy())


def test_polygamma_refuses_a_negative_order() -> None:
    with pytest.raises(UsageError, match="expected n of 0 or more in polygamma, got -1"):
        tg.polygamma(-1, tg.ones(2))


def test_scipy_is_loaded_only_when_a_special_function_is_called() -> None:
    program = (
        "import sys, telegrad as tg\n"
        "tg.softmax(tg.sigmoid(tg.ones(2)))\n"
        "assert 'scipy.special' not in sys.modules\n"
        "tg.erf(tg.ones(2))\n"
        "assert 'scipy.special' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_derivative_of_digamma_at_complex_values_is_refused_by_name() -> None:
    x = tg.tensor([1.5 + 0.5j], requires_grad=True)
    np.testing.assert_allclose(tg.digamma(x).detach(), scipy.special.digamma(x.detach()), rtol=1e-6)
    with pytest.raises(DTypeError, match=r"expected a real dtype in polygamma .* got complex64"):
        tg.autograd.grad(tg.digamma(x), x, tg.ones_like(x))
    with pytest.raises(DTypeError, match="only digamma itself takes complex values"):
        tg.autograd.functional.jvp(tg.digamma, (x.detach(),), (tg.ones_like(x),))
    with pytest.raises(DTypeError, match="expected a real dtype in polygamma"):
        tg.polygamma(1, x)


def test_the_gamma_function_is_infinite_beyond_its_poles_as_in_pytorch() -> None:
    for dtype in (np.float32, np.float64):
        ends = np.array([-np.inf, np.inf, -2.0, 0.5], dtype)
        for values in (ends, array_api_strict.asarray(ends)):
            found = tg.lgamma(tg.asarray(values))
            assert found.dtype == dtype
            expected = torch.lgamma(torch.tensor(ends)).numpy()
            np.testing.assert_allclose(np.asarray(found.array), expected, rtol=1e-6)


def test_the_second_slope_of_acosh_at_its_end_is_infinite_as_in_pytorch() -> None:
    one = tg.tensor(1.0, dtype=tg.float64)
    slope = tg.autograd.functional.grad(tg.acosh)
    assert slope(one).item() == np.inf
    assert tg.autograd.functional.grad(slope)(one).item() == -np.inf
