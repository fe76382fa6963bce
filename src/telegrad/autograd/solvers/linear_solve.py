"""``from_linear_solve``: the solution of A x = b by any solver, with derivatives of any order.

With w the solution of the adjoint system, A^H w = g: the gradient of b is w, that of a parameter is
what A's own rule makes of -w at x. The tangent of x solves A dx = db - dA x. Solving is again the
operation, so both can be differentiated again.

The solver is a black box. That it solves this system is tried each time, by one product with A.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from telegrad.autograd import functional
from telegrad.autograd.function.function import Function, named
from telegrad.autograd.solvers.arrays import (
    Like,
    fitted,
    is_real,
    refuse_hidden,
    seen,
    taken,
)
from telegrad.autograd.solvers.saved_arguments import of_chosen, restored, save
from telegrad.errors import DTypeError, GradientError, UsageError
from telegrad.ops.filled import zeros_like
from telegrad.tensors import Tensor
from telegrad.tensors.describe import kind_of, no_tensor
from telegrad.tensors.recording.modes import Recording


class System(NamedTuple):
    """A linear system with parameters; each function takes those first, then a vector."""

    name: str
    apply: Callable[..., Any]
    """A x, by telegrad's functions."""
    solve: Callable[..., Any]
    solve_adjoint: Callable[..., Any] | None
    tolerance: float | None
    apply_adjoint: Callable[..., Any] | None = None
    """A^H y, by telegrad's functions; None: it is had from `apply`."""
    shown: Callable[[Any], Any] = seen
    """Converts an argument for the solver."""

    def adjoint(self) -> "System":
        """Return the system of the conjugate transpose."""
        if self.solve_adjoint is None:
            raise GradientError(
                f"expected {self.name} to know how to solve the transposed system, which reverse "
                "mode needs; give from_linear_solve(apply, solve, solve_transposed) the solver, or "
                "symmetric=True where the matrix is its own transpose"
            )
        apply_adjoint = self.apply_adjoint or functools.partial(_transposed, self.apply)
        return System(
            f"{self.name}_transposed",
            apply_adjoint,
            self.solve_adjoint,
            self.solve,
            self.tolerance,
            self.apply,
            self.shown,
        )


def _transposed(apply: Callable[..., Any], *values: Any) -> Tensor:
    """A^H y by the reverse-mode derivative of A x, which is linear in x."""
    *parameters, y = values
    (found,) = functional.vjp(lambda x: apply(*parameters, x), zeros_like(y))[1](y)
    result: Tensor = found
    return result


def from_linear_solve(
    apply: Callable[..., Any],
    solve: Callable[..., Any],
    solve_transposed: Callable[..., Any] | None = None,
    *,
    symmetric: bool = False,
    tolerance: float | None = None,
) -> Callable[..., Any]:
    """Make a solver of linear systems a function of telegrad, with derivatives of any order.

    The matrix may be anything that multiplies: dense, sparse, a stencil. ::

        def apply(diagonal, x):
            return diagonal * x + 0.1 * tg.roll(x, 1)

        def solve(diagonal, b):
            matrix = scipy.sparse.diags(diagonal) + 0.1 * SHIFT
            return scipy.sparse.linalg.spsolve(matrix, b)

        x = from_linear_solve(apply, solve, solve_transposed)(diagonal, b)

    Arguments:
        apply: ``apply(*parameters, x)`` returns A x, with telegrad's functions; all Tensors that A
            depends on are among the parameters.
        solve: ``solve(*parameters, b)`` returns the solution of A x = b; it receives NumPy arrays.
        solve_transposed: The same for the transposed matrix; for a complex one, the conjugate
            transpose. Reverse mode needs it.
        symmetric: Whether the matrix is its own (conjugate) transpose, so that `solve` serves both.
        tolerance: The allowed distance between A x and b, relative to the largest number in b; by
            default the square root of the dtype's precision.

    Returns:
        ``call(*parameters, b)``, which returns x.

    Raises:
        GradientError: If the result does not solve the system, or A uses Tensors with derivatives
            that are not among the parameters.

    Examples:
        >>> scaled = tg.autograd.from_linear_solve(tg.multiply, lambda d, b: b / d, symmetric=True)
        >>> b = tg.tensor([2.0, 3.0], requires_grad=True)
        >>> scaled(tg.tensor([2.0, 4.0]), b).sum().backward()
        >>> b.grad
        tensor([0.5 , 0.25])
    """
    for each, what in ((apply, "apply"), (solve, "solve"), (solve_transposed, "solve_transposed")):
        if not callable(each) and not (what == "solve_transposed" and each is None):
            raise UsageError(
                f"expected a function as {what} of from_linear_solve, got {kind_of(each)}"
            )
    if symmetric and solve_transposed is not None:
        raise UsageError("expected either symmetric=True or solve_transposed, got both")

    @functools.wraps(solve)
    def call(*args: Any) -> Any:
        name = getattr(solve, "__name__", type(solve).__name__)
        other = solve if symmetric else solve_transposed
        refuse_hidden(name, args)
        if not args or not is_real(args[-1]):
            got = kind_of(args[-1]) if args else "nothing"
            raise DTypeError(
                f"expected a floating Tensor b as the last argument of {name}, got {got}"
            )
        return solved(System(name, apply, solve, other, tolerance), args)

    return call


