"""``from_fixed_point``: the x with x = f(x, parameters), with derivatives of any order.

By the implicit function theorem it does not matter how x was found. Its tangent solves
(I - J) dx = df, where J is the derivative of f by x, and df is f's change with the parameters; its
gradient solves the transposed system. GMRES solves these linear systems without a matrix: a product
with J is a derivative of f.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from telegrad.autograd import functional
from telegrad.autograd.function.function import Function, named
from telegrad.autograd.solvers.arrays import Like, fitted, is_real, refuse_hidden
from telegrad.autograd.solvers.linear_solve import System, refuse_captured, solved
from telegrad.autograd.solvers.saved_arguments import of_chosen, restored, save
from telegrad.errors import DTypeError, GradientError, UsageError
from telegrad.tensors import Tensor, wrap
from telegrad.tensors.describe import kind_of, no_tensor
from telegrad.tensors.recording.modes import Recording

_STEPS_KEPT = 100
"""The number of steps after which GMRES restarts."""


class _Problem(NamedTuple):
    name: str
    f: Callable[..., Any]
    solve: Callable[..., Any] | None
    tolerance: float | None
    max_iterations: int


def from_fixed_point(
    f: Callable[..., Any],
    solve: Callable[..., Any] | None = None,
    *,
    tolerance: float | None = None,
    max_iterations: int = 1000,
) -> Callable[..., Any]:
    """Make a function's fixed point a function of its parameters, with derivatives of any order.

    For coupled solvers, equilibria, implicit steps and layers. ::

        def balance(x, w):
            return tg.tanh(w @ x + 1.0)

        x = from_fixed_point(balance)(tg.zeros(3), w)

    Arguments:
        f: ``f(x, *parameters)`` returns the next x, with the shape and dtype of x. It uses
            telegrad's functions; all Tensors that it depends on are among the parameters.
        solve: ``solve(x, *parameters)`` finds the fixed point from a first guess, by any means; it
            receives Tensors. Without it, f is applied until x stays the same.
        tolerance: The allowed distance between f(x) and x, relative to 1 plus the largest number in
            x; by default 1000 times the dtype's precision.
        max_iterations: The most applications of f.

    Returns:
        ``call(guess, *parameters)``, which returns x; x has no derivative by the guess.

    Raises:
        UsageError: If no fixed point is found within `max_iterations`.
        GradientError: If f uses Tensors with derivatives that are not among the parameters, or x is
            not an isolated fixed point, so that it has no derivative.

    Examples:
        >>> root = tg.autograd.from_fixed_point(lambda x, a: (x + a / x) / 2)
        >>> a = tg.tensor(4.0, dtype=tg.float64, requires_grad=True)
        >>> root(tg.tensor(1.0, dtype=tg.float64), a).backward()
        >>> round(a.grad.item(), 6)
        0.25
    """
    if not callable(f) or not (solve is None or callable(solve)):
        wrong = solve if callable(f) else f
        raise UsageError(f"expected functions for from_fixed_point, got {kind_of(wrong)}")

    @functools.wraps(f)
    def call(guess: Any, *parameters: Any) -> Any:
        name = getattr(f, "__name__", type(f).__name__)
        if not is_real(guess):
            raise DTypeError(
                f"expected a floating Tensor as the first guess for {name}, got {kind_of(guess)}"
            )
        refuse_hidden(name, (guess, *parameters))
        problem = _Problem(name, f, solve, tolerance, max_iterations)
        return named(name, _FixedPoint).apply(problem, guess.detach(), *parameters)

    return call


class _FixedPoint(Function):
    """One fixed point."""

    @staticmethod
    def forward(ctx: Any, problem: _Problem, guess: Tensor, *args: Any) -> Tensor:
        parameters = [_detached(each) for each in args]
        x = _found(problem, guess, parameters)
        with Recording(True):
            after = problem.f(x, *parameters)
        refuse_captured(after, problem.name, "a parameter")
        off, allowed = _distance(problem, x, after)
        if not off <= allowed:
            raise UsageError(
                f"expected a fixed point of {problem.name} within {problem.max_iterations} "
                f"iterations, got one that moves by {off:.2g}, with {allowed:.2g} allowed; start "
                "nearer, allow more iterations, damp it, or give from_fixed_point a solve"
            )
        ctx.problem = problem
        save(ctx, (*args, x))
        return x

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Any:
        *parameters, x = restored(ctx)
        system = _linearized(ctx.problem).adjoint()
        weights = solved(system, (x, *parameters, cotangent))
        wanted = [i for i in range(len(parameters)) if ctx.needs_input_grad[i + 2]]
        part = of_chosen(functools.partial(ctx.problem.f, x), parameters, wanted)
        pulled = functional.vjp(part, *(parameters[i] for i in wanted))[1](weights)
        found = dict(zip(wanted, pulled))
        return None, None, *(found.get(i) for i in range(len(parameters)))

    @staticmethod
    def jvp(ctx: Any, _: None, __: Any, *tangents: Any) -> Tensor:
        *parameters, x = restored(ctx)
        wanted = [i for i, t in enumerate(tangents) if t is not None]
        part = of_chosen(functools.partial(ctx.problem.f, x), parameters, wanted)
        primals = tuple(parameters[i] for i in wanted)
        right = functional.jvp(part, primals, tuple(tangents[i] for i in wanted))[1]
        return solved(_linearized(ctx.problem), (x, *parameters, right))


def _found(problem: _Problem, x: Tensor, parameters: Sequence[Any]) -> Tensor:
    """Return the result of the solver, or of applying f repeatedly."""
    like = Like(x.shape, x.dtype)
    if problem.solve is not None:
        where = f"as the fixed point of {problem.name}"
        found = problem.solve(x, *parameters)
        if not isinstance(found, Tensor):
            raise no_tensor(found, where)
        return fitted(found.detach(), like, where)
    for _ in range(problem.max_iterations):
        before = x
        found = problem.f(before, *parameters)
        where = f"from {problem.name}, that of its argument,"
        if not isinstance(found, Tensor):
            raise DTypeError(f"expected a Tensor {where} got {kind_of(found)}")
        x = fitted(found.detach(), like, where)
        off, allowed = _distance(problem, before, x)
        if not off > allowed:
            break
    return x


def _distance(problem: _Problem, x: Tensor, after: Tensor) -> tuple[float, float]:
    """Return the distance between f(x) and x, and the allowed one."""
    tolerance = problem.tolerance
    if tolerance is None:
        tolerance = 1000 * float(np.finfo(x.dtype).eps)
    here, there = np.asarray(x.array), np.asarray(after.array)
    size = float(np.abs(there).max(initial=0.0))
    with np.errstate(invalid="ignore"):
        off = float(np.abs(there - here).max(initial=0.0))
    return off, tolerance * (1.0 + size)


def _linearized(problem: _Problem) -> System:
    """Return the system (I - J) dx = b at (x, parameters)."""
    f = problem.f

    def apply(x: Tensor, *rest: Any) -> Tensor:
        *parameters, v = rest
        moved = functional.jvp(lambda s: f(s, *parameters), (x,), (v,))[1]
        left: Tensor = v - moved
        return left

    def apply_adjoint(x: Tensor, *rest: Any) -> Tensor:
        *parameters, v = rest
        (moved,) = functional.vjp(lambda s: f(s, *parameters), x)[1](v)
        left: Tensor = v - moved
        return left

    def solve(x: Tensor, *rest: Any) -> Any:
        *parameters, b = rest

        def moved(v: Tensor) -> Tensor:
            tangent: Tensor = functional.jvp(lambda s: f(s, *parameters), (x,), (v,))[1]
            return tangent

        return _gmres(problem.name, moved, b.array)

    def solve_adjoint(x: Tensor, *rest: Any) -> Any:
        *parameters, b = rest
        pull = functional.vjp(lambda s: f(s, *parameters), x)[1]
        return _gmres(problem.name, lambda v: pull(v)[0], b.array)

    # No tolerance here, since `_gmres` checks its solution more strictly.
    name = problem.name
    return System(name, apply, solve, solve_adjoint, np.inf, apply_adjoint, _detached)


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


def _gmres(name: str, moved: Callable[[Tensor], Tensor], b: Any) -> Any:
    """Return the solution of v - moved(v) = b."""
    from scipy.sparse.linalg import LinearOperator, gmres

    def product(flat: Any) -> Any:
        v = np.array(flat.reshape(b.shape), b.dtype)
        return (v - np.asarray(moved(wrap(v)).detach().array)).reshape(-1)

    flat = np.asarray(b).reshape(-1)
    size = float(np.linalg.norm(flat))
    if not size:
        return np.zeros_like(b)
    eps = float(np.finfo(b.dtype).eps)
    count = flat.size
    operator = LinearOperator((count, count), matvec=product, dtype=flat.dtype)
    kept = min(count, _STEPS_KEPT)
    found, _ = gmres(operator, flat, rtol=10 * eps, atol=0.0, restart=kept, maxiter=10)
    off = float(np.linalg.norm(flat - product(found)))
    allowed = float(np.sqrt(eps)) * size
    if not off <= allowed:
        raise GradientError(
            f"expected an isolated fixed point of {name}, where 1 is no eigenvalue of its "
            f"derivative, but the linear system for the derivative of the solution can't be "
            f"solved: GMRES is off by {off:.2g}, with {allowed:.2g} allowed"
        )
    return found.reshape(b.shape).astype(b.dtype, copy=False)
