"""Second derivatives times a vector, without the matrix: ``hvp`` and ``vhp``."""

from collections.abc import Callable
from typing import Any

from telegrad.autograd.functional.arguments import name_of, paired
from telegrad.autograd.functional.forward import jvp
from telegrad.autograd.functional.reverse import value_and_grad
from telegrad.autograd.functional.variables import Variables
from telegrad.autograd.trees import flatten, unflatten

__all__ = ["hvp", "vhp"]


def hvp(function: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, Any]:
    """The value of `function` and its Hessian times `tangents`: ``(value, product)``.

    Forward over reverse: one gradient, computed on duals. `primals` is a tuple of the positional
    arguments (or a tensor, where there is one); the product has its form.
    """
    args, _, _, _ = paired(primals, tangents, name_of(function))
    both = value_and_grad(function, tuple(range(len(args))))
    (value, _), (_, product) = jvp(both, primals, tangents)
    return value, _formed(primals, product)


def vhp(function: Callable[..., Any], primals: Any, cotangents: Any) -> tuple[Any, Any]:
    """The value of `function` and `cotangents` times its Hessian: ``(value, product)``.

    Reverse over reverse, so it needs no forward rules; ``hvp`` is quicker.
    """
    args, values, structure, given = paired(primals, cotangents, name_of(function))
    variables = Variables(values)
    with variables.recording():
        inner = unflatten(structure, variables.tensors)
        value, gradient = value_and_grad(function, tuple(range(len(args))))(*inner)
    product = variables.pull(flatten(gradient)[0], given, again=False)
    return variables.settle(value), _formed(primals, unflatten(structure, product))


def _formed(primals: Any, product: tuple[Any, ...]) -> Any:
    if isinstance(primals, (tuple, list)):
        return type(primals)(product) if isinstance(primals, list) else tuple(product)
    return product[0]
