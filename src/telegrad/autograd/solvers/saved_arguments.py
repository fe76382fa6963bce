"""Save a solver's values for its derivatives: Tensors and constants, in one list."""

from collections.abc import Callable, Sequence
from typing import Any

from telegrad.tensors import Tensor


def save(ctx: Any, values: Sequence[Any]) -> None:
    """Save Tensors and constants for rules of both modes."""
    tensors = [each for each in values if isinstance(each, Tensor)]
    ctx.save_for_backward(*tensors)
    ctx.save_for_forward(*tensors)
    ctx.constants = [None if isinstance(each, Tensor) else each for each in values]
    ctx.are_tensors = [isinstance(each, Tensor) for each in values]


def restored(ctx: Any) -> list[Any]:
    """Return the values given to ``save``, with the histories of the Tensors."""
    tensors = iter(ctx.saved_tensors)
    pairs = zip(ctx.constants, ctx.are_tensors)
    return [next(tensors) if is_one else constant for constant, is_one in pairs]


def of_chosen(
    function: Callable[..., Any], parameters: Sequence[Any], wanted: Sequence[int]
) -> Callable[..., Any]:
    """Return a function of the `wanted` parameters alone; the others are fixed."""

    def part(*chosen: Any) -> Any:
        values = list(parameters)
        for i, value in zip(wanted, chosen, strict=True):
            values[i] = value
        return function(*values)

    return part
