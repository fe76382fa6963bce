"""``from_adjoint``: black boxes with an adjoint that somebody wrote."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from tests.autograd.solvers import programs
from tests.autograd.solvers.programs import black_box, decayed, quadratic, reverse_only

import telegrad as tg
from telegrad.autograd import forward_ad, from_adjoint
from telegrad.autograd import functional as F
from telegrad.errors import (
    DTypeError,
    GradientError,
    GraphFreedError,
    NotDifferentiable,
    ShapeError,
    UsageError,
)
from telegrad.testing import GradientMismatch, gradient_check

RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(3, 3)) + 3 * np.eye(3), RNG.normal(size=3)


def leaf(array):
    return tg.tensor(array, requires_grad=True)


def test_both_modes_agree_with_differences_and_with_each_other():
    gradient_check(black_box, [A, B], order=1)


def test_an_initial_value_problem_agrees_with_differences():
    gradient_check(decayed, [np.array(0.7), np.array([1.0, 2.0])], modes=["reverse"], order=1)


def test_a_wrong_adjoint_is_found():
    wrong = from_adjoint(programs.dense, lambda saved, v: (np.zeros((3, 3)), v))
    with pytest.raises(GradientMismatch, match="operations met: denseBackward"):
        gradient_check(wrong, [A, B], modes=["reverse"], order=1)


def test_an_adjoint_of_telegrads_functions_has_every_order():
    gradient_check(quadratic, [np.array([3.0, -4.0]), np.array([1.0, 2.0])], order=3)


def test_the_solver_runs_once_for_a_call_and_its_pass_and_what_it_saves_is_freed():
    alive, runs = programs.counts()
    x = black_box(leaf(A), leaf(B))
    assert programs.counts() == (alive + 1, runs + 1)
    loss = x.sum()
    loss.backward(retain_graph=True)
    assert programs.counts() == (alive + 1, runs + 2)
    loss.backward()
    assert programs.counts() == (alive, runs + 3)
    with pytest.raises(GraphFreedError, match="denseBackward whose values were freed"):
        loss.backward()


def test_what_a_solver_saves_goes_with_a_graph_that_no_pass_ran_over():
    alive, _ = programs.counts()
    x = black_box(leaf(A), leaf(B))
    del x
    assert programs.counts()[0] == alive
    with tg.no_grad():
        kept = black_box(leaf(A), leaf(B))
    assert programs.counts()[0] == alive
    assert not kept.requires_grad


@pytest.mark.parametrize(
    "twice",
    [
        lambda f, x: F.grad(lambda x: (F.grad(f)(x) ** 2).sum())(x),
        lambda f, x: F.jvp(F.grad(f), x, tg.ones_like(x)),
        lambda f, x: F.grad(lambda x: F.jvp(f, x, tg.ones_like(x))[1])(x),
        lambda f, x: F.jvp(lambda x: F.jvp(f, x, tg.ones_like(x))[1], x, tg.ones_like(x)),
    ],
    ids=["reverse over reverse", "forward over reverse", "reverse over forward", "forward twice"],
)
def test_a_second_derivative_of_a_black_box_is_refused(twice):
    with pytest.raises(NotDifferentiable, match="the derivative of dense comes from a black box"):
        twice(lambda b: black_box(tg.tensor(A), b).sum(), tg.tensor(B))
    with pytest.raises(NotDifferentiable, match="pass differentiable=True to from_adjoint"):
        twice(lambda a: (black_box(a, tg.tensor(B)) ** 2).sum(), tg.tensor(A))


def test_forward_mode_without_a_tangent_rule_is_refused():
    with pytest.raises(NotDifferentiable, match="dense has no tangent rule"):
        F.jvp(lambda b: reverse_only(tg.tensor(A), b), tg.tensor(B), tg.ones(3, dtype=tg.float64))


def test_several_results_constants_and_options():
    def solve(x, n, kind, *, scale):
        assert kind == "sine"
        return (np.sin(x) * scale, n + 1, x**2), (x, scale)

    def adjoint(saved, sine, count, square):
        x, scale = saved
        assert count is None
        return sine * np.cos(x) * scale + 2 * x * square, None, None

    f = from_adjoint(solve, adjoint)
    x = leaf(B)
    sine, count, square = f(x, tg.tensor([1, 2]), "sine", scale=2.0)
    assert count.tolist() == [2, 3]
    assert not count.requires_grad
    (sine.sum() + square.sum()).backward()
    assert np.allclose(x.grad.numpy(), 2 * np.cos(B) + 2 * B)
    with pytest.raises(GradientError, match=r"got one as scale=\.\.\.; what is given by name is a"):
        f(x, tg.tensor([1]), "sine", scale=leaf(np.array(1.0)))


def test_a_solver_that_fills_the_same_buffer_each_time_does_no_harm():
    buffer = np.zeros(2)

    def solve(x):
        np.multiply(x, 2, out=buffer)
        return buffer, None

    def adjoint(saved, cotangent):
        np.multiply(cotangent, 2, out=buffer)
        return buffer

    f = from_adjoint(solve, adjoint)
    x = leaf(np.array([1.0, 2.0]))
    first, second = f(x), f(x + 1.0)
    assert first.tolist() == [2, 4]
    (first.sum() + 3.0 * second.sum()).backward()
    assert x.grad.tolist() == [8, 8]


def test_a_solver_cannot_write_to_its_arguments_and_may_keep_them():
    def careless(x):
        x += 1
        return x, None

    with pytest.raises(ValueError, match="read-only"):
        from_adjoint(careless, lambda saved, v: v)(leaf(B))
    f = from_adjoint(lambda x: (x**2, x), lambda x, v: 2 * x * v)
    memory = np.array([1.0, 2.0])
    x = tg.asarray(memory, copy=False).requires_grad_()
    y = f(x)
    memory[:] = 7
    y.sum().backward()
    assert x.grad.tolist() == [2, 4]


@pytest.mark.parametrize("function", [black_box, programs.sparse, programs.equilibrium])
def test_derivatives_that_would_be_lost_are_refused(function):
    b = tg.tensor(B)
    with pytest.raises(GradientError, match="got Tensor as argument 1, inside of a list; give it"):
        function(b, [leaf(B)], b)
    with pytest.raises(
        GradientError, match=r"got torch.Tensor as argument 1; make it .*from_torch"
    ):
        function(b, torch.ones(3, requires_grad=True), b)


def bad(gradients):
    return from_adjoint(lambda a, b: (b * 2, None), lambda saved, v: gradients)


def test_an_adjoint_that_gives_the_wrong_number_is_refused():
    with pytest.raises(GradientError, match=r"expected 2 of them from the adjoint of <lambda>"):
        bad((np.ones(3),))(leaf(A), leaf(B)).sum().backward()


def test_an_adjoint_that_gives_the_wrong_shape_is_refused():
    with pytest.raises(ShapeError, match=r"shape \(3, 3\) from the adjoint of .* for argument 0"):
        bad((np.ones(4), np.ones(3)))(leaf(A), leaf(B)).sum().backward()


def test_shapes_that_change_between_solve_and_adjoint_are_told():
    mesh = {"cells": 3}

    def solve(x):
        return np.interp(np.linspace(0, 2, mesh["cells"]), np.arange(3), x), None

    def adjoint(_, v):
        return v[: mesh["cells"]]

    f = from_adjoint(solve, adjoint)
    x = leaf(B)
    y = f(x)
    mesh["cells"] = 2
    with pytest.raises(
        ShapeError, match=r"expected shape \(3,\) from the adjoint of solve for argument 0, got"
    ):
        y.sum().backward()
    assert x.grad is None
    mesh["cells"] = 3
    f(x).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0, 1.0]


def test_an_adjoint_that_gives_something_else_is_refused():
    with pytest.raises(DTypeError, match=r"array of numbers from the adjoint .* argument 1, got"):
        bad((None, "text"))(leaf(A), leaf(B)).sum().backward()
    with pytest.raises(DTypeError, match="expected real numbers from the adjoint"):
        bad((None, np.ones(3) * 1j))(leaf(A), leaf(B)).sum().backward()
    with pytest.raises(GradientError, match=r"expected None .* for argument 0, which has no deri"):
        bad((np.ones(3), np.ones(3)))("text", leaf(B)).sum().backward()


def test_a_tangent_rule_that_gives_the_wrong_shape_or_number_is_refused():
    for answer, error in ((np.ones(2), ShapeError), ((np.ones(3),) * 2, GradientError)):
        f = from_adjoint(lambda x: (x, None), lambda s, v: v, lambda s, t, answer=answer: answer)
        with pytest.raises(error, match="from the tangent rule of <lambda> for result"):
            F.jvp(f, tg.tensor(B), tg.tensor(B))


@pytest.mark.parametrize(("answer", "got"), [(np.ones(3), "ndarray"), ((1, 2, 3), "3 values")])
def test_a_solver_that_forgets_what_it_saves_is_told(answer, got):
    with pytest.raises(UsageError, match=f"expected \\(result, saved\\) from <lambda>.* got {got}"):
        from_adjoint(lambda x: answer, lambda saved, v: v)(leaf(B))


def test_a_result_that_is_no_array_is_refused():
    with pytest.raises(DTypeError, match="expected an array of numbers as result 0 of <lambda>"):
        from_adjoint(lambda x: ("text", None), lambda saved, v: v)(leaf(B))
    with pytest.raises(DTypeError, match="expected a Tensor as result 0 of <lambda>, which is"):
        from_adjoint(lambda x: (B, None), lambda s, v: v, differentiable=True)(leaf(B))


def test_what_is_no_function_is_refused():
    with pytest.raises(UsageError, match="expected a function as adjoint of from_adjoint, got int"):
        from_adjoint(programs.dense, 3)


@pytest.mark.parametrize("make", [lambda x: x * 2.0, lambda x: x.detach().numpy() * 2.0])
def test_a_differentiable_solver_that_saves_an_intermediate_value_is_refused(make):
    def solve(x):
        y = tg.exp(x)
        return y, (y, make(x))

    f = from_adjoint(solve, lambda saved, v: v * saved[0], differentiable=True)
    with pytest.raises(GradientError, match="to save arguments and results and no other arrays"):
        f(leaf(B))


def test_duals_and_graphs_together_are_exact_where_the_adjoint_is_differentiable():
    a, b = leaf(np.array([3.0])), tg.tensor(np.array([1.0]))
    with forward_ad.dual_level():
        low, _ = quadratic(a, forward_ad.make_dual(b, tg.ones_like(b)))
        tangent = forward_ad.unpack_dual(low).tangent
        (mixed,) = tg.autograd.grad(tangent.sum(), a)
    # x = -(a + r)/2 with r = sqrt(a² - 4b): the slope by b is 1/r, and that by a -a/r³.
    assert np.allclose(mixed.numpy(), -3.0 / 5.0**1.5)


PROGRAM = """
import sys
for line in sys.stdin:
    kind, x, v = line.split()
    x, v = float(x), float(v)
    print(x * x * x if kind == "solve" else 3 * x * x * v, flush=True)
"""


def test_a_solver_may_be_another_process():
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def ask(*words):
            process.stdin.write(" ".join(map(str, words)) + "\n")
            process.stdin.flush()
            return np.array(float(process.stdout.readline()))

        cube = from_adjoint(lambda x: (ask("solve", x, 0), x), lambda x, v: ask("adjoint", x, v))
        gradient_check(cube, [np.array(1.5)], modes=["reverse"], order=1, complex_step=False)
        process.stdin.close()