def solved(system: System, args: Sequence[Any]) -> Tensor:
    """Return the solution for ``(*parameters, b)``, recorded."""
    found: Tensor = named(system.name, _Solve).apply(system, *args)
    return found


class _Solve(Function):
    """One solution."""

    @staticmethod
    def forward(ctx: Any, system: System, *args: Any) -> Tensor:
        b = args[-1]
        where = f"as the solution that {system.name} gives"
        dtype = np.result_type(*(each.dtype for each in args if is_real(each)))
        x = taken(system.solve(*map(system.shown, args)), where)
        x = fitted(x, Like(b.shape, dtype), where)
        _refuse_other_system(system, args, x)
        ctx.system = system
        save(ctx, (*args, x))
        return x

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Any:
        *parameters, _, x = restored(ctx)
        weights = solved(ctx.system.adjoint(), (*parameters, cotangent))
        wanted = [i for i, p in enumerate(parameters) if ctx.needs_input_grad[i + 1]]
        gradients: list[Any] = [None] * len(parameters)
        if wanted:
            part = of_chosen(lambda *values: ctx.system.apply(*values, x), parameters, wanted)
            pulled = functional.vjp(part, *(parameters[i] for i in wanted))[1](-weights)
            for i, gradient in zip(wanted, pulled):
                gradients[i] = gradient
        return None, *gradients, weights

    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: Any) -> Tensor:
        *parameters, _, x = restored(ctx)
        *given, right = tangents
        wanted = [i for i, t in enumerate(given) if t is not None]
        if wanted:
            part = of_chosen(lambda *values: ctx.system.apply(*values, x), parameters, wanted)
            primals = tuple(parameters[i] for i in wanted)
            right = right - functional.jvp(part, primals, tuple(given[i] for i in wanted))[1]
        return solved(ctx.system, (*parameters, right))


def _refuse_other_system(system: System, args: Sequence[Any], x: Tensor) -> None:
    """Raise if x does not solve the system, or the system depends on more than its parameters."""
    if system.tolerance == np.inf:
        return
    *parameters, b = (each.detach() if isinstance(each, Tensor) else each for each in args)
    with Recording(True):
        product = system.apply(*parameters, x.detach())
    refuse_captured(product, f"the matrix of {system.name}", "a parameter")
    off = np.abs(np.asarray((product - b).array)).max(initial=0.0)
    size = np.abs(np.asarray(b.array)).max(initial=0.0)
    tolerance = system.tolerance
    if tolerance is None:
        tolerance = float(np.sqrt(np.finfo(x.dtype).eps))
    if not off <= tolerance * size:
        raise GradientError(
            f"expected a solution of the system from {system.name}, got one whose product with the "
            f"matrix is off by {off:.2g}, with {tolerance * size:.2g} allowed: apply and solve are "
            "of different systems, or the solver has not converged (tolerance=... allows more)"
        )


def refuse_captured(value: Any, what: str, instead: str) -> None:
    """Raise if a value computed from constants alone still has a derivative."""
    if not isinstance(value, Tensor):
        raise no_tensor(value, f"from {what}")
    if value.requires_grad or value.is_dual:
        raise GradientError(
            f"expected {what} to depend on its arguments alone, but it uses a Tensor with a "
            f"derivative, which would be lost; make it {instead}"
        )
