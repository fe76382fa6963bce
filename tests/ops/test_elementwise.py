"""Functions of each element: magnitudes, rounding, parts, bounds and choices."""

import enum
from typing import Any

import numpy as np
import pytest
import torch
from tests.ops.twins import assert_twins, complexes, normals

import telegrad as tg
from telegrad.errors import DTypeError, ShapeError, UsageError

inf, nan = float("inf"), float("nan")
VALUES = np.array([-2.5, -0.5, -0.0, 0.0, 0.4, 1.5, 2.5, inf, -inf, nan])


@pytest.mark.parametrize("name", ["abs", "sign", "ceil", "floor", "round", "trunc"])
def test_one_value_is_that_of_numpy(name: str) -> None:
    ours = getattr(tg, name)(tg.asarray(VALUES)).numpy()
    theirs = getattr(np, name)(VALUES)
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(np.signbit(ours), np.signbit(theirs))
    whole = np.array([-3, 0, 4], dtype=np.int16)
    counted = getattr(tg, name)(tg.asarray(whole))
    assert counted.dtype == tg.int16
    np.testing.assert_array_equal(counted.numpy(), getattr(np, name)(whole))


@pytest.mark.parametrize("name", ["copysign", "nextafter"])
def test_two_values_are_those_of_numpy(name: str) -> None:
    ours = getattr(tg, name)(tg.asarray(VALUES), tg.asarray(VALUES[::-1]))
    np.testing.assert_array_equal(ours.numpy(), getattr(np, name)(VALUES, VALUES[::-1]))


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [(inf, 2.0, inf), (inf, -2.0, -inf), (1.0, -inf, -0.0), (-1.0, inf, -0.0), (7.0, 2.0, 3.0)],
)
def test_floor_divide_has_the_infinities_of_the_standard(
    x: float, y: float, expected: float
) -> None:
    found = tg.floor_divide(tg.asarray(x), tg.asarray(y)).item()
    assert (found, np.signbit(found)) == (expected, np.signbit(expected))


def test_complex_expm1_and_tanh_have_the_special_values_of_the_standard() -> None:
    ends = tg.asarray(np.array([complex(inf, 2.0), complex(-inf, -2.0)]))
    found = tg.tanh(ends).numpy()
    assert found.tolist() == [1 + 0j, -1 + 0j]
    assert np.signbit(found.imag).tolist() == [False, True]
    assert tg.expm1(tg.asarray(np.array([complex(-inf, inf)]))).tolist() == [-1 + 0j]


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_a_complex_log1p_keeps_its_digits_where_it_is_small(dtype: str) -> None:
    values = [1e-20, -1e-20, 1e-10 + 0j, 1e-10j, 3e-9 - 1e-9j, -0.3 + 0.1j, 2 - 5j, 1e20j, -2]
    x = np.array(values, dtype=dtype)
    found = tg.log1p(tg.asarray(x)).numpy()
    wanted = torch.log1p(torch.tensor(x)).numpy()
    assert found.dtype == dtype
    for part in ("real", "imag"):
        np.testing.assert_allclose(getattr(found, part), getattr(wanted, part), rtol=1e-6)


def test_a_complex_log1p_mirrors_the_sign_of_a_zero_and_has_its_pole() -> None:
    x = np.array([complex(0.5, 0.0), complex(0.5, -0.0), complex(-3.0, -0.0)])
    assert np.signbit(tg.log1p(tg.asarray(x)).numpy().imag).tolist() == [False, True, True]
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        assert tg.log1p(tg.asarray(complex(-1.0, 0.0))).item() == complex(-inf, 0.0)


def test_the_derivative_of_a_complex_magnitude_and_direction_is_that_of_pytorch() -> None:
    assert_twins(tg.abs, torch.abs, complexes(3))
    assert_twins(tg.sign, torch.sgn, complexes(3))
    zeros = np.zeros(2, dtype=complex)
    assert_twins(tg.abs, torch.abs, zeros, second=False)
    assert_twins(tg.sign, torch.sgn, zeros, second=False)


