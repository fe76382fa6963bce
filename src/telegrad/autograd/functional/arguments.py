"""Flatten and rebuild the arguments and results of a user's function, for transforms.

``argnums`` selects the positional arguments to differentiate: a number, or a tuple of numbers; the
derivative has the same form. Each may be a tensor or nested tuples, lists and dicts of tensors.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from telegrad.autograd.functional.variables import Variables, as_variable
from telegrad.autograd.trees import Tree, flatten, leaves_along, unflatten
from telegrad.errors import DTypeError, GradientError
from telegrad.ops.filled import full
from telegrad.tensors import Tensor
from telegrad.tensors.likeness import check_like

Argnums: TypeAlias = int | tuple[int, ...]


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a user's function for errors."""
    return getattr(function, "__name__", None) or repr(function)


def check_argnums(argnums: Any, transform: str) -> None:
    """Raise if `argnums` has other values than ints, such as arguments meant for the function."""
    numbers = argnums if isinstance(argnums, tuple) else (argnums,)
    for number in numbers:
        if not isinstance(number, int):
            raise DTypeError(
                f"expected an int or a tuple of ints as argnums of {transform}, got "
                f"{type(number).__name__}; {transform} gives a function, so write "
                f"{transform}(f)(x)"
            )


class Chosen:
    """The arguments selected by `argnums`, flattened, and the structure to rebuild them."""

    def __init__(self, args: tuple[Any, ...], argnums: Argnums, caller: str) -> None:
        numbers = argnums if isinstance(argnums, tuple) else (argnums,)
        for number in numbers:
            if not -len(args) <= number < len(args):
                raise GradientError(
                    f"expected argnums of {caller} to name positional arguments, got {argnums} for "
                    f"a call with {len(args)}; options by keyword are not differentiated"
                )
        self._args = args
        self._numbers = tuple(number % len(args) for number in numbers)
        if not numbers or len(set(self._numbers)) != len(numbers):
            raise GradientError(
                f"expected each argument once in argnums of {caller}, got {argnums}"
            )
        picked = tuple(args[number] for number in self._numbers)
        leaves, structure = flatten(picked)
        self.values = [as_variable(leaf, f"an argument of {caller}") for leaf in leaves]
        self._structure = structure
        self._is_single = not isinstance(argnums, tuple)

    def arguments(self, values: Sequence[Any]) -> list[Any]:
        """Return all arguments, with these values in place of the selected ones."""
        args = list(self._args)
        for number, value in zip(self._numbers, unflatten(self._structure, values)):
            args[number] = value
        return args

    def shaped(self, values: Sequence[Any]) -> Tree:
        """Return values, one for each selected leaf, in the structure that `argnums` gives."""
        picked = unflatten(self._structure, values)
        return picked[0] if self._is_single else picked


def with_aux(function: Callable[..., Any], result: Any, has_aux: bool) -> tuple[Any, Any]:
    """Return the result to differentiate, and the auxiliary result, or None."""
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise GradientError(
            f"expected a pair (output, aux) from {name_of(function)} with has_aux=True, got "
            f"{type(result).__name__}"
        )
    return result


def recorded(
    function: Callable[..., Any], chosen: Chosen, options: dict[str, Any], has_aux: bool
) -> tuple[Variables, Any, Any]:
    """Run a function on fresh variables; return those, its output, and its auxiliary result."""
    variables = Variables(chosen.values)
    with variables.recording():
        result = function(*chosen.arguments(variables.tensors), **options)
    return variables, *with_aux(function, result, has_aux)


def outputs_of(function: Callable[..., Any], output: Tree) -> tuple[list[Tensor], Tree]:
    """Return the tensors that a function returned, and their structure."""
    leaves, structure = flatten(output)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise DTypeError(
                f"expected tensors, in tuples, lists or dicts, from {name_of(function)}, got "
                f"{type(leaf).__name__}; return other values with has_aux=True"
            )
    return leaves, structure


def as_tensors(tree: Tree, like: Sequence[Tensor], structure: Tree, name: str) -> list[Tensor]:
    """Return the leaves of cotangents or tangents, checked against the values they belong to."""
    leaves = leaves_along(structure, tree)
    if leaves is None:
        raise GradientError(
            f"expected the structure of the values for the {name}, {structure!r}, got "
            f"{flatten(tree)[1]!r} (leaves shown by number)"
        )
    made = [_beside(value, leaf, f"the {name}") for value, leaf in zip(like, leaves)]
    for value, each in zip(like, made):
        check_like(each, value, f"the {name}")
    return made


def _beside(value: Tensor, leaf: Any, name: str) -> Tensor:
    """Return a cotangent or tangent of `value` as a Tensor; a plain number takes its dtype."""
    if isinstance(leaf, (int, float, complex)):
        return full((), leaf, dtype=value.dtype, device=value.device)
    return as_variable(leaf, name)


def paired(
    primals: Any, tangents: Any, caller: str
) -> tuple[tuple[Any, ...], list[Tensor], Tree, list[Tensor]]:
    """Return positional arguments, their leaves and structure, and a tangent for each leaf."""
    args = tuple(primals) if isinstance(primals, (tuple, list)) else (primals,)
    given = tuple(tangents) if isinstance(tangents, (tuple, list)) else (tangents,)
    if not args:
        raise GradientError(
            f"expected at least one argument to differentiate {caller} at, got none"
        )
    leaves, structure = flatten(args)
    values = [as_variable(leaf, f"an argument of {caller}") for leaf in leaves]
    return args, values, structure, as_tensors(given, values, structure, f"tangents of {caller}")
