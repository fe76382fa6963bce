"""``from_adjoint``: a black box with a hand-written adjoint, as a function of telegrad.

The solver runs once; values that it saves for its adjoint stay on its worker and are freed with the
graph. A black box has first derivatives only: telegrad can't differentiate its adjoint. If the
adjoint is written with telegrad's functions, there are derivatives of any order; then saved values
must be arguments and results, whose histories are known.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from telegrad.autograd.function.function import Function, named
from telegrad.autograd.function.once import refusing, sealed
from telegrad.autograd.solvers.arrays import Like, fitted, like, refuse_hidden, seen, taken
from telegrad.autograd.solvers.saved_arguments import restored, save
from telegrad.autograd.trees import flatten, unflatten
from telegrad.errors import GradientError, NotDifferentiable, UsageError
from telegrad.tensors import Tensor, history_of
from telegrad.tensors.describe import kind_of, no_tensor
from telegrad.tensors.recording.modes import MODE, no_grad

_REFUSAL: Final = (
    "the derivative of {name} comes from a black box, so it has no derivative itself; write its "
    "adjoint and tangent with telegrad's functions and pass differentiable=True to from_adjoint"
)


class _Box(NamedTuple):
    """The three functions of one solver."""

    name: str
    solve: Callable[..., Any]
    adjoint: Callable[..., Any]
    tangent: Callable[..., Any] | None


def from_adjoint(
    solve: Callable[..., Any],
    adjoint: Callable[..., Any],
    tangent: Callable[..., Any] | None = None,
    *,
    differentiable: bool = False,
) -> Callable[..., Any]:
    """Make any program with a hand-written adjoint a function of telegrad.

    For simulators in other languages, finite-element codes, ``scipy.integrate.solve_ivp``. ::

        def solve(a, b):
            factors = scipy.linalg.lu_factor(a)
            x = scipy.linalg.lu_solve(factors, b)
            return x, (factors, x)

        def adjoint(saved, cotangent):
            factors, x = saved
            weights = scipy.linalg.lu_solve(factors, cotangent, trans=1)
            return -np.outer(weights, x), weights

        solve_system = from_adjoint(solve, adjoint)

    Arguments:
        solve: ``solve(*arguments, **options)`` returns (result, saved): an array or a tuple of
            arrays, and anything that the adjoint needs. It receives read-only NumPy arrays for
            Tensors; other arguments and the options are passed unchanged.
        adjoint: ``adjoint(saved, *cotangents)`` takes a cotangent for each result and returns a
            gradient for each argument, or None.
        tangent: ``tangent(saved, *tangents)`` takes a tangent or None for each argument and returns
            one for each result. Without it, there is no forward mode.
        differentiable: Whether the adjoint and the tangent are written with telegrad's functions.
            Then all three receive Tensors, there are derivatives of any order, and `saved` may hold
            no arrays but arguments and results, in tuples, lists and dicts.

    Raises:
        NotDifferentiable: If a derivative of a black box is differentiated again.
        ShapeError: If a gradient of the adjoint has another shape than its argument.
        GradientError: If the adjoint returns another number of gradients.

    Examples:
        >>> cube = tg.autograd.from_adjoint(lambda x: (x**3, x), lambda x, g: 3 * x**2 * g)
        >>> x = tg.tensor(2.0, requires_grad=True)
        >>> cube(x).backward()
        >>> x.grad
        tensor(12.)
    """
    for each, what in ((solve, "solve"), (adjoint, "adjoint"), (tangent, "tangent")):
        if not callable(each) and not (what == "tangent" and each is None):
            raise UsageError(f"expected a function as {what} of from_adjoint, got {kind_of(each)}")

    # It refers to functions and constants alone, so that it travels well to other workers.
    @functools.wraps(solve)
    def call(*args: Any, **options: Any) -> Any:
        name = getattr(solve, "__name__", type(solve).__name__)
        refuse_hidden(name, args)
        kind = _Open if differentiable else _Black
        return named(name, kind).apply(_Box(name, solve, adjoint, tangent), options, *args)

    return call


def _solved(box: _Box, options: dict[str, Any], args: Sequence[Any]) -> tuple[Any, Any]:
    for key, value in options.items():
        if isinstance(value, Tensor) and (value.requires_grad or value.is_dual):
            raise GradientError(
                f"expected Tensors with derivatives as positional arguments of {box.name}, got one "
                f"as {key}=...; what is given by name is a constant"
            )
    answer = box.solve(*args, **options)
    if not isinstance(answer, tuple) or len(answer) != 2:
        got = f"{len(answer)} values" if isinstance(answer, tuple) else kind_of(answer)
        raise UsageError(
            f"expected (result, saved) from {box.name}, a solver of from_adjoint, got {got}; "
            "return None as the second where the adjoint needs nothing"
        )
    return answer


def _listed(answer: Any) -> list[Any]:
    return list(answer) if isinstance(answer, (tuple, list)) else [answer]


def _checked(parts: list[Any], likes: Sequence[Like | None], where: str) -> list[Tensor | None]:
    """Return a rule's derivatives as Tensors; `where` names them in errors, with a {place}."""
    if len(parts) != len(likes):
        raise GradientError(
            f"expected {len(likes)} of them {where.format(place='each')}, got {len(parts)}; give "
            "None for those without"
        )
    made: list[Tensor | None] = []
    for i, (part, like_) in enumerate(zip(parts, likes)):
        place = where.format(place=i)
        if part is None:
            made.append(None)
        elif like_ is None:
            raise GradientError(
                f"expected None {place}, which has no derivative, got {kind_of(part)}"
            )
        else:
            value = part if isinstance(part, Tensor) else taken(part, place)
            made.append(fitted(value, like_, place))
    return made


