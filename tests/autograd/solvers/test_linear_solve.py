"""``from_linear_solve``: any solver of linear systems, any order."""

import numpy as np
import pytest
from tests.autograd.solvers import programs
from tests.autograd.solvers.programs import sparse

import telegrad as tg
from telegrad.autograd import from_linear_solve
from telegrad.autograd import functional as F
from telegrad.errors import DTypeError, GradientError, ShapeError, UsageError
from telegrad.testing import gradient_check

RNG = np.random.default_rng(0)
D, B = RNG.uniform(1.5, 2.5, 4), RNG.normal(size=4)
M = RNG.normal(size=(3, 3)) + 3 * np.eye(3)


def multiply(a, x):
    return a @ x


def transposed(a, b):
    return np.linalg.solve(np.conj(a.T), b)


def test_a_sparse_solver_agrees_with_differences_at_second_order():
    gradient_check(sparse, [D, B], order=2)


def test_it_agrees_with_the_dense_row_at_third_order():
    solve = from_linear_solve(multiply, np.linalg.solve, transposed)
    gradient_check(solve, [M, RNG.normal(size=3)], order=3)
    b = tg.tensor(RNG.normal(size=3))
    loss = lambda f: lambda a: (f(a, b) ** 2).sum()
    ours = F.hessian(loss(solve))(tg.tensor(M))
    theirs = F.hessian(loss(tg.linalg.solve))(tg.tensor(M))
    assert np.allclose(ours.numpy(), theirs.numpy())


def test_a_symmetric_system_needs_one_solver():
    symmetric = M @ M.T
    solve = from_linear_solve(
        lambda scale, x: scale * (tg.tensor(symmetric) @ x),
        lambda scale, b: np.linalg.solve(scale * symmetric, b),
        symmetric=True,
    )
    gradient_check(solve, [np.array(1.3), RNG.normal(size=3)], order=2)


def test_complex_systems_follow_the_convention():
    z = M + 1j * RNG.normal(size=(3, 3))
    solve = from_linear_solve(multiply, np.linalg.solve, transposed)
    gradient_check(solve, [z, RNG.normal(size=3) + 0.3j], order=2)


def test_single_precision_stays_single():
    x = sparse(tg.tensor(D, dtype=tg.float32), tg.tensor(B, dtype=tg.float32))
    assert x.dtype == tg.float32


def test_parameters_that_are_no_tensors_are_passed_along():
    solve = from_linear_solve(
        lambda a, power, x: a**power * x, lambda a, power, b: b / a**power, symmetric=True
    )
    gradient_check(lambda a, b: solve(a, 3, b), [D, B], order=2)


def test_a_solution_of_another_system_is_refused():
    solve = from_linear_solve(multiply, lambda a, b: np.linalg.solve(2 * a, b))
    with pytest.raises(GradientError, match=r"off by .* allowed: apply and solve are of different"):
        solve(tg.tensor(M), tg.tensor(B[:3]))
    other = from_linear_solve(multiply, np.linalg.solve, np.linalg.solve)
    x = other(tg.tensor(M), tg.tensor(B[:3], requires_grad=True))
    with pytest.raises(GradientError, match="solution of the system from solve_transposed"):
        x.sum().backward()


def test_reverse_mode_without_a_transposed_solver_is_refused():
    x = from_linear_solve(multiply, np.linalg.solve)(
        tg.tensor(M), tg.tensor(B[:3], requires_grad=True)
    )
    with pytest.raises(GradientError, match="symmetric=True where the matrix is its own transpose"):
        x.sum().backward()


def test_a_captured_tensor_with_a_derivative_is_refused():
    scale = tg.tensor(2.0, dtype=tg.float64, requires_grad=True)
    solve = from_linear_solve(
        lambda x: scale * x, lambda b: b / scale.detach().numpy(), symmetric=True
    )
    with pytest.raises(GradientError, match="which would be lost; make it a parameter"):
        solve(tg.tensor(B))


def test_wrong_arguments_are_refused():
    with pytest.raises(UsageError, match="expected a function as solve of from_linear_solve"):
        from_linear_solve(multiply, 3)
    with pytest.raises(UsageError, match="either symmetric=True or solve_transposed, got both"):
        from_linear_solve(multiply, np.linalg.solve, transposed, symmetric=True)
    with pytest.raises(DTypeError, match="floating Tensor b as the last argument of sparse_solve"):
        sparse(tg.tensor(D), tg.tensor([1, 2, 3, 4]).numpy())
    wrong = from_linear_solve(programs.sparse_apply, lambda d, b: b[:2])
    with pytest.raises(ShapeError, match=r"expected shape \(4,\) as the solution that <lambda> gi"):
        wrong(tg.tensor(D), tg.tensor(B))
