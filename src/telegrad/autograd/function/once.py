"""``once_differentiable``: for a backward written in code that telegrad can't differentiate."""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from telegrad.autograd.function.context import savings_of
from telegrad.autograd.function.node import RefusingNode
from telegrad.errors import NotDifferentiable
from telegrad.tensors import Tensor, history_of, wrap
from telegrad.tensors.recording.modes import MODE, no_grad


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a ``backward`` whose result can't be differentiated again: trying to do so raises.

    It runs unrecorded. Without this mark, a backward that leaves telegrad (for NumPy, say) would
    silently give a second derivative of zero.

    Raises:
        NotDifferentiable: If its result is differentiated.

    Examples:
        >>> class Double(tg.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         return x * 2
        ...
        ...     @staticmethod
        ...     @tg.autograd.once_differentiable
        ...     def backward(ctx, cotangent):
        ...         return tg.asarray(cotangent.numpy() * 2)
        >>> tg.autograd.grad(Double.apply(x := tg.tensor(1.0, requires_grad=True)), x)
        (tensor(2.),)
    """
    return refusing(
        backward,
        "{name}.backward is marked once_differentiable, so its result has no derivative; write it "
        "with telegrad's functions and take the mark off",
    )


def refusing(backward: Callable[..., Any], text: str) -> Callable[..., Any]:
    """Return a ``backward`` marked so; `text` is the error's message, with a place for {name}."""

    @wraps(backward)
    def wrapper(ctx: Any, *cotangents: Any) -> Any:
        savings = savings_of(ctx)
        message = text.format(name=savings.name)
        # A backward may keep an argument as an attribute of ctx, unsaved.
        given = [x for x in (*cotangents, *vars(ctx).values()) if isinstance(x, Tensor)]
        if savings.have_tangents() or any(x.is_dual for x in given):
            raise NotDifferentiable(message)
        with no_grad():
            answer = backward(ctx, *cotangents)
        if not MODE.get().recording:
            return answer
        edges = (
            *(history_of(x) for x in given if x.node is not None),
            *savings.histories(),
        )
        parts = answer if isinstance(answer, (tuple, list)) else (answer,)
        refused = sealed(parts, edges, message)
        return refused if isinstance(answer, (tuple, list)) else refused[0]

    return wrapper


def sealed(values: Iterable[Any], edges: tuple[Any, ...], message: str) -> tuple[Any, ...]:
    """Return the values with a node that raises if a pass goes through it to the edges."""
    return tuple(
        wrap(x.array, RefusingNode(edges, message)) if isinstance(x, Tensor) and edges else x
        for x in values
    )