class _Solver(Function):
    """A call of a solver; subclasses compute its derivatives."""

    @staticmethod
    def _kept(ctx: Any, box: _Box, args: Sequence[Any], results: Sequence[Tensor]) -> None:
        ctx.box = box
        ctx.arguments = [like(x) for x in args]
        ctx.results = [like(x) for x in results]

    @staticmethod
    def _pulled(ctx: Any, saved: Any, cotangents: Sequence[Any]) -> Any:
        given = [v if each is not None else None for v, each in zip(cotangents, ctx.results)]
        where = f"from the adjoint of {ctx.box.name} for argument {{place}}"
        return None, None, *_checked(_listed(ctx.box.adjoint(saved, *given)), ctx.arguments, where)

    @staticmethod
    def _pushed(ctx: Any, saved: Any, tangents: Sequence[Any]) -> list[Tensor | None]:
        box = ctx.box
        if box.tangent is None:
            raise NotDifferentiable(
                f"{box.name} has no tangent rule, but an argument carries a tangent; give "
                "from_adjoint(solve, adjoint, tangent) one, or use reverse mode"
            )
        where = f"from the tangent rule of {box.name} for result {{place}}"
        return _checked(_listed(box.tangent(saved, *tangents)), ctx.results, where)


class _Black(_Solver):
    """A solver whose adjoint computes with NumPy's arrays."""

    @staticmethod
    def forward(ctx: Any, box: _Box, options: dict[str, Any], *args: Any) -> Any:
        result, saved = _solved(box, options, [seen(x) for x in args])
        parts = result if isinstance(result, tuple) else (result,)
        results = tuple(taken(x, f"as result {i} of {box.name}") for i, x in enumerate(parts))
        # In a tuple: None is a value that a solver may save.
        ctx.save_residuals((saved,))
        tensors = [x for x in args if isinstance(x, Tensor)]
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        _Solver._kept(ctx, box, args, results)
        return results if isinstance(result, tuple) else results[0]

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        return _pull_black(ctx, *cotangents)

    @staticmethod
    def jvp(ctx: Any, _: None, __: None, *tangents: Any) -> Any:
        given = [x for x in (*tangents, *ctx.saved_tensors) if isinstance(x, Tensor)]
        message = _REFUSAL.format(name=ctx.box.name)
        if any(x.is_dual for x in given):
            raise NotDifferentiable(message)
        (saved,) = ctx.residuals
        with no_grad():
            pushed = _Solver._pushed(ctx, saved, [seen(x) for x in tangents])
        if not MODE.get().recording:
            return tuple(pushed)
        edges = tuple(history_of(x) for x in given if x.node is not None)
        return sealed(pushed, edges, message)


def _pull(ctx: Any, *cotangents: Any) -> Any:
    (saved,) = ctx.residuals
    return _Solver._pulled(ctx, saved, [seen(v) for v in cotangents])


_pull_black: Final = refusing(_pull, _REFUSAL)


class _Open(_Solver):
    """A solver whose adjoint is written with telegrad's functions."""

    @staticmethod
    def forward(ctx: Any, box: _Box, options: dict[str, Any], *args: Any) -> Any:
        result, saved = _solved(box, options, args)
        results = result if isinstance(result, tuple) else (result,)
        for i, each in enumerate(results):
            if not isinstance(each, Tensor):
                raise no_tensor(each, f"as result {i} of {box.name}, which is differentiable")
        leaves, structure = flatten(saved)
        known = {id(x) for x in (*args, *results)}
        for each in leaves:
            if isinstance(each, (Tensor, np.ndarray)) and id(each) not in known:
                raise GradientError(
                    f"expected {box.name}, which is differentiable, to save arguments and results "
                    f"and no other arrays, got a {kind_of(each)} of shape {each.shape} that is "
                    "neither: its derivative would be lost; compute it in the adjoint, or make it "
                    "a result"
                )
        save(ctx, leaves)
        ctx.structure = structure
        _Solver._kept(ctx, box, args, results)
        return result

    @staticmethod
    def _saved(ctx: Any) -> Any:
        return unflatten(ctx.structure, restored(ctx))

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        return _Solver._pulled(ctx, _Open._saved(ctx), cotangents)

    @staticmethod
    def jvp(ctx: Any, _: None, __: None, *tangents: Any) -> Any:
        return tuple(_Solver._pushed(ctx, _Open._saved(ctx), tangents))
