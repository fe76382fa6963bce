"""Training torch modules on other workers: the same numbers as in one process."""

from functools import partial

import pytest
import torch
from tests.distributed.simulated import on_workers
from tests.interop.torch import handlers as handlers

from telegrad.distributed import LocalCluster, autograd, rpc
from telegrad.distributed.optim import DistributedOptimizer
from telegrad.distributed.remote_module import RemoteModule
from telegrad.errors import UsageError

OPTIMIZERS = {
    kind.__name__: kind
    for kind in vars(torch.optim).values()
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)
}
ELSEWHERE = {"Optimizer", "LBFGS", "Muon", "SparseAdam"}
"""Those that are none, need a closure, or take matrices or sparse gradients alone."""
SCHEDULERS = {
    "StepLR": {"step_size": 2},
    "MultiStepLR": {"milestones": [1, 3]},
    "ConstantLR": {"factor": 0.5, "total_iters": 2},
    "LinearLR": {"total_iters": 3},
    "ExponentialLR": {"gamma": 0.5},
    "PolynomialLR": {"total_iters": 3},
    "CosineAnnealingLR": {"T_max": 3},
    "CosineAnnealingWarmRestarts": {"T_0": 2},
    "CyclicLR": {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 2},
    "OneCycleLR": {"max_lr": 0.1, "total_steps": 10},
    "LambdaLR": {"lr_lambda": lambda epoch: 0.9**epoch},
    "MultiplicativeLR": {"lr_lambda": lambda epoch: 0.9},
    "ReduceLROnPlateau": {"patience": 0, "threshold": 1.0},
}


def data():
    torch.manual_seed(7)
    x = torch.randn(8, 3, dtype=torch.float64)
    return x, x.sum(1, keepdim=True).sin()


def train_here(steps, kind, options, schedule=None):
    """Two models in a row, in one process; returns the losses."""
    x, y = data()
    first, second = torch.nn.Linear(3, 3, dtype=torch.float64), handlers.Model(1)
    first.load_state_dict(make_first().state_dict())
    parameters = [*first.parameters(), *second.parameters()]
    optimizer = kind(parameters, **options)
    scheduler = None if schedule is None else schedule(optimizer)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (second(first(x)) - y).square().mean()
        loss.backward()
        optimizer.step()
        if scheduler is not None:
            step_scheduler(scheduler, schedule, loss)
        losses.append(loss.item())
    return losses


def step_scheduler(scheduler, schedule, loss):
    is_of_loss = schedule.func is torch.optim.lr_scheduler.ReduceLROnPlateau
    scheduler.step(*([loss.item()] if is_of_loss else []))


def make_first():
    torch.manual_seed(3)
    return torch.nn.Linear(3, 3, dtype=torch.float64)


def train_apart(steps, kind, options, schedule=None):
    """The first model here, the second on worker b."""
    x, y = data()
    first = make_first()
    second = RemoteModule("b", handlers.Model, (1,))
    references = [*(rpc.RRef(p) for p in first.parameters()), *second.parameters()]
    optimizer = DistributedOptimizer(kind, references, **options)
    scheduler = None
    if schedule is not None:
        scheduler = optimizer.schedule(schedule.func, **schedule.keywords)
    losses = []
    for _ in range(steps):
        with autograd.context() as context_id:
            loss = (second(first(x)) - y).square().mean()
            autograd.backward(context_id, [loss])
            optimizer.step(context_id)
            if scheduler is not None:
                step_scheduler(scheduler, schedule, loss)
            losses.append(loss.item())
    assert all(p.grad is None for p in first.parameters())
    return losses, optimizer, second


