"""Second derivatives times a vector, without the matrix: ``hvp`` and ``vhp``."""

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

from telegrad.autograd.functional.arguments import name_of, paired
from telegrad.autograd.functional.forward import jvp
from telegrad.autograd.functional.reverse import check_scalar, value_and_grad
from telegrad.autograd.functional.variables import Variables
from telegrad.autograd.trees import Tree, flatten, unflatten
from telegrad.ops.filled import zeros_like
from telegrad.tensors import Tensor
from telegrad.tensors.forward.duals import join, split
from telegrad.tensors.forward.levels import Level
from telegrad.tensors.recording.modes import is_grad_enabled


def hvp(function: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, Any]:
    """Return the value of `function` and its Hessian times `tangents`.

    Forward over reverse: one gradient, computed on duals.

    Arguments:
        function: The function to differentiate; returns one real number.
        primals: A tuple of the positional arguments, or a tensor if there is only one.
        tangents: The same with a tangent for each tensor.

    Returns:
        ``(value, product)``, where the product has the form of the primals.

    Examples:
        >>> cubes = lambda x: (x**3).sum()
        >>> tg.autograd.functional.hvp(cubes, tg.tensor([1.0, 2.0]), tg.tensor([1.0, 1.0]))
        (tensor(9.), tensor([ 6., 12.]))
    """
    args, values, structure, given = paired(primals, tangents, name_of(function))
    if not any(x.tangents or (x.node is not None and is_grad_enabled()) for x in values + given):
        found = _unrecorded_hvp(function, values, structure, given)
        if found is not None:
            value, product = found
            return value, _formed(primals, product)
    both = value_and_grad(function, tuple(range(len(args))))
    (value, _), (_, product) = jvp(both, primals, tangents)
    return value, _formed(primals, product)


def _unrecorded_hvp(
    function: Callable[..., Any], values: Sequence[Tensor], structure: Tree, given: Sequence[Tensor]
) -> tuple[Any, Any] | None:
    """Compute ``hvp`` several times faster, if the product is not itself differentiated in reverse.

    That is known only once `function` has run: return None if its graph leads outside.
    """
    level = Level(records=False)
    try:
        variables = Variables(list(map(join, values, repeat(level), given)))
        with variables.recording():
            output = function(*unflatten(structure, variables.tensors))
        check_scalar(function, output)
        if variables.reach_outside(output):
            return None
        gradients = variables.pull([output], [None], again=False)
        product = [split(gradient, level)[1] for gradient in gradients]
        value = split(variables.settle(output), level)[0]
    finally:
        level.close()
    zeros = [zeros_like(x) if p is None else p for x, p in zip(values, product)]
    return value, unflatten(structure, zeros)


def vhp(function: Callable[..., Any], primals: Any, cotangents: Any) -> tuple[Any, Any]:
    """Return the value of `function` and `cotangents` times its Hessian.

    Reverse over reverse, so it needs no forward rules; ``hvp`` is faster.

    The other arguments are those of ``hvp``.

    Arguments:
        cotangents: The same with a cotangent for each tensor.

    Returns:
        ``(value, product)``, where the product has the form of the primals.

    Examples:
        >>> cubes = lambda x: (x**3).sum()
        >>> tg.autograd.functional.vhp(cubes, tg.tensor([1.0, 2.0]), tg.tensor([1.0, 1.0]))
        (tensor(9.), tensor([ 6., 12.]))
    """
    args, values, structure, given = paired(primals, cotangents, name_of(function))
    variables = Variables(values)
    with variables.recording():
        inner = unflatten(structure, variables.tensors)
        value, gradient = value_and_grad(function, tuple(range(len(args))))(*inner)
    product = variables.pull(flatten(gradient)[0], given, again=False)
    return variables.settle(value), _formed(primals, unflatten(structure, product))


def _formed(primals: Any, product: tuple[Any, ...]) -> Any:
    if isinstance(primals, list):
        return list(product)
    return product if isinstance(primals, tuple) else product[0]
