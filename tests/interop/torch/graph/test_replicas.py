"""Modules that PyTorch replicates: a distributed pass has their gradients averaged.

A group of one process averages nothing. So each module has a hook that doubles what would be sent:
doubled gradients are gradients that went through the reducer.
"""

import contextlib
import copy
import pickle
import threading

import pytest
import torch
from tests.rpc.neighbours import neighbours
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import telegrad as tg
import telegrad.torch.autograd as dist_autograd
import telegrad.torch.rpc as rpc
from telegrad.distributed.worker_autograd import attach_autograd
from telegrad.errors import GradientError
from telegrad.interop.torch.graph import replicas
from telegrad.rpc.current import set_default_worker
from telegrad.torch import from_torch
from telegrad.torch.optim import DistributedOptimizer


@pytest.fixture(autouse=True, scope="module")
def group():
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def doubled(_, bucket):
    done: torch.futures.Future = torch.futures.Future()
    done.set_result(bucket.buffer() * 2)
    return done


class TwoParts(nn.Module):
    """Calls a worker between its layers, so that its gradients come at different times."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 2, bias=False)
        self.second = nn.Linear(2, 1, bias=False)
        self.spare = nn.Linear(2, 1, bias=False)
        nn.init.ones_(self.first.weight)
        nn.init.ones_(self.second.weight)

    def forward(self, x):
        between = rpc.rpc_sync("alone", torch.mul, (self.first(x), 3.0))
        return self.second(between) + 0 * self.spare(between)


def replicated(**options):
    module = DistributedDataParallel(TwoParts(), **options)
    module.register_comm_hook(None, doubled)
    return module


X = torch.tensor([[1.0, 2.0]])
# loss = 3 (x · a₀ + x · a₁), so each row of the first layer has gradient 3x and the second 3 · 3.
FIRST, SECOND = [[3.0, 6.0]] * 2, [[9.0, 9.0]]


def gradients(context_id, module):
    found = dist_autograd.get_gradients(context_id)
    layers = module.module
    return found[layers.first.weight].tolist(), found[layers.second.weight].tolist()


def twice(rows):
    return [[2 * value for value in row] for row in rows]


@pytest.mark.parametrize("options", [{}, {"gradient_as_bucket_view": True}])
def test_gradients_go_through_the_reducer_to_the_context(alone, options):
    module = replicated(**options)
    for _ in range(3):
        with dist_autograd.context() as context_id:
            dist_autograd.backward(context_id, [module(X).sum()])
            assert gradients(context_id, module) == (twice(FIRST), twice(SECOND))
            kept = dist_autograd.get_gradients(context_id)[module.module.first.weight]
        assert all(parameter.grad is None for parameter in module.parameters())
    assert kept.tolist() == twice(FIRST)


def test_a_gradient_of_the_users_own_stays_in_its_place(alone):
    module = replicated()
    weight = module.module.first.weight
    own = weight.grad = torch.ones(2, 2)
    with dist_autograd.context() as context_id:
        dist_autograd.backward(context_id, [module(X).sum()])
        assert gradients(context_id, module)[0] == twice(FIRST)
    assert weight.grad is own
    assert own.tolist() == [[1, 1], [1, 1]]


def test_passes_without_synchronisation_add_up_in_the_context_before_the_next_with(alone):
    module = replicated()
    with dist_autograd.context() as context_id:
        with module.no_sync():
            dist_autograd.backward(context_id, [module(X).sum()])
        assert gradients(context_id, module) == (FIRST, SECOND)
        dist_autograd.backward(context_id, [module(X).sum()])
        assert gradients(context_id, module) == (twice(twice(FIRST)), twice(twice(SECOND)))


def test_parameters_that_nobody_used_are_found(alone):
    module = DistributedDataParallel(Chosen(), find_unused_parameters=True)
    module.register_comm_hook(None, doubled)
    for _ in range(2):
        with dist_autograd.context() as context_id:
            y = rpc.rpc_sync("alone", torch.mul, (module(X), 1.0))
            dist_autograd.backward(context_id, [y.sum()])
            found = dist_autograd.get_gradients(context_id)
        assert found[module.module.used.weight].tolist() == [[2, 4]]
        assert module.module.unused.weight not in found


def test_a_parameter_behind_a_call_of_the_module_itself_must_not_be_taken_for_unused(alone):
    """The module's reducer had what it expected, and would have left this one as it is."""
    module = replicated(find_unused_parameters=True)
    with (
        dist_autograd.context() as context_id,
        pytest.raises(GradientError, match=r"behind a remote call .* leave find_unused_parameters"),
    ):
        dist_autograd.backward(context_id, [module(X).sum()])
    assert all(parameter.grad is None for parameter in module.parameters())


def test_unused_parameters_are_found_among_several_that_are_used(alone):
    inner = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1), Chosen())
    inner[3].forward = lambda x: x
    module = DistributedDataParallel(inner, find_unused_parameters=True)
    module.register_comm_hook(None, doubled)
    expected = [2 * g for g in torch.autograd.grad(inner(X).sum(), [*inner[:3].parameters()])]
    for synchronised in (True, False, True):
        way = contextlib.nullcontext() if synchronised else module.no_sync()
        with way, dist_autograd.context() as context_id:
            y = rpc.rpc_sync("alone", torch.mul, (module(X), 1.0))
            dist_autograd.backward(context_id, [y.sum()])
            found = dist_autograd.get_gradients(context_id)
        for parameter, gradient in zip(inner[:3].parameters(), expected, strict=True):
            assert torch.allclose(found[parameter] * (1 if synchronised else 2), gradient)