@pytest.mark.parametrize("name", sorted(OPTIMIZERS.keys() - ELSEWHERE))
@on_workers("main", "b")
def test_optimisers_of_torch_step_parameters_where_they_live(name):
    kind, options = OPTIMIZERS[name], {"lr": 0.01}
    losses, _, _ = train_apart(5, kind, options)
    assert losses == pytest.approx(train_here(5, kind, options), rel=1e-9)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("kind", "maker", "args", "options", "given"),
    [
        (
            torch.optim.SparseAdam,
            torch.nn.Embedding,
            (4, 2),
            {"sparse": True},
            torch.tensor([1, 1, 3]),
        ),
        (torch.optim.Muon, torch.nn.Linear, (3, 2), {"bias": False}, torch.ones(4, 3)),
    ],
    ids=["SparseAdam", "Muon"],
)
@on_workers("main", "b")
def test_so_do_those_for_sparse_gradients_and_for_matrices(kind, maker, args, options, given):
    here, there = maker(*args, **options), RemoteModule("b", maker, args, options)
    there.load_state_dict(here.state_dict())
    optimizer = kind(here.parameters(), lr=0.1)
    apart = DistributedOptimizer(kind, there.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        here(given).square().sum().backward()
        optimizer.step()
        with autograd.context() as context_id:
            autograd.backward(context_id, [there(given).square().sum()])
            apart.step(context_id)
    assert torch.equal(there.state_dict()["weight"], here.weight.detach())


@pytest.mark.parametrize("name", SCHEDULERS)
@on_workers("main", "b")
def test_schedulers_of_torch_go_along(name):
    schedule = partial(getattr(torch.optim.lr_scheduler, name), **SCHEDULERS[name])
    options = {"lr": 0.2, "momentum": 0.5}
    losses, _, _ = train_apart(5, torch.optim.SGD, options, schedule)
    assert losses == pytest.approx(train_here(5, torch.optim.SGD, options, schedule), rel=1e-9)
    assert losses != pytest.approx(train_here(5, torch.optim.SGD, options), rel=1e-9)


@pytest.mark.parametrize("name", sorted(OPTIMIZERS.keys() - ELSEWHERE))
@on_workers("main", "b")
def test_groups_of_torch_have_options_of_their_own(name):
    """A group that has parameters on one worker alone is empty on the other."""
    x, y = data()
    first, second = make_first(), RemoteModule("b", handlers.Model, (1,))
    here, there = make_first(), handlers.Model(1)
    kind = OPTIMIZERS[name]
    first_bias, second_bias = rpc.RRef(first.bias), second.parameters()[1]
    apart = DistributedOptimizer(
        kind,
        [
            {"params": [rpc.RRef(first.weight)], "lr": 0.003},
            {"params": [second.parameters()[0]]},
            {"params": [first_bias, second_bias], "lr": 0.02},
        ],
        lr=0.01,
    )
    optimizer = kind(
        [
            {"params": [here.weight], "lr": 0.003},
            {"params": [next(there.parameters())]},
            {"params": [here.bias, list(there.parameters())[1]], "lr": 0.02},
        ],
        lr=0.01,
    )
    factors = [lambda epoch: 0.5**epoch, lambda epoch: 1.0, lambda epoch: 2.0]
    schedule = apart.schedule(torch.optim.lr_scheduler.LambdaLR, factors)
    its_twin = torch.optim.lr_scheduler.LambdaLR(optimizer, factors)
    for _ in range(3):
        optimizer.zero_grad()
        (there(here(x)) - y).square().mean().backward()
        optimizer.step()
        its_twin.step()
        with autograd.context() as context_id:
            autograd.backward(context_id, [(second(first(x)) - y).square().mean()])
            apart.step(context_id)
        schedule.step()
    assert schedule.get_last_lr() == dict.fromkeys(("main", "b"), its_twin.get_last_lr())
    torch.testing.assert_close(first.state_dict(), here.state_dict())
    torch.testing.assert_close(second.state_dict(), there.state_dict())
    apart.load_state_dict(apart.state_dict())


@on_workers("main", "b")
def test_the_state_of_torch_optimisers_is_saved_and_restored():
    _, optimizer, module = train_apart(2, torch.optim.Adam, {"lr": 0.05})
    state = optimizer.state_dict()
    assert state["owners"]["b"]["state"][0]["step"] == 2
    optimizer.load_state_dict(state)
    there = optimizer.state_dict()["owners"]["b"]["state"][0]["exp_avg"]
    assert torch.equal(there, state["owners"]["b"]["state"][0]["exp_avg"])
    weights = module.state_dict()
    module.load_state_dict({name: value * 0 for name, value in weights.items()})
    assert module(torch.ones(1, 3, dtype=torch.float64)).item() == 0


@on_workers("main", "b")
def test_gradients_of_torch_are_clipped_over_all_workers():
    x, y = data()
    first = make_first()
    second = RemoteModule("b", handlers.Model, (1,))
    references = [*(rpc.RRef(p) for p in first.parameters()), *second.parameters()]
    optimizer = DistributedOptimizer(torch.optim.SGD, references, lr=0.1)
    local, other = make_first(), handlers.Model(1)
    (other(local(x)) - y).square().mean().backward()
    parameters = [*local.parameters(), *other.parameters()]
    expected = torch.nn.utils.clip_grad_norm_(parameters, 0.01).item()
    with autograd.context() as context_id:
        autograd.backward(context_id, [(second(first(x)) - y).square().mean()])
        assert optimizer.clip_grad_norm_(context_id, 0.01) == pytest.approx(expected)
        found = autograd.get_gradients(context_id)[first.weight]
        assert torch.allclose(found, local.weight.grad)


@pytest.mark.processes
def test_two_processes_train_a_torch_model():
    with LocalCluster(["b"]):
        losses, _, _ = train_apart(3, torch.optim.SGD, {"lr": 0.1})
    assert losses == pytest.approx(train_here(3, torch.optim.SGD, {"lr": 0.1}), rel=1e-9)


@on_workers("main", "b")
def test_an_optimiser_that_needs_a_closure_is_refused_when_it_is_made():
    parameter = rpc.remote("b", make_parameter)
    with pytest.raises(UsageError, match=r"got LBFGS, whose step\(\) needs more \(.*'closure'"):
        DistributedOptimizer(torch.optim.LBFGS, [parameter])


def make_parameter():
    return torch.ones(2, requires_grad=True)
