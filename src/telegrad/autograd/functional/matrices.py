"""Whole matrices of derivatives: ``jacobian`` and ``hessian``.

The derivative of an output `y` with respect to an input `x` has the shape ``y.shape + x.shape``.
Nested results have the structure of the outputs, and inside of that the structure of the inputs.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from telegrad.arrays import backend_of
from telegrad.autograd.functional.arguments import (
    Argnums,
    Chosen,
    check_argnums,
    name_of,
    outputs_of,
    recorded,
    with_aux,
)
from telegrad.autograd.functional.forward import jvp
from telegrad.autograd.trees import unflatten
from telegrad.errors import NotDifferentiable, UsageError
from telegrad.ops.concatenation import stack
from telegrad.ops.filled import zeros, zeros_like
from telegrad.ops.magnitude import conj
from telegrad.ops.manipulation import reshape
from telegrad.tensors import Tensor, wrap


def jacobian(
    function: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    mode: str = "reverse",
) -> Callable[..., Any]:
    """Return a function that computes all first derivatives of `function`.

    Complex functions must be holomorphic; checking this makes them cost twice as much.

    Arguments:
        function: The function to differentiate; takes and returns tensors, in tuples, lists and
            dicts too.
        argnums: Which positional argument to differentiate by, or several as a tuple.
        has_aux: Whether `function` returns (output, aux), where aux is passed on as it is.
        mode: "reverse" runs one backward pass for each number in the result; "forward" runs
            `function` once for each number in the arguments. Choose the smaller count.

    Returns:
        A function of the same arguments that returns the jacobian, or ``(jacobian, aux)``.

    Raises:
        UsageError: If `mode` is something else.

    Examples:
        >>> tg.autograd.functional.jacobian(tg.square)(tg.tensor([1.0, 2.0]))
        tensor([[2., 0.],
                [0., 4.]])
    """
    check_argnums(argnums, "jacobian")
    if mode not in ("reverse", "forward"):
        raise UsageError(f"expected mode 'reverse' or 'forward' for jacobian, got {mode!r}")
    compute = _by_rows if mode == "reverse" else _by_columns

    @wraps(function)
    def differentiated(*args: Any, **options: Any) -> Any:
        chosen = Chosen(args, argnums, name_of(function))
        matrix, aux = compute(function, chosen, options, has_aux)
        return (matrix, aux) if has_aux else matrix

    return differentiated


def hessian(
    function: Callable[..., Any], argnums: Argnums = 0, *, has_aux: bool = False
) -> Callable[..., Any]:
    """Return a function that computes all second derivatives of `function`, forward over reverse.

    For several arguments, the derivative by the i-th and then the j-th is at ``[i][j]``.

    The arguments are those of ``value_and_grad``.

    Returns:
        A function of the same arguments that returns the hessian, or ``(hessian, aux)``.

    Examples:
        >>> tg.autograd.functional.hessian(lambda x: (x**3).sum())(tg.tensor([1.0, 2.0]))
        tensor([[ 6.,  0.],
                [ 0., 12.]])
    """
    check_argnums(argnums, "hessian")
    first = jacobian(function, argnums, has_aux=has_aux, mode="reverse")
    return jacobian(first, argnums, has_aux=has_aux, mode="forward")


def _by_rows(
    function: Callable[..., Any], chosen: Chosen, options: dict[str, Any], has_aux: bool
) -> tuple[Any, Any]:
    variables, output, aux = recorded(function, chosen, options, has_aux)
    outputs, structure = outputs_of(function, output)
    matrices = []
    for y in outputs:
        _check_real(function, chosen.values, [y], "forward", 0)
        rows = []
        for unit in _units(y):
            rows.append(variables.pull([y], [unit], again=True))
            if y.dtype.kind == "c":
                _check_turns(function, rows[-1], variables.pull([y], [unit * 1j], again=True))
        # A pull gives J^H g; the rows of J are the conjugates.
        matrices.append(
            chosen.shaped(
                [
                    conj(_stacked([row[i] for row in rows], y.shape + x.shape, x, axis=0))
                    for i, x in enumerate(chosen.values)
                ]
            )
        )
    return unflatten(structure, matrices), variables.settle(aux)


def _by_columns(
    function: Callable[..., Any], chosen: Chosen, options: dict[str, Any], has_aux: bool
) -> tuple[Any, Any]:
    structure: Any = None
    aux: Any = None

    def flat(*values: Any) -> tuple[Any, Any]:
        nonlocal structure
        result = function(*chosen.arguments(values), **options)
        output, beside = with_aux(function, result, has_aux)
        outputs, structure = outputs_of(function, output)
        return tuple(outputs), beside

    values = chosen.values
    columns: list[list[tuple[Tensor, ...]]] = []
    outputs: tuple[Tensor, ...] | None = None
    for i, x in enumerate(values):
        columns.append([])
        for unit in _units(x):
            tangents = [zeros_like(v) for v in values]
            tangents[i] = unit
            outputs, pushed, aux = jvp(flat, tuple(values), tuple(tangents), has_aux=True)
            columns[-1].append(pushed)
            if x.dtype.kind == "c":
                tangents[i] = unit * 1j
                _, turned, aux = jvp(flat, tuple(values), tuple(tangents), has_aux=True)
                _check_turns(function, pushed, turned)
    if outputs is None:
        outputs, aux = flat(*values)
    _check_real(function, values, outputs, "reverse", 1)
    matrices = [
        chosen.shaped(
            [
                _stacked([c[j] for c in columns[i]], y.shape + x.shape, y, axis=y.ndim)
                for i, x in enumerate(values)
            ]
        )
        for j, y in enumerate(outputs)
    ]
    return unflatten(structure, matrices), aux


def _units(x: Tensor) -> list[Tensor]:
    """Return, for each element of `x`, a tensor of its shape with 1 there and 0 elsewhere."""
    units = np.eye(x.size, dtype=x.dtype).reshape(x.size, *x.shape)
    xp = backend_of(x.array)
    return [wrap(unit if xp.is_numpy else xp.asarray(unit)) for unit in units]


def _stacked(parts: Sequence[Tensor], shape: tuple[int, ...], like: Tensor, *, axis: int) -> Tensor:
    if not parts:
        return zeros(shape, dtype=like.dtype)
    return reshape(stack(list(parts), axis=axis), shape)


def _check_turns(
    function: Callable[..., Any], along_1: Sequence[Tensor], along_1j: Sequence[Tensor]
) -> None:
    """Raise if the second are not ``1j`` times the first: the function is not holomorphic then."""
    for one, other in zip(along_1, along_1j):
        if one.dtype.kind != "c" or not one.size:
            continue
        xp = backend_of(one.array)
        apart = xp.max(xp.abs(other.array - one.array * 1j))
        rounding = float(np.finfo(one.dtype).eps) ** 0.5
        if bool(apart > rounding * (xp.max(xp.abs(one.array)) + xp.max(xp.abs(other.array)))):
            raise NotDifferentiable(
                f"expected a holomorphic function, got {name_of(function)}, whose derivative along "
                "1j is not 1j times that along 1, so that no matrix of complex numbers holds it; "
                "take its jacobian by the real and imaginary parts, or use jvp and vjp"
            )


def _check_real(
    function: Callable[..., Any],
    values: Sequence[Tensor],
    outputs: Sequence[Tensor],
    other: str,
    real_side: int,
) -> None:
    """Raise if one side is real and the other complex: this mode sees half of the derivative."""
    real, mixed = (values, outputs) if real_side == 0 else (outputs, values)
    if any(r.dtype.kind == "f" for r in real) and any(m.dtype.kind == "c" for m in mixed):
        raise NotDifferentiable(
            f"expected arguments and results of {name_of(function)} to be all real or all complex "
            f"in this mode of jacobian, got both kinds; use mode={other!r}"
        )
