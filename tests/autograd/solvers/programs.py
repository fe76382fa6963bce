"""Solvers that the tests run, here and on workers."""

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg
from scipy.integrate import solve_ivp

import telegrad as tg
from telegrad.autograd import from_adjoint, from_fixed_point, from_linear_solve


class Saved:
    """What a solver keeps; counted, to see it freed."""

    alive = 0

    def __init__(self, *values):
        self.values = values
        Saved.alive += 1

    def __del__(self):
        Saved.alive -= 1


RUNS = []


def dense(a, b):
    """A linear system by its factors, which the adjoint uses again."""
    RUNS.append("solve")
    factors = scipy.linalg.lu_factor(a)
    x = scipy.linalg.lu_solve(factors, b)
    return x, Saved(factors, x)


def dense_adjoint(saved, cotangent):
    RUNS.append("adjoint")
    factors, x = saved.values
    weights = scipy.linalg.lu_solve(factors, cotangent, trans=1)
    return -np.outer(weights, x), weights


def dense_tangent(saved, a, b):
    factors, x = saved.values
    return scipy.linalg.lu_solve(factors, b - a @ x)


black_box = from_adjoint(dense, dense_adjoint, dense_tangent)
reverse_only = from_adjoint(dense, dense_adjoint)


def counts():
    import gc

    gc.collect()
    return Saved.alive, len(RUNS)


def decay(rate, start):
    """An initial value problem by scipy.integrate, y' = -rate y; y(1), and its adjoint by hand."""
    options = {"rtol": 1e-11, "atol": 1e-12}
    end = solve_ivp(lambda t, y: -rate * y, (0, 1), start, **options).y[:, -1]
    return end, (rate, end)


def decay_adjoint(saved, cotangent):
    rate, end = saved
    options = {"rtol": 1e-11, "atol": 1e-12}

    def backwards(t, state):
        y, weights = np.split(state[:-1], 2)
        return np.concatenate([rate * y, -rate * weights, [weights @ y]])

    state = np.concatenate([end, cotangent, [0.0]])
    last = solve_ivp(backwards, (0, 1), state, **options).y[:, -1]
    return -last[-1], last[len(end) : -1]


decayed = from_adjoint(decay, decay_adjoint)


def roots(a, b):
    """Both solutions of x² + a x + b = 0, by NumPy; the rules are telegrad's, so any order."""
    x, y = a.detach().numpy(), b.detach().numpy()
    half = np.sqrt(x * x / 4 - y)
    low, high = tg.asarray(-x / 2 - half), tg.asarray(-x / 2 + half)
    return (low, high), {"a": a, "low": low, "high": high}


def roots_adjoint(saved, low, high):
    # From (2 x + a) dx + x da + db = 0.
    by_low = -low / (2.0 * saved["low"] + saved["a"])
    by_high = -high / (2.0 * saved["high"] + saved["a"])
    return by_low * saved["low"] + by_high * saved["high"], by_low + by_high


def roots_tangent(saved, a, b):
    return tuple(
        -(a * saved[each] + b) / (2.0 * saved[each] + saved["a"]) for each in ("low", "high")
    )


quadratic = from_adjoint(roots, roots_adjoint, roots_tangent, differentiable=True)

_SHIFT = scipy.sparse.csr_matrix(np.eye(4, k=1) * 0.3 - np.eye(4, k=-2) * 0.5)


def sparse_apply(diagonal, x):
    shifted = tg.concat([0.3 * x[1:], tg.zeros(1, dtype=x.dtype)])
    back = tg.concat([tg.zeros(2, dtype=x.dtype), -0.5 * x[:-2]])
    return diagonal * x + shifted + back


def sparse_solve(diagonal, b):
    matrix = scipy.sparse.diags(diagonal) + _SHIFT
    return scipy.sparse.linalg.spsolve(matrix.tocsc(), b)


def sparse_solve_transposed(diagonal, b):
    matrix = scipy.sparse.diags(diagonal) + _SHIFT
    return scipy.sparse.linalg.spsolve(matrix.T.tocsc(), b)


sparse = from_linear_solve(sparse_apply, sparse_solve, sparse_solve_transposed)


def balance(x, w, b):
    return tg.tanh(w @ x) * 0.4 + b


equilibrium = from_fixed_point(balance)