def test_parts_of_complex_values_are_differentiated_as_in_pytorch() -> None:
    def ours(z: Any) -> Any:
        return tg.real(z) * tg.imag(z) + tg.real(tg.conj(z) * z * z)

    def theirs(z: Any) -> Any:
        return torch.real(z) * torch.imag(z) + torch.real(torch.conj(z) * z * z)

    assert_twins(ours, theirs, complexes(2, 2))


def test_parts_of_real_values_are_themselves_and_zero() -> None:
    x = tg.ones(2)
    assert tg.real(x) is x
    assert tg.conj(x) is x
    assert tg.imag(x).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("low", "high"), [(-0.5, None), (None, 0.5), (-0.5, 0.5), (None, None), (1.0, -1.0)]
)
def test_clip_is_pytorchs_clamp(low: Any, high: Any) -> None:
    def theirs(x: Any) -> Any:
        return x + 0 if low is high is None else torch.clamp(x, low, high)

    assert_twins(lambda x: tg.clip(x, low, high), theirs, normals(4, 3))


def test_the_bounds_of_clip_may_be_tensors_that_require_grad() -> None:
    arrays = normals(4, 3), normals(3) - 0.5, normals(4, 1) + 0.5
    assert_twins(tg.clip, torch.clamp, *arrays)


def test_a_value_on_a_bound_keeps_its_whole_gradient() -> None:
    at = np.array([-1.0, 1.0])
    assert_twins(lambda x: tg.clip(x, -1, 1), lambda x: torch.clamp(x, -1, 1), at)


def test_clip_keeps_the_dtype_of_integers() -> None:
    clipped = tg.clip(tg.arange(5, dtype=tg.int8), 1, 3)
    assert clipped.dtype == tg.int8
    assert clipped.tolist() == [1, 1, 2, 3, 3]


def test_a_condition_that_requires_grad_is_only_looked_at() -> None:
    x = tg.tensor([1.0, 0.0], requires_grad=True)
    tg.where(x, x * 2.0, x * 3.0).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 3.0]


def test_where_promotes_its_values_together_but_not_with_the_condition() -> None:
    mask = tg.asarray([True, False])
    assert tg.where(mask, tg.arange(2), tg.ones(2)).dtype == tg.float32
    assert tg.where(mask, 1, 2.5).tolist() == [1.0, 2.5]
    assert tg.where(mask, tg.ones(2, dtype=tg.float64), 0).dtype == tg.float64
    assert tg.where(mask, tg.arange(2, dtype=tg.int8), 0).dtype == tg.int8


def test_triangles_of_matrices_are_those_of_numpy_and_vectors_are_refused() -> None:
    x = normals(2, 3, 4)
    np.testing.assert_array_equal(tg.tril(tg.asarray(x), k=1).numpy(), np.tril(x, 1))
    np.testing.assert_array_equal(tg.triu(tg.asarray(x), k=-1).numpy(), np.triu(x, -1))
    with pytest.raises(ShapeError, match="matrices"):
        tg.tril(tg.ones(3))


def test_rounding_sends_a_gradient_of_zeros() -> None:
    x = tg.tensor([0.3, 1.7], requires_grad=True)
    (tg.round(x) + tg.floor(x) + tg.ceil(x) + tg.trunc(x)).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 0.0]


def test_a_comparison_of_tensors_that_require_grad_is_a_constant() -> None:
    x = tg.tensor([0.3, 1.7], requires_grad=True)
    assert not (x > 1).requires_grad
    assert not tg.isnan(x).requires_grad


def test_the_next_number_moves_with_the_number_not_with_where_it_looks() -> None:
    x = tg.tensor([0.3, 1.7], requires_grad=True)
    y = tg.tensor(5.0, requires_grad=True)
    tg.nextafter(x, y).sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    assert x.grad.tolist() == [1.0, 1.0]
    assert y.grad.item() == 0.0
    _, tangent = tg.autograd.functional.jvp(tg.nextafter, (x.detach(), 5.0), (x.detach(), 7.0))
    assert tangent.tolist() == x.tolist()


