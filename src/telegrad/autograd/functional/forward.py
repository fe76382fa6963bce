"""Forward mode as functions: ``jvp``, and ``linearize`` for many tangents at one point."""

from collections.abc import Callable
from typing import Any

from telegrad.autograd.functional.arguments import (
    Chosen,
    as_tensors,
    name_of,
    outputs_of,
    paired,
    recorded,
    with_aux,
)
from telegrad.autograd.functional.variables import Variables
from telegrad.autograd.trees import Tree, map_leaves, unflatten
from telegrad.ops.filled import ones_like, zeros_like
from telegrad.tensors import Tensor
from telegrad.tensors.forward.duals import join, split
from telegrad.tensors.forward.levels import Level


def jvp(
    function: Callable[..., Any], primals: Any, tangents: Any, *, has_aux: bool = False
) -> tuple[Any, ...]:
    """Return the value at `primals` and its derivative along `tangents`.

    Arguments:
        function: The function to differentiate; takes and returns tensors, in tuples, lists and
            dicts too.
        primals: A tuple of the positional arguments, or a tensor if there is only one.
        tangents: The same with a tangent for each tensor.
        has_aux: Whether `function` returns (output, aux), where aux is passed on as it is.

    Returns:
        ``(value, tangent)``, or ``(value, tangent, aux)``.

    Examples:
        >>> tg.autograd.functional.jvp(tg.sin, tg.tensor([0.0]), tg.tensor([2.0]))
        (tensor([0.]), tensor([2.]))
    """
    _, values, structure, given = paired(primals, tangents, name_of(function))
    # Not on the stack of forward_ad's levels, so that the function can't see this level.
    level = Level()
    try:
        duals = [join(value, level, tangent) for value, tangent in zip(values, given)]
        result = function(*unflatten(structure, duals))
        output, aux = with_aux(function, result, has_aux)
        outputs, out_structure = outputs_of(function, output)
        parts = [split(y, level) for y in outputs]
        if has_aux:
            aux = map_leaves(lambda x: split(x, level)[0] if isinstance(x, Tensor) else x, aux)
    finally:
        level.close()
    value = unflatten(out_structure, [primal for primal, _ in parts])
    tangent = unflatten(out_structure, [zeros_like(p) if t is None else t for p, t in parts])
    return (value, tangent, aux) if has_aux else (value, tangent)


def linearize(
    function: Callable[..., Any], *primals: Any, has_aux: bool = False
) -> tuple[Any, ...]:
    """Return the value at `primals`, and the linear function from tangents to the value's tangent.

    That function may be called any number of times; `function` itself runs only once.

    The arguments are those of ``vjp``.

    Returns:
        ``(value, push)``, or ``(value, push, aux)``.

    Examples:
        >>> value, push = tg.autograd.functional.linearize(tg.sin, tg.tensor([0.0]))
        >>> push(tg.tensor([2.0]))
        tensor([2.])
    """
    # The gradient J^T u is linear in u, so its own transpose at any t is J t; both are recorded
    # once.
    chosen = Chosen(primals, tuple(range(len(primals))), name_of(function))
    variables, output, aux = recorded(function, chosen, {}, has_aux)
    outputs, structure = outputs_of(function, output)
    with variables.recording():
        weights = Variables([ones_like(y) for y in outputs])
        transposed = variables.pull(outputs, weights.tensors, again=True)
    argument_structure = tuple(chosen.shaped(range(len(chosen.values))))

    def push(*tangents: Any) -> Tree:
        """Return the value's tangent for a tangent of each primal."""
        given = as_tensors(
            tangents, chosen.values, argument_structure, f"tangents of {name_of(function)}"
        )
        return unflatten(structure, variables.settle(weights.pull(transposed, given, again=True)))

    value = variables.settle(output)
    return (value, push, variables.settle(aux)) if has_aux else (value, push)
