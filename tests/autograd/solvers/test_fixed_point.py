"""``from_fixed_point``: the implicit function theorem, any order."""

import numpy as np
import pytest
from tests.autograd.solvers.programs import balance, equilibrium

import telegrad as tg
from telegrad.autograd import from_adjoint, from_fixed_point
from telegrad.autograd import functional as F
from telegrad.errors import DTypeError, GradientError, ShapeError, UsageError
from telegrad.testing import gradient_check

RNG = np.random.default_rng(0)
W, B = RNG.normal(size=(3, 3)), RNG.normal(size=3)
ZEROS = tg.zeros(3, dtype=tg.float64)


def test_both_modes_agree_with_differences_at_second_order():
    gradient_check(lambda w, b: equilibrium(ZEROS, w, b), [W, B], order=2)


def test_third_order_agrees_with_a_closed_form():
    # The fixed point of Heron's step is the square root.
    root = from_fixed_point(lambda x, a: (x + a / x) / 2.0)
    f = lambda a: root(tg.tensor(1.0, dtype=tg.float64), a)
    a = tg.tensor(2.0, dtype=tg.float64)
    derivative = f
    for expected in (2**0.5, 0.5 * 2**-0.5, -0.25 * 2**-1.5, 0.375 * 2**-2.5):
        assert derivative(a).item() == pytest.approx(expected, rel=1e-9)
        derivative = F.grad(derivative)


def test_gradients_are_those_of_the_iteration_itself():
    def iterated(w, b):
        x = ZEROS
        for _ in range(200):
            x = balance(x, w, b)
        return (x**2).sum()

    implicit = lambda w, b: (equilibrium(ZEROS, w, b) ** 2).sum()
    for f, g in zip(
        F.grad(iterated, (0, 1))(tg.tensor(W), tg.tensor(B)),
        F.grad(implicit, (0, 1))(tg.tensor(W), tg.tensor(B)),
    ):
        assert np.allclose(f.numpy(), g.numpy(), rtol=1e-9)


def test_a_solver_of_ones_own_finds_points_that_iterating_does_not():
    def step(x, a):
        return x**3 - a + x  # Moves away from where x³ = a.

    def newton(x, a):
        for _ in range(60):
            x = x - (x**3 - a) / (3.0 * x**2)
        return x

    f = from_fixed_point(step, newton)
    gradient_check(lambda a: f(tg.ones_like(a), a), [np.array([2.0, 5.0])], order=2)
    found = pytest.raises(UsageError, match="fixed point of step within 1000 iterations")
    with np.errstate(over="ignore"), found:
        from_fixed_point(step)(tg.ones(1), tg.tensor([2.0]))


def test_iterating_ends_after_the_number_that_was_allowed():
    met = []

    def halved(x, a):
        met.append(None)
        return x / 2 + a

    with pytest.raises(UsageError, match="fixed point of halved within 5 iterations"):
        from_fixed_point(halved, max_iterations=5)(tg.ones(1), tg.tensor([2.0]))
    # Once more to see how far it is off.
    assert len(met) == 6


def test_a_black_box_inside_has_first_derivatives_in_reverse_mode():
    box = from_adjoint(
        lambda x, b: (0.5 * np.cos(x) + b, x), lambda x, v: (-0.5 * np.sin(x) * v, v)
    )
    f = from_fixed_point(box)
    gradient_check(lambda b: f(ZEROS, b), [B], modes=["reverse"], order=1)


def test_the_guess_has_no_gradient():
    guess = tg.tensor(np.zeros(3), requires_grad=True)
    x = equilibrium(guess, tg.tensor(W), tg.tensor(B, requires_grad=True))
    x.sum().backward()
    assert guess.grad is None


def test_single_precision_converges_too():
    x = equilibrium(tg.zeros(3), tg.tensor(W, dtype=tg.float32), tg.tensor(B, dtype=tg.float32))
    assert x.dtype == tg.float32


def test_a_point_that_is_not_isolated_has_no_derivative_and_says_so():
    still = from_fixed_point(lambda x, a: x + 0.0 * a)
    a = tg.tensor(np.ones(3), requires_grad=True)
    x = still(ZEROS, a)
    with pytest.raises(GradientError, match="expected an isolated fixed point of <lambda>"):
        x.sum().backward()


def test_what_is_no_number_ends_the_search_with_an_error():
    f = from_fixed_point(lambda x, a: x * a / 0.0)
    with np.errstate(all="ignore"), pytest.raises(UsageError, match="one that moves by nan"):
        f(tg.ones(2), tg.tensor([1.0, 2.0]))


def test_a_captured_tensor_with_a_derivative_is_refused():
    b = tg.tensor(B, requires_grad=True)
    with pytest.raises(GradientError, match="but it uses a Tensor with a derivative"):
        from_fixed_point(lambda x: 0.5 * tg.cos(x) + b)(ZEROS)


def test_wrong_arguments_are_refused():
    with pytest.raises(UsageError, match="expected functions for from_fixed_point, got int"):
        from_fixed_point(3)
    with pytest.raises(DTypeError, match="floating Tensor as the first guess for balance, got int"):
        equilibrium(3, tg.tensor(W), tg.tensor(B))
    with pytest.raises(ShapeError, match=r"expected shape \(3,\) from <lambda>, that of its argu"):
        from_fixed_point(lambda x: x[:2])(ZEROS)
    with pytest.raises(DTypeError, match="expected a Tensor from <lambda>"):
        from_fixed_point(lambda x: 1.0)(ZEROS)
    with pytest.raises(DTypeError, match="expected a Tensor as the fixed point of balance"):
        from_fixed_point(balance, lambda x, w, b: 1.0)(ZEROS, tg.tensor(W), tg.tensor(B))