def test_slopes_at_the_ends_of_the_number_line_are_those_of_pytorch() -> None:
    ends = np.array([0.0, 1.0, -1.0, 1e200, -1e200, 800.0, -800.0])
    x, y = (a.reshape(-1) for a in np.meshgrid(ends, ends))
    for name in ("logaddexp", "maximum", "minimum", "pow"):
        with np.errstate(all="ignore"):
            assert_twins(getattr(tg, name), getattr(torch, name), x, y, second=False)


def test_the_angle_has_no_slope_at_the_origin_and_an_exact_one_next_to_it() -> None:
    x = tg.tensor([0.0, 1e-200], dtype=tg.float64, requires_grad=True)
    tg.atan2(x, tg.tensor([0.0, 1e-200], dtype=tg.float64)).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, pytest.approx(5e199)]


def test_nan_as_the_result_of_a_choice_keeps_the_gradient() -> None:
    x = tg.tensor([nan, 1.0], requires_grad=True)
    tg.maximum(x, tg.tensor([2.0, nan])).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1.0, 1.0]


def test_an_error_that_is_not_about_shapes_does_not_speak_of_them() -> None:
    with pytest.raises(DTypeError, match=r"int64 and int64.*negative integer powers"):
        tg.tensor([2]) ** -1


def test_the_tensor_of_another_library_is_named_in_full() -> None:
    with pytest.raises(DTypeError, match=r"argument 1 of add, got torch\.Tensor; convert it"):
        tg.ones(2) + torch.ones(2)


class Size(enum.IntEnum):
    TWO = 2


def test_a_number_of_a_subclass_is_taken_as_the_number_it_is() -> None:
    assert (tg.ones(2) * Size.TWO).tolist() == [2.0, 2.0]
    assert (tg.arange(2) + Size.TWO).dtype == tg.int64
    assert tg.full((1,), Size.TWO).dtype == tg.int64


def test_a_tensor_is_not_made_by_its_class() -> None:
    with pytest.raises(UsageError, match=r"telegrad\.tensor\(data\)"):
        tg.Tensor([1.0])


def test_the_slope_of_a_power_grows_with_an_exponent_of_zero() -> None:
    x, y = (tg.tensor([a, 0.0], dtype=tg.float64, requires_grad=True) for a in (4.0, 0.0))
    [by_x] = tg.autograd.grad((x**y).sum(), [x], create_graph=True)
    assert by_x.tolist() == [0.0, 0.0]
    [by_both] = tg.autograd.grad(by_x.sum(), [y])
    assert by_both.tolist() == [0.25, 0.0]
    hessian = tg.autograd.functional.hessian(lambda x, y: x**y, argnums=(0, 1))
    (_, across), (down, _) = hessian(tg.tensor(4.0), tg.tensor(0.0))
    assert across.item() == down.item() == 0.25


def test_what_remains_of_an_infinite_divisor_moves_with_it_where_it_was_added() -> None:
    x, y = np.array([-1.0, 1.0, 0.0, -1.0, 1.0]), np.array([inf, inf, inf, -inf, -inf])
    ours = [tg.tensor(a, requires_grad=True) for a in (x, y)]
    theirs = [torch.tensor(a, requires_grad=True) for a in (x, y)]
    found, expected = tg.remainder(*ours), torch.remainder(*theirs)
    np.testing.assert_array_equal(found.detach().numpy(), expected.detach().numpy())
    found.backward(tg.ones_like(found))
    expected.sum().backward()
    for a, b in zip(ours, theirs):
        assert a.grad is not None
        np.testing.assert_array_equal(a.grad.numpy(), b.grad.numpy())


def test_the_reciprocal_of_a_complex_zero_is_infinite_as_a_quotient_is() -> None:
    with np.errstate(all="ignore"):
        found = tg.reciprocal(tg.tensor([0j, 2j])).numpy()
    beside = torch.reciprocal(torch.tensor([0j, 2j])).numpy()
    np.testing.assert_array_equal(found, beside)
    assert found[0].real == np.inf
