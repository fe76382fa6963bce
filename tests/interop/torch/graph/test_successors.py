"""A step between another trainer's forward and backward leaves the old value to that pass."""

from contextvars import copy_context

import pytest
import torch
from tests.distributed.simulated import on_workers
from tests.interop.torch import handlers as handlers

from telegrad.distributed import LocalCluster, RemoteModule, autograd, rpc
from telegrad.distributed.contexts.context import CURRENT
from telegrad.distributed.optim import DistributedOptimizer
from telegrad.errors import SavedValueChanged
from telegrad.interop.torch.graph.successors import note, stepped, successor
from telegrad.torch import from_torch

KINDS = [
    (torch.optim.SGD, {}),
    (torch.optim.SGD, {"momentum": 0.9}),
    (torch.optim.Adam, {}),
    (torch.optim.Adam, {"fused": True}),
    (torch.optim.SGD, {"fused": True}),
]
NAMES = ["sgd", "momentum", "adam", "fused adam", "fused sgd"]


def ones():
    return torch.ones(2, dtype=torch.float64, requires_grad=True)


def step_by_another(optimizer, function=handlers.scale):
    """Train a step in a context of its own, as another trainer would."""

    def step():
        CURRENT.set(None)
        with autograd.context() as context_id:
            y = rpc.rpc_sync("b", function, (ones(),))
            autograd.backward(context_id, [y.sum()])
            optimizer.step(context_id)

    copy_context().run(step)


def late_gradients(optimizer, steps):
    """The gradients of a pass whose forward is older than some steps of another trainer."""
    one = ones()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one,)).square()
        for _ in range(steps):
            step_by_another(optimizer)
        autograd.backward(context_id, [y.sum()])
        here = autograd.get_gradients(context_id)[one]
        there = rpc.rpc_sync("b", handlers.gradients, (context_id,))
    return here.tolist(), there


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize(("kind", "options"), KINDS, ids=NAMES)
def test_a_step_between_the_forward_and_the_backward_of_another_trainer_stays_exact(
    kind, options, steps
):
    @on_workers("main", "b")
    def program():
        reference = rpc.remote("b", handlers.parameter)
        optimizer = DistributedOptimizer(kind, [reference], lr=0.1, **options)
        before = reference.to_here()
        found = late_gradients(optimizer, steps)
        # y = (x·w)²: by x it is 2·x·w², by w 2·w·x², at the w of the forward pass.
        assert found == ([8, 18], {"w": [4, 6]})
        assert (reference.to_here() != before).all()

    program()


@pytest.mark.parametrize(("kind", "options"), KINDS, ids=NAMES)
def test_steps_aside_give_the_same_values_as_steps_in_place(kind, options):
    @on_workers("main", "b")
    def program():
        reference = rpc.remote("b", handlers.parameter)
        optimizer = DistributedOptimizer(kind, [reference], lr=0.1, **options)
        expected = torch.tensor([2.0, 3.0], dtype=torch.float64, requires_grad=True)
        alone = kind([expected], lr=0.1, **options)
        for _ in range(3):
            with autograd.context():
                rpc.rpc_sync("b", handlers.scale, (ones(),))
                step_by_another(optimizer)
            expected.sum().backward()
            alone.step()
            alone.zero_grad()
            assert torch.equal(reference.to_here(), expected)
        state = optimizer.state_dict()["owners"]["b"]
        assert state["param_groups"][0]["params"] == [0]

    program()


@on_workers("main", "b")
def test_one_pass_through_the_old_and_the_new_value_sums_both_gradients():
    optimizer = DistributedOptimizer(torch.optim.SGD, [rpc.remote("b", handlers.parameter)], lr=1.0)
    one = ones()
    with autograd.context() as context_id:
        old = rpc.rpc_sync("b", handlers.scale, (one,))
        step_by_another(optimizer)
        new = rpc.rpc_sync("b", handlers.scale, (one,))
        autograd.backward(context_id, [(old.square() + new.square()).sum()])
        found = rpc.rpc_sync("b", handlers.gradients, (context_id,))
        # w went from [2, 3] to [1, 2].
        assert found == {"w": [2 * 2 + 2 * 1, 2 * 3 + 2 * 2]}
        assert autograd.get_gradients(context_id)[one].tolist() == [10, 26]


