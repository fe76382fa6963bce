"""Modules differentiate in both modes, mixed, and beyond the second order."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import telegrad as tg
from telegrad import nn
from telegrad.testing import gradient_check

RNG = np.random.default_rng(8)


def seeded(build: Callable[[], Any]) -> Any:
    tg.manual_seed(3)
    return build().double()


def causal(attention: Any) -> Callable[[Any], Any]:
    return lambda x: attention(x, x, x, is_causal=True)


FUNCTIONS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "self-attention": (
        lambda: causal(seeded(lambda: nn.MultiheadAttention(2, 1, batch_first=True))),
        (1, 3, 2),
    ),
    "recurrent": (lambda: seeded(lambda: nn.GRU(2, 2)), (2, 1, 2)),
    "convolution and pooling": (
        lambda: seeded(lambda: nn.Sequential(nn.Conv2d(1, 2, 2), nn.Tanh(), nn.AvgPool2d(2))),
        (1, 1, 3, 3),
    ),
    "normalisation and GELU": (
        lambda: seeded(lambda: nn.Sequential(nn.LayerNorm(3), nn.GELU(), nn.Linear(3, 2))),
        (2, 3),
    ),
    "batch normalisation": (
        lambda: seeded(lambda: nn.BatchNorm2d(2, track_running_stats=False)),
        (2, 2, 1, 2),
    ),
    "cross entropy": (
        lambda: lambda x: nn.functional.cross_entropy(x, tg.tensor([1, 0]), label_smoothing=0.1),
        (2, 3),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_right_in_both_modes_and_mixed(name: str) -> None:
    build, shape = FUNCTIONS[name]
    gradient_check(build(), [RNG.normal(size=shape)])


def test_a_third_derivative_of_a_network_is_right() -> None:
    model = seeded(lambda: nn.Sequential(nn.Linear(1, 3), nn.GELU(), nn.LayerNorm(3)))
    weights = tg.tensor(RNG.normal(size=(3,)))

    def third(at: float) -> Any:
        x = tg.tensor([[at]], dtype=tg.float64, requires_grad=True)
        y = (model(x) * weights).sum()
        for _ in range(3):
            (y,) = tg.autograd.grad(y.sum(), x, create_graph=True)
        return y.item()

    def second(at: float) -> Any:
        x = tg.tensor([[at]], dtype=tg.float64, requires_grad=True)
        y = (model(x) * weights).sum()
        for _ in range(2):
            (y,) = tg.autograd.grad(y.sum(), x, create_graph=True)
        return y.item()

    step = 1e-4
    expected = (second(0.7 + step) - second(0.7 - step)) / (2 * step)
    assert abs(third(0.7) - expected) < 1e-5 * max(1.0, abs(expected))


def test_the_second_derivative_of_max_pooling_alone_is_zero() -> None:
    x = tg.tensor(RNG.normal(size=(1, 2, 4, 4)), requires_grad=True)
    pooled = nn.functional.max_pool2d(x, 3, stride=1)
    (gradient,) = tg.autograd.grad(pooled.sum(), x, create_graph=True)
    (second,) = tg.autograd.grad(gradient.sum(), x)
    assert second.dtype == x.dtype
    assert second.tolist() == tg.zeros_like(x).tolist()


def test_the_second_derivative_of_a_layer_norm_of_nothing_is_nothing() -> None:
    x = tg.zeros((2, 0), dtype=tg.float64).requires_grad_()
    (gradient,) = tg.autograd.grad(
        nn.functional.layer_norm(x, (0,)).sum(), x, create_graph=True, materialize_grads=True
    )
    (second,) = tg.autograd.grad(gradient.sum(), x)
    assert second.shape == (2, 0)
