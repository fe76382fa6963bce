"""Check the roots and gradients that a backward pass starts from, before anything runs."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from telegrad.arrays import backend_of
from telegrad.errors import DTypeError, GradientError
from telegrad.tensors import Tensor, history_of, wrap
from telegrad.tensors.describe import kind_of, no_tensor, way_in
from telegrad.tensors.likeness import check_like
from telegrad.tensors.shared import unshared

Tensors: TypeAlias = Tensor | Sequence[Tensor]
Gradients: TypeAlias = Tensor | Sequence[Tensor | None] | None


class Start(NamedTuple):
    """A gradient given for a root of another framework, which stays on its device."""

    facts: Tensor
    """A Tensor of its shape and dtype, which are checked as any gradient's are."""
    value: Tensor
    """The cotangent that the pass starts with; its array is the framework's own."""


def listed(
    tensors: Any, name: str, adopted: Callable[[Any], Any] = lambda value: value
) -> list[Tensor]:
    """Return a Tensor or a sequence of them as a list; `adopted` converts other values."""
    if isinstance(tensors, Tensor):
        return [tensors]
    if type(tensors) is not list:
        tensors = adopted(tensors)
        if isinstance(tensors, Tensor):
            return [tensors]
        if not hasattr(tensors, "__iter__") or hasattr(tensors, "__dlpack__"):
            raise DTypeError(
                f"expected a Tensor or a sequence of Tensors as {name}, got {kind_of(tensors)}; "
                f"make one with {way_in(tensors)} and compute with that"
            )
    listed = list(tensors)
    for i, each in enumerate(listed):
        if not isinstance(each, Tensor):
            listed[i] = each = adopted(each)
            if not isinstance(each, Tensor):
                raise no_tensor(each, f"as {name}[{i}]")
    return listed


def node_of(x: Tensor, name: str) -> Any:
    if x.node is None:
        raise GradientError(
            f"expected tensors that require grad as {name}, got one that does not; call "
            "requires_grad_() on it before computing with it"
        )
    return history_of(x)


def checked_roots(
    tensors: list[Tensor], gradients: Gradients, name: str, recorded: bool
) -> dict[Any, Any]:
    """Return the initial cotangent of each root's node; a tensor given twice counts twice."""
    if not tensors:
        raise GradientError("expected at least one tensor to differentiate, got none")
    given = None if gradients is None else _given(gradients, len(tensors), name)
    roots: dict[Any, Any] = {}
    for i, x in enumerate(tensors):
        node = history_of(x)
        if node is None:
            raise GradientError(
                "expected a tensor that requires grad to differentiate, got one that does not and "
                "has no grad_fn; was it computed under no_grad, or from constants only?"
            )
        gradient = None if given is None else given[i]
        if gradient is None:
            start = _ones(x, name, i, recorded)
        else:
            start = _checked(x, gradient, f"{name}[{i}]", recorded)
        roots[node] = roots[node] + start if node in roots else start
    return roots


def _given(gradients: Any, count: int, name: str) -> Sequence[Any]:
    """Return the gradients as a list, one for each of `count` tensors."""
    if isinstance(gradients, (Tensor, Start)):
        given = [gradients]
    elif not isinstance(gradients, Iterable):
        raise DTypeError(
            f"expected a Tensor, or a sequence of Tensors, as {name}, got "
            f"{type(gradients).__name__}; write telegrad.tensor({gradients!r}) for a number"
        )
    else:
        given = list(gradients)
    if len(given) != count:
        raise GradientError(
            f"expected one gradient for each of the {count} tensors in {name}, got {len(given)}"
        )
    return given


def _ones(x: Tensor, name: str, place: int, recorded: bool) -> Any:
    """Return the initial cotangent of a scalar: one."""
    array = x.array
    if math.prod(array.shape) != 1:
        raise GradientError(
            f"expected a scalar, or a gradient for it, to start from, got a tensor of shape "
            f"{x.shape}; reduce it, e.g. with .sum(), or pass a gradient of that shape "
            f"({name}[{place}])"
        )
    dtype = x.dtype
    if dtype.kind == "c":
        raise GradientError(
            f"expected a real scalar to differentiate, got dtype {dtype}; pass {name}[{place}]"
        )
    start = backend_of(array).ones(array.shape, dtype=dtype)
    return wrap(start) if recorded or x.tangents else start


def _checked(x: Tensor, gradient: Any, name: str, recorded: bool) -> Any:
    """Return a gradient given for a tensor, after checking it."""
    start: Tensor | None = None
    if type(gradient) is Start:
        gradient, start = gradient
    if not isinstance(gradient, Tensor):
        raise no_tensor(gradient, f"as {name}", "a Tensor or None")
    check_like(gradient, x, f"the gradient {name}", "its tensor")
    gradient = unshared(gradient) if start is None else start
    return gradient if recorded or gradient.is_dual else gradient.array