class Chosen(nn.Module):
    def __init__(self):
        super().__init__()
        self.used = nn.Linear(2, 1, bias=False)
        self.unused = nn.Linear(2, 1, bias=False)

    def forward(self, x):
        return self.used(x)


def test_hooks_of_a_parameter_run_once(alone):
    module = replicated()
    weight = module.module.first.weight
    weight.register_hook(lambda g: g + 1)
    seen = []
    weight.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.tolist()))
    for _ in range(2):
        with dist_autograd.context() as context_id:
            dist_autograd.backward(context_id, [module(X).sum()])
            assert gradients(context_id, module)[0] == [[8, 14], [8, 14]]
    assert seen == [[[4, 7], [4, 7]]] * 2


def test_a_pass_that_fails_leaves_every_gradient_as_it_was(alone):
    module = replicated()
    first = module.module.first.weight
    own = module.module.second.weight.grad = torch.ones(1, 2)
    first.register_hook(lambda _: 1 / 0)
    with dist_autograd.context() as context_id, pytest.raises(RuntimeError, match="division"):
        dist_autograd.backward(context_id, [module(X).sum()])
    assert first.grad is None
    assert module.module.second.weight.grad is own


def test_passes_through_one_module_take_turns():
    module = replicated()
    first = replicas.Lending(module, {})
    with pytest.raises(GradientError, match="one pass at a time"):
        replicas.Lending(module, {})
    first.give_back()
    replicas.Lending(module, {}).give_back()


def test_a_module_that_was_there_before_telegrad_met_pytorch_is_found():
    module = replicated()
    replicas._PARAMETERS.clear()
    assert replicas.module_of(module.module.first.weight) is None
    replicas._find_those_before()
    assert replicas.module_of(module.module.first.weight) is module


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))]
)
def test_a_module_that_was_copied_or_unpickled_is_averaged_too(alone, copied):
    module = copied(DistributedDataParallel(TwoParts()))
    module.register_comm_hook(None, doubled)
    with dist_autograd.context() as context_id:
        dist_autograd.backward(context_id, [module(X).sum()])
        assert gradients(context_id, module) == (twice(FIRST), twice(SECOND))


def test_an_optimiser_steps_with_them(alone):
    module = replicated()
    weight = module.module.second.weight
    optimizer = DistributedOptimizer(torch.optim.SGD, [rpc.RRef(weight)], lr=0.5)
    with dist_autograd.context() as context_id:
        dist_autograd.backward(context_id, [module(X).sum()])
        optimizer.step(context_id)
    assert weight.tolist() == [[-8, -8]]


def test_a_pass_of_one_process_averages_as_well():
    module = DistributedDataParallel(nn.Linear(2, 1, bias=False))
    module.register_comm_hook(None, doubled)
    weight = module.module.weight
    # The second time what is there already is averaged once more: PyTorch's own way.
    for expected in ([[10, 20]], [[30, 60]]):
        (from_torch(module(X)) * tg.tensor([[5.0]])).sum().backward()
        assert weight.grad.tolist() == expected


def test_a_pass_that_would_need_both_the_context_and_grad_is_refused(alone):
    module = replicated()
    with dist_autograd.context():
        loss = from_torch(module(X)).sum()
        with pytest.raises(GradientError, match=r"call .*backward\(context_id"):
            loss.backward()
    assert all(parameter.grad is None for parameter in module.parameters())


def test_a_module_with_a_static_graph_is_refused(alone):
    module = replicated(static_graph=True)
    with (
        dist_autograd.context() as context_id,
        pytest.raises(GradientError, match="without static_graph"),
    ):
        dist_autograd.backward(context_id, [module(X).sum()])


CAME = threading.Event()
"""Whether the gradient that leaves has come to the other worker."""


def from_elsewhere():
    """A value with a gradient, of a worker in this process."""
    made = torch.ones(1, 2, requires_grad=True)
    made.register_hook(lambda _: CAME.set())
    return 3 * made


def test_what_leaves_does_not_wait_for_the_reducer():
    CAME.clear()
    module = DistributedDataParallel(nn.Linear(2, 1, bias=False))
    came_first = []

    def waiting(_, bucket):
        came_first.append(CAME.wait(30))
        return doubled(_, bucket)

    module.register_comm_hook(None, waiting)
    with neighbours("a", "b") as workers:
        for worker in workers:
            attach_autograd(worker)
        before = set_default_worker(workers[0])
        try:
            with dist_autograd.context() as context_id:
                loss = module(rpc.rpc_sync("b", from_elsewhere)).sum()
                dist_autograd.backward(context_id, [loss])
                found = dist_autograd.get_gradients(context_id)
        finally:
            set_default_worker(before)
    assert came_first == [True]
    assert found[module.module.weight].tolist() == [[6, 6]]