@on_workers("main", "b")
def test_a_step_in_the_middle_of_ones_own_context_stays_exact():
    one = ones()
    optimizer = DistributedOptimizer(torch.optim.SGD, [rpc.remote("b", handlers.parameter)], lr=1.0)
    with autograd.context() as context_id:
        autograd.backward(context_id, [rpc.rpc_sync("b", handlers.scale, (one,)).sum()])
        late = rpc.rpc_sync("b", handlers.scale, (one,))
        optimizer.step(context_id)
        autograd.backward(context_id, [late.sum()])
        assert autograd.get_gradients(context_id)[one].tolist() == [4, 6]


@on_workers("main", "b")
def test_second_order_through_an_old_value_is_that_of_the_old_value():
    optimizer = DistributedOptimizer(torch.optim.SGD, [rpc.remote("b", handlers.parameter)], lr=1.0)
    one = ones()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one,))
        step_by_another(optimizer)
        (slope,) = autograd.grad(context_id, [(y**3).sum()], [one], create_graph=True)
        (curvature,) = autograd.grad(context_id, [slope.sum()], [one])
        # d²(xw)³/dx² = 6·w³·x
        assert curvature.tolist() == [48, 162]


@on_workers("main", "b")
def test_an_asked_for_parameter_gets_the_gradient_of_its_old_value():
    reference = rpc.remote("b", handlers.parameter)
    optimizer = DistributedOptimizer(torch.optim.SGD, [reference], lr=1.0)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (ones(),)).square()
        step_by_another(optimizer)
        (found,) = autograd.grad(context_id, [y.sum()], [reference])
        assert found.tolist() == [4, 6]


def scale_by_view(x):
    """Through a matrix product, which saves a view of the parameter."""
    return x.reshape(1, 2) @ handlers.parameter("matrix", ((1.0, 2.0), (3.0, 4.0))).t()


@on_workers("main", "b")
def test_views_that_a_graph_saved_keep_the_old_value_too():
    matrix = ("matrix", ((1.0, 2.0), (3.0, 4.0)))
    reference = rpc.remote("b", handlers.parameter, matrix)
    optimizer = DistributedOptimizer(torch.optim.SGD, [reference], lr=1.0)
    one = ones()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", scale_by_view, (one,))
        step_by_another(optimizer, scale_by_view)
        autograd.backward(context_id, [y.sum()])
        assert autograd.get_gradients(context_id)[one].tolist() == [4, 6]
    assert reference.to_here().tolist() == [[0, 1], [2, 3]]


def leaf():
    made = torch.tensor([2.0, 3.0], requires_grad=True)
    note(made)
    return made


def step_aside(parameter):
    made = successor(parameter, torch.ones(2))
    assert made is not None
    with torch.no_grad():
        made.sub_(1)
    stepped(parameter, made)


def test_a_pass_of_pytorch_alone_over_an_old_value_is_an_error_not_a_gradient_lost():
    parameter = leaf()
    y = parameter.square().sum()
    step_aside(parameter)
    with pytest.raises(SavedValueChanged, match="DistributedOptimizer stepped it aside"):
        y.backward()
    assert parameter.grad is None


def test_a_pass_of_telegrad_over_an_old_value_gives_the_parameter_its_gradient():
    parameter = leaf()
    y = from_torch(parameter.square().sum())
    step_aside(parameter)
    y.backward()
    assert parameter.grad.tolist() == [4, 6]
    assert parameter.tolist() == [1, 2]


