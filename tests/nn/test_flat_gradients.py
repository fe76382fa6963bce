"""A gradient that does not depend on the input, differentiated by it: raises or gives what PyTorch
does, function by function."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg
from telegrad.nn import functional

RNG = np.random.default_rng(5)
X = RNG.normal(size=(1, 2, 4, 4))
OTHER = RNG.normal(size=(1, 2, 4, 4))
KERNEL = RNG.normal(size=(3, 2, 2, 2))

Function = Callable[[Any, Any, Callable[[Any], Any], Any], Any]
FUNCTIONS: dict[str, Function] = {
    "relu": lambda lib, nn, const, x: nn.relu(x),
    "avg_pool2d": lambda lib, nn, const, x: nn.avg_pool2d(x, 2),
    "avg_pool2d of padded": lambda lib, nn, const, x: nn.avg_pool2d(
        x, 3, padding=1, count_include_pad=False
    ),
    "max_pool2d": lambda lib, nn, const, x: nn.max_pool2d(x, 2),
    "conv2d by its input": lambda lib, nn, const, x: nn.conv2d(x, const(KERNEL), padding=1),
    "conv2d by its weight": lambda lib, nn, const, x: nn.conv2d(const(OTHER), x),
    "conv2d of a power": lambda lib, nn, const, x: nn.conv2d(x * x, const(KERNEL)),
    "avg_pool2d of a power": lambda lib, nn, const, x: nn.avg_pool2d(x * x, 2),
    "linear": lambda lib, nn, const, x: nn.linear(x, const(OTHER[0, 0])),
    "a product with a constant": lambda lib, nn, const, x: x * const(OTHER),
    "a matrix product with a constant": lambda lib, nn, const, x: x @ const(OTHER),
    "a sum": lambda lib, nn, const, x: x.sum(),
    "a mean": lambda lib, nn, const, x: x.mean(),
    "a part": lambda lib, nn, const, x: x[0],
    "a reshape": lambda lib, nn, const, x: x.reshape(-1),
    "the largest": lambda lib, nn, const, x: x.max(),
    "where": lambda lib, nn, const, x: lib.where(x > 0, x, x * 3),
    "maximum": lambda lib, nn, const, x: lib.maximum(x, const(OTHER)),
    "clip": lambda lib, nn, const, x: lib.clip(x, -1, 1),
    "floor": lambda lib, nn, const, x: lib.floor(x),
}


def outcome(attempt: Callable[[], Any]) -> str:
    try:
        found = attempt()
    except (RuntimeError, tg.errors.GradientError):
        return "raises"
    if found is None:
        return "nothing"
    return "numbers" if np.any(found.detach().numpy()) else "zeros"


def outcomes(lib: Any, nn: Any, const: Callable[[Any], Any], function: Function) -> dict[str, Any]:
    """What each way to differentiate the gradient again gives."""
    x = const(X).requires_grad_()
    y = function(lib, nn, const, x)
    (gradient,) = lib.autograd.grad(y.sum(), x, create_graph=True)

    def again(**options: Any) -> Any:
        return lib.autograd.grad(gradient.sum(), x, retain_graph=True, **options)[0]

    def backward() -> Any:
        gradient.sum().backward()
        return x.grad

    return {
        "requires_grad": gradient.requires_grad,
        "grad": outcome(again),
        "grad, allow_unused": outcome(lambda: again(allow_unused=True)),
        "grad, materialize_grads": outcome(lambda: again(materialize_grads=True)),
        "backward": outcome(backward),
    }


@pytest.mark.parametrize("name", FUNCTIONS)
def test_differentiating_a_gradient_again_raises_or_gives_what_pytorch_does(name: str) -> None:
    function = FUNCTIONS[name]
    ours = outcomes(tg, functional, tg.tensor, function)
    theirs = outcomes(torch, torch.nn.functional, torch.tensor, function)
    assert ours == theirs


def test_a_link_passes_the_cotangent_on_to_a_gradients_own_history() -> None:
    x = tg.tensor(X, requires_grad=True)
    weights = tg.tensor(np.ones((1, 2, 2, 2)), requires_grad=True)
    pooled = functional.avg_pool2d(x, 2)
    (by_x,) = tg.autograd.grad(pooled, x, weights, create_graph=True)
    by_weights, again = tg.autograd.grad((by_x * by_x).sum(), (weights, x))
    # Each of four places has a quarter of the weight: 4 · 2 · w / 16.
    np.testing.assert_allclose(by_weights.numpy(), 0.5)
    assert not again.numpy().any()
    assert by_x.grad_fn is not None
    assert by_x.grad_fn.name() == "PoolSumBackwardBackward"
