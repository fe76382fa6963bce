"""Defaults, groups, states, complex numbers and schedules of the optimisers are PyTorch's.

``test_following_torch.py`` has the steps.
"""

from typing import Any

import numpy as np
import pytest
import torch
from tests.optim.cases import CASES

import telegrad as tg
from telegrad import nn, optim


def data() -> tuple[Any, Any]:
    rng = np.random.default_rng(2)
    return rng.normal(size=(16, 3)), rng.normal(size=(16, 2))


def run_ours(model: Any, optimizer: Any, steps: int) -> None:
    x, y = map(tg.tensor, data())
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def run_theirs(model: Any, optimizer: Any, steps: int) -> None:
    x, y = map(torch.tensor, data())
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def models(seed: int = 0) -> tuple[Any, Any]:
    torch.manual_seed(seed)

    def build(lib: Any) -> Any:
        return lib.Sequential(lib.Linear(3, 5), lib.Tanh(), lib.Linear(5, 2)).double()

    theirs = build(torch.nn)
    ours = build(nn)
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    return ours, theirs


def assert_same(ours: Any, theirs: Any) -> None:
    for a, b in zip(ours.parameters(), theirs.parameters()):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad", "RMSprop"])
def test_defaults_are_pytorchs(name: str) -> None:
    ours, theirs = models()
    mine = getattr(optim, name)(ours.parameters()).defaults
    other = getattr(torch.optim, name)(theirs.parameters()).defaults
    assert mine == {key: other[key] for key in mine}


def test_groups_have_options_of_their_own() -> None:
    ours, theirs = models()

    def groups(model: Any) -> Any:
        return [{"params": model[0].parameters(), "lr": 0.2}, {"params": [model[2].weight]}]

    run_ours(ours, optim.SGD(groups(ours), lr=0.01, momentum=0.5), 10)
    run_theirs(theirs, torch.optim.SGD(groups(theirs), lr=0.01, momentum=0.5), 10)
    assert_same(ours, theirs)


@pytest.mark.parametrize("case", ["SGD with momentum", "Adam", "Adagrad", "RMSprop with all"])
def test_a_run_goes_on_from_pytorchs_state(case: str) -> None:
    name, options = CASES[case]
    ours, theirs = models()
    other = getattr(torch.optim, name)(theirs.parameters(), **options)
    run_theirs(theirs, other, 7)
    mine = getattr(optim, name)(ours.parameters(), **options)
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    state = other.state_dict()
    state["state"] = {
        i: {k: None if v is None else np.asarray(v) for k, v in kept.items()}
        for i, kept in state["state"].items()
    }
    mine.load_state_dict(state)
    run_theirs(theirs, other, 5)
    run_ours(ours, mine, 5)
    assert_same(ours, theirs)
    found = mine.state_dict()["state"][0]
    expected = other.state_dict()["state"][0]
    assert {k: v.shape for k, v in found.items() if v is not None} == {
        k: tuple(v.shape) for k, v in expected.items() if v is not None
    }


def test_complex_parameters_are_stepped_as_pytorch_steps_them() -> None:
    rng = np.random.default_rng(0)
    start = rng.normal(size=3) + 1j * rng.normal(size=3)
    mine, other = nn.Parameter(tg.tensor(start)), torch.nn.Parameter(torch.tensor(start))
    first, second = optim.Adam([mine], lr=0.1), torch.optim.Adam([other], lr=0.1)
    for _ in range(10):
        first.zero_grad()
        second.zero_grad()
        (tg.abs(mine) ** 2).sum().backward()
        (torch.abs(other) ** 2).sum().backward()
        first.step()
        second.step()
    np.testing.assert_allclose(mine.detach().numpy(), other.detach().numpy(), atol=1e-10)


SCHEDULES: dict[str, Any] = {
    "LambdaLR": lambda lib, o: lib.LambdaLR(o, lambda epoch: 0.9**epoch),
    "LambdaLR by group": lambda lib, o: lib.LambdaLR(o, [lambda e: 1.0 / (1 + e), lambda e: 0.5]),
    "StepLR": lambda lib, o: lib.StepLR(o, 3, gamma=0.5),
    "CosineAnnealingLR": lambda lib, o: lib.CosineAnnealingLR(o, 8, eta_min=0.001),
    "LinearLR": lambda lib, o: lib.LinearLR(o, start_factor=0.25, total_iters=4),
    "SequentialLR": lambda lib, o: lib.SequentialLR(
        o,
        [lib.LinearLR(o, 0.1, total_iters=3), lib.StepLR(o, 2), lib.CosineAnnealingLR(o, 5)],
        milestones=[3, 7],
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_are_pytorchs(name: str) -> None:
    ours, theirs = models()

    def groups(model: Any) -> Any:
        return [{"params": model[0].parameters(), "lr": 0.2}, {"params": model[2].parameters()}]

    mine = optim.SGD(groups(ours), lr=0.1)
    other = torch.optim.SGD(groups(theirs), lr=0.1)
    first = SCHEDULES[name](optim.lr_scheduler, mine)
    second = SCHEDULES[name](torch.optim.lr_scheduler, other)
    for _ in range(12):
        np.testing.assert_allclose(first.get_last_lr(), second.get_last_lr(), atol=1e-12)
        mine.step()
        other.step()
        first.step()
        second.step()
