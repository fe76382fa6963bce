"""Random programs that go from one graph to the other and back, in one process, beside PyTorch."""

import random

import pytest
import torch

import telegrad as tg
from telegrad.torch import from_torch, to_torch

VALUES = ([0.5, -0.25], [1.5, 0.75], [-0.5, 1.25], [0.25, 0.5])


def make_program(seed):
    """Steps (in PyTorch or in telegrad, operation, first operand, second operand)."""
    chosen = random.Random(seed)
    return [
        (
            chosen.choice([torch, tg]),
            chosen.choice(["add", "add", "multiply", "sin"]),
            *(chosen.randrange(count) for _ in "xy"),
        )
        for count in range(len(VALUES), len(VALUES) + chosen.randint(3, 9))
    ]


def over(x, side):
    if isinstance(x, side.Tensor):
        return x
    return to_torch(x) if side is torch else from_torch(x)


def run(program, leaves, start):
    values = list(leaves)
    for side, operation, first, second in program:
        side = side if start else torch
        x, y = over(values[first], side), over(values[second], side)
        values.append(side.sin(x) if operation == "sin" else getattr(side, operation)(x, y))
    used = [over(value, start or torch) for value in values[-3:]]
    return sum((value * value).sum() for value in used)


def gradients(seed, start, order):
    """Of each leaf; `start` says who starts the passes, None has all of it in PyTorch."""
    kinds = (tg, torch, tg, torch) if start else (torch,) * 4
    leaves = [
        kind.tensor(value, dtype=kind.float64, requires_grad=True)
        for kind, value in zip(kinds, VALUES)
    ]
    loss = run(make_program(seed), leaves, start)
    for _ in range(1, order):
        loss.backward(create_graph=True)
        found = [over(leaf.grad, start or torch) for leaf in leaves if leaf.grad is not None]
        for leaf in leaves:
            leaf.grad = None
        loss = sum((gradient * gradient).sum() for gradient in found)
    loss.backward()
    return [[0.0, 0.0] if leaf.grad is None else leaf.grad.tolist() for leaf in leaves]


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("start", [torch, tg], ids=["by PyTorch", "by telegrad"])
def test_a_pass_has_the_gradients_of_pytorch_however_often_it_goes_over(start, order):
    for seed in range(50):
        expected = gradients(seed, None, order)
        for found, alone in zip(gradients(seed, start, order), expected):
            assert found == pytest.approx(alone, rel=1e-9, abs=1e-12), seed
