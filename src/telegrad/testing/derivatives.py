"""The products with a Jacobian and its transpose, as functions that can be differentiated again."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from telegrad.autograd import grad
from telegrad.autograd.forward_ad import dual_level, make_dual, unpack_dual
from telegrad.graph import reachable
from telegrad.ops.filled import zeros_like
from telegrad.tensors import LEAF, Tensor, wrap

Tensors: TypeAlias = Callable[..., tuple[Tensor, ...]]
"""A function of Tensors with a tuple of Tensors as its result."""


def vjp(
    f: Tensors, inputs: Sequence[Tensor], cotangents: Sequence[Tensor], *, recorded: bool
) -> tuple[Tensor, ...]:
    """Return the transposed Jacobian of `f` at the inputs, times the cotangents."""
    ends = [x if x.requires_grad else wrap(x.array, LEAF, x.tangents) for x in inputs]
    outputs = f(*ends)
    pairs = [(y, v) for y, v in zip(outputs, cotangents, strict=True) if y.requires_grad]
    if not pairs:
        return tuple(zeros_like(x) for x in inputs)
    roots, weights = zip(*pairs)
    return grad(roots, ends, weights, create_graph=recorded, materialize_grads=True)


def jvp(f: Tensors, inputs: Sequence[Tensor], tangents: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the Jacobian of `f` at the inputs, times the tangents."""
    with dual_level():
        duals = [make_dual(x, t) for x, t in zip(inputs, tangents, strict=True)]
        parts = [unpack_dual(y) for y in f(*duals)]
        return tuple(zeros_like(y) if t is None else t for y, t in parts)


def names_of_nodes(outputs: Sequence[Tensor]) -> list[str]:
    """Return the names of the operations that gave the outputs, each once, in order."""
    entries: list[Any] = [y.node for y in outputs if not y.is_leaf]
    names = [node.name() for node in reversed(reachable(entries)) if not node.is_leaf]
    return list(dict.fromkeys(names))
