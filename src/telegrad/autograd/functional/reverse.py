"""Reverse mode as functions: ``vjp``, ``grad``, ``value_and_grad``."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from telegrad.autograd.functional.arguments import (
    Argnums,
    Chosen,
    as_tensors,
    check_argnums,
    name_of,
    outputs_of,
    recorded,
)
from telegrad.autograd.trees import Tree
from telegrad.errors import GradientError
from telegrad.tensors import Tensor


def vjp(function: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """Return the value at `primals`, and a function from a cotangent to all primals' gradients.

    That function may be called any number of times.

    Arguments:
        function: The function to differentiate; takes and returns tensors, in tuples, lists and
            dicts too.
        *primals: Its positional arguments.
        has_aux: Whether `function` returns (output, aux), where aux is passed on as it is.

    Returns:
        ``(value, pull)``, or ``(value, pull, aux)``.

    Examples:
        >>> value, pull = tg.autograd.functional.vjp(tg.multiply, tg.tensor(2.0), tg.tensor(3.0))
        >>> pull(tg.tensor(1.0))
        (tensor(3.), tensor(2.))
    """
    chosen = Chosen(primals, tuple(range(len(primals))), name_of(function))
    variables, output, aux = recorded(function, chosen, {}, has_aux)
    outputs, structure = outputs_of(function, output)
    value = variables.settle(output)

    def pull(cotangents: Tree) -> tuple[Any, ...]:
        """Return the gradients for a cotangent of the value's structure, one for each primal."""
        given = as_tensors(cotangents, outputs, structure, f"cotangents of {name_of(function)}")
        found: tuple[Any, ...] = chosen.shaped(variables.pull(outputs, given, again=True))
        return found

    return (value, pull, variables.settle(aux)) if has_aux else (value, pull)


def value_and_grad(
    function: Callable[..., Any], argnums: Argnums = 0, *, has_aux: bool = False
) -> Callable[..., Any]:
    """Return a function that computes the value of `function` and its gradient.

    Arguments:
        function: The function to differentiate; returns one real number.
        argnums: Which positional argument to differentiate by, or several as a tuple.
        has_aux: Whether `function` returns (output, aux), where aux is passed on as it is.

    Returns:
        A function that returns ``(value, gradient)``, or ``((value, aux), gradient)``.

    Raises:
        GradientError: When called, if `function` does not return one real number.

    Examples:
        >>> tg.autograd.functional.value_and_grad(lambda x: (x * x).sum())(tg.tensor([1.0, 2.0]))
        (tensor(5.), tensor([2., 4.]))
    """
    check_argnums(argnums, "value_and_grad")

    @wraps(function)
    def differentiated(*args: Any, **options: Any) -> Any:
        chosen = Chosen(args, argnums, name_of(function))
        variables, output, aux = recorded(function, chosen, options, has_aux)
        check_scalar(function, output)
        # Settle the value first: this reads its graph, which the pull frees.
        value = variables.settle(output)
        aux = variables.settle(aux)
        gradient = chosen.shaped(variables.pull([output], [None], again=False))
        return ((value, aux), gradient) if has_aux else (value, gradient)

    return differentiated


def grad(
    function: Callable[..., Any], argnums: Argnums = 0, *, has_aux: bool = False
) -> Callable[..., Any]:
    """Return a function that computes the gradient of `function`.

    The arguments are those of ``value_and_grad``.

    Returns:
        A function of the same arguments that returns the gradient, or ``(gradient, aux)``.

    Raises:
        GradientError: When called, if `function` does not return one real number.

    Examples:
        >>> tg.autograd.functional.grad(lambda x: (x * x).sum())(tg.tensor([1.0, 2.0]))
        tensor([2., 4.])
    """
    check_argnums(argnums, "grad")
    both = value_and_grad(function, argnums, has_aux=has_aux)

    @wraps(function)
    def differentiated(*args: Any, **options: Any) -> Any:
        value, gradient = both(*args, **options)
        return (gradient, value[1]) if has_aux else gradient

    return differentiated


def check_scalar(function: Callable[..., Any], output: Any) -> None:
    """Raise GradientError if the result of `function` is not one real number."""
    if not isinstance(output, Tensor):
        raise GradientError(
            f"expected a Tensor from {name_of(function)} to take the gradient of, got "
            f"{type(output).__name__}; float() and .item() leave the graph, and a constant is "
            "written telegrad.tensor(value)"
        )
    if output.size != 1 or output.dtype.kind != "f":
        raise GradientError(
            f"expected one real number from {name_of(function)} to take the gradient of, got "
            f"shape {output.shape} of {output.dtype}; reduce it, e.g. with .sum(), or use jacobian "
            "or vjp"
        )
