"""A module of ours beside PyTorch's: the same state, the same inputs, everything compared."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import telegrad as tg

__all__ = ["assert_close", "assert_twins", "paired", "to_ours", "to_theirs"]

Array = np.ndarray[Any, Any]


def to_ours(array: Any, needs_grad: bool = True) -> Any:
    """A Tensor; floating ones require grad."""
    array = np.asarray(array)
    return tg.tensor(array, requires_grad=needs_grad and array.dtype.kind == "f")


def to_theirs(array: Any, needs_grad: bool = True) -> Any:
    """PyTorch's tensor of the same."""
    array = np.asarray(array)
    return torch.tensor(array, requires_grad=needs_grad and array.dtype.kind == "f")


def assert_close(ours: Any, theirs: Any, atol: float = 1e-6) -> None:
    """Equal shapes, and values that differ by less than `atol`."""
    found, expected = np.asarray(ours.detach().array), theirs.detach().numpy()
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=atol)


def paired(ours: Any, theirs: Any) -> tuple[Any, Any]:
    """Both modules in float64 with PyTorch's values; their state dicts must look the same."""
    theirs = theirs.double()
    ours = ours.double()
    state = theirs.state_dict()
    assert {n: tuple(v.shape) for n, v in state.items()} == {
        n: v.shape for n, v in ours.state_dict().items()
    }
    assert list(state) == list(ours.state_dict())
    ours.load_state_dict({name: value.numpy() for name, value in state.items()})
    return ours, theirs


def _outputs(result: Any) -> list[Any]:
    parts = result if isinstance(result, tuple) else (result,)
    return [part for part in parts if part is not None]


def _weights(results: Sequence[Any]) -> list[Array]:
    rng = np.random.default_rng(11)
    return [np.asarray(rng.normal(size=tuple(r.shape))) for r in results]


def assert_twins(ours: Any, theirs: Any, *inputs: Any, second: bool = True, **options: Any) -> None:
    """Equal values, gradients (inputs and parameters) and second derivatives."""
    mine = [to_ours(x) for x in inputs]
    other = [to_theirs(x) for x in inputs]
    my_outputs = _outputs(ours(*mine, **options))
    their_outputs = _outputs(theirs(*other, **options))
    assert len(my_outputs) == len(their_outputs)
    for a, b in zip(my_outputs, their_outputs):
        assert_close(a, b)
    weights = _weights(their_outputs)
    my_leaves = [x for x in mine if x.requires_grad]
    their_leaves = [x for x in other if x.requires_grad]
    if hasattr(ours, "parameters"):
        my_leaves += list(ours.parameters())
        their_leaves += list(theirs.parameters())
    mine_total = sum((o * w).sum() for o, w in zip(my_outputs, map(_constant, weights)))
    other_total = sum((o * torch.tensor(w)).sum() for o, w in zip(their_outputs, weights))
    mine_grads = tg.autograd.grad(
        mine_total, my_leaves, create_graph=second, materialize_grads=True
    )
    other_grads = torch.autograd.grad(
        other_total, their_leaves, create_graph=second, materialize_grads=True
    )
    for a, b in zip(mine_grads, other_grads):
        assert_close(a, b)
    if second:
        _assert_second(mine_grads, other_grads, my_leaves, their_leaves)


def _assert_second(mine: Any, theirs: Any, my_leaves: Any, their_leaves: Any) -> None:
    mine_total = sum((g * g).sum() for g in mine)
    other_total = sum((g * g).sum() for g in theirs)
    if mine_total.requires_grad:
        mine = tg.autograd.grad(mine_total, my_leaves, materialize_grads=True)
    else:
        mine = [tg.zeros_like(x) for x in my_leaves]
    if other_total.requires_grad:
        theirs = torch.autograd.grad(other_total, their_leaves, materialize_grads=True)
    else:
        theirs = [torch.zeros_like(x) for x in their_leaves]
    for a, b in zip(mine, theirs):
        assert_close(a, b)


def _constant(array: Array) -> Any:
    return tg.tensor(array)