def test_hooks_hung_after_a_step_see_the_gradient_of_the_old_value():
    parameter = leaf()
    y = from_torch(parameter.square().sum())
    step_aside(parameter)
    parameter.register_hook(lambda gradient: gradient * 10)
    y.backward()
    assert parameter.grad.tolist() == [40, 60]


def test_an_old_value_goes_with_the_graph_that_saved_it():
    parameter = leaf()
    y = parameter.square().sum()
    node = torch.autograd.graph.get_gradient_edge(parameter).node
    step_aside(parameter)
    old = node.variable
    assert old.tolist() == [2, 3]
    gone = torch.utils.weak.WeakIdRef(old)
    del y, node, old
    assert gone() is None


class Held(torch.nn.Module):
    """A module whose parameter somebody else holds as well."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([2.0, 3.0]))

    def forward(self, x):
        return x * self.weight


def scripted():
    module = torch.jit.script(Held())
    return module.weight, module


def viewed():
    module = Held()
    return module.weight, module.weight.detach()


def hooked():
    module = Held()
    module.weight.register_hook(lambda gradient: gradient)
    return module.weight, None


def shared():
    module = Held().share_memory()
    return module.weight, None


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("make", [scripted, viewed, hooked, shared])
def test_a_parameter_that_others_hold_in_ways_that_a_swap_would_break_is_stepped_in_place(make):
    parameter, holder = make()
    note(parameter)
    assert successor(parameter, torch.ones(2)) is None
    del holder


def test_a_sparse_gradient_is_stepped_in_place():
    parameter = torch.ones(4, 2, requires_grad=True)
    note(parameter)
    gradient = torch.ones(4, 2).to_sparse(1)
    assert successor(parameter, gradient) is None


class Stubborn(torch.optim.SGD):
    """An optimiser that keeps its parameters elsewhere too."""

    def __init__(self, params, lr):
        params = list(params)
        super().__init__(params, lr)
        self.own = params

    def step(self):
        with torch.no_grad():
            for parameter in self.own:
                parameter.sub_(1.0)


class Bare:
    """An optimiser that has a step and nothing else."""

    def __init__(self, params, lr):
        self.own = list(params)

    step = Stubborn.step


@pytest.mark.parametrize("kind", [Stubborn, Bare])
@on_workers("main", "b")
def test_an_optimiser_that_steps_its_parameters_in_place_all_the_same_is_an_error_for_the_pass(
    kind,
):
    reference = rpc.remote("b", handlers.parameter)
    optimizer = DistributedOptimizer(kind, [reference], lr=1.0)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (ones(),)).square()
        step_by_another(optimizer)
        assert reference.to_here().tolist() == [1, 2]
        with pytest.raises(SavedValueChanged, match=r"parameter\.clone\(\)"):
            autograd.backward(context_id, [y.sum()])


def train(module, seed, steps):
    generator = torch.Generator().manual_seed(seed)
    optimizer = DistributedOptimizer(torch.optim.SGD, module.parameters(), lr=0.02)
    losses = []
    for _ in range(steps):
        x = torch.randn(16, 3, generator=generator)
        with autograd.context() as context_id:
            loss = (module(x) - x.sum(1, keepdim=True)).square().mean()
            autograd.backward(context_id, [loss])
            optimizer.step(context_id)
        losses.append(loss.item())
    return losses


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))


@pytest.mark.processes
def test_trainers_that_step_one_module_without_a_lock_learn_and_no_pass_fails():
    with LocalCluster(["ps", "one", "two"], me="main"):
        module = RemoteModule("ps", network)
        x = torch.randn(64, 3, generator=torch.Generator().manual_seed(9))
        before = (module(x) - x.sum(1, keepdim=True)).square().mean().item()
        futures = [
            rpc.rpc_async(name, train, (module, seed, 150))
            for seed, name in enumerate(("one", "two", "main"))
        ]
        for losses in rpc.wait_all(futures):
            assert sum(losses[-10:]) / 10 < before / 5
