"""Above the sizes where kernels change their ways, derivatives stay what PyTorch says they are."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import telegrad

SIDE = 160
"""SIDE * SIDE is more than any threshold in ``arrays/numpy_*.py``."""

INDEX = np.random.default_rng(5).integers(0, SIDE, size=4 * SIDE)
COLUMNS = np.random.default_rng(6).integers(0, SIDE, size=4 * SIDE)

PROGRAMS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sum of all": (telegrad.sum, torch.sum),
    "sum of one axis": (
        lambda x: telegrad.sum(x, axis=0) * telegrad.sum(x, axis=1),
        lambda x: torch.sum(x, 0) * torch.sum(x, 1),
    ),
    "mean and broadcasting": (
        lambda x: x - telegrad.mean(x, axis=1, keepdims=True) * x[0],
        lambda x: x - torch.mean(x, 1, keepdim=True) * x[0],
    ),
    "rows by index": (lambda x: x[INDEX], lambda x: x[torch.from_numpy(INDEX)]),
    "elements by two indices": (
        lambda x: telegrad.sin(x[INDEX, COLUMNS]),
        lambda x: torch.sin(x[torch.from_numpy(INDEX), torch.from_numpy(COLUMNS)]),
    ),
    "slices": (lambda x: x[::2, 3:] * x[1::2, 3:], lambda x: x[::2, 3:] * x[1::2, 3:]),
    "products": (lambda x: telegrad.tanh(x @ x.T / 100), lambda x: torch.tanh(x @ x.T / 100)),
    "largest": (lambda x: telegrad.max(x, axis=1), lambda x: torch.amax(x, 1)),
    "sorted": (lambda x: telegrad.sort(x, axis=0), lambda x: torch.sort(x, 0).values),
    "running sums": (
        lambda x: telegrad.cumulative_sum(x, axis=1),
        lambda x: torch.cumsum(x, 1),
    ),
    "the same tensor often": (lambda x: x + x * x + x, lambda x: x + x * x + x),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_of_large_arrays_are_those_of_pytorch(name: str, dtype: str) -> None:
    ours, theirs = PROGRAMS[name]
    array = np.random.default_rng(1).normal(size=(SIDE, SIDE)).astype(dtype)
    x = telegrad.tensor(array, requires_grad=True)
    y = ours(x)
    weights = np.random.default_rng(2).normal(size=y.shape).astype(dtype)
    y.backward(telegrad.asarray(weights))
    twin = torch.from_numpy(array.copy()).requires_grad_()
    theirs(twin).backward(torch.from_numpy(weights))
    close = {"float32": 2e-4, "float64": 1e-10}[dtype]
    assert x.grad is not None
    assert twin.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), twin.grad.numpy(), rtol=close, atol=close)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_gradient_of_a_large_leaf_has_memory_of_its_own(name: str) -> None:
    x = telegrad.tensor(np.ones((SIDE, SIDE)), requires_grad=True)
    y = PROGRAMS[name][0](x)
    start = telegrad.ones(y.shape, dtype=telegrad.float64)
    y.backward(start)
    assert x.grad is not None
    array = x.grad.array
    assert array.flags.writeable
    assert array.flags.forc
    assert not np.shares_memory(array, start.array)
    assert not np.shares_memory(array, x.array)
