"""With chosen inputs, what of PyTorch's graph leads to none of them does not run."""

import pytest
import torch
from tests.distributed.simulated import frames_sent, on_workers
from tests.interop.torch import handlers as handlers

import telegrad as tg
from telegrad.distributed import autograd, rpc
from telegrad.torch import from_torch, to_torch

CALLED = []
"""Hooks that were called, on any worker: they share this process."""


@pytest.fixture(autouse=True)
def nothing_called_yet():
    CALLED.clear()


def x():
    return torch.tensor([5.0, 7.0], dtype=torch.float64, requires_grad=True)


def scaled(value):
    """By what leads to nothing but a parameter of this worker."""
    weight = handlers.parameter().exp()
    weight.register_hook(lambda g: CALLED.append("weight"))
    return value, weight


@on_workers("main", "b")
def test_a_region_that_leads_to_no_input_is_left_out_with_its_hooks():
    one = x()
    with autograd.context() as context_id:
        value, weight = rpc.rpc_sync("b", scaled, (one * 2,))
        loss = (value * weight).sum()
        (found,) = autograd.grad(context_id, loss, one, retain_graph=True)
        assert torch.equal(found, 2 * weight.detach())
        assert CALLED == []
        autograd.backward(context_id, [loss])
        assert CALLED == ["weight"]
        assert torch.equal(autograd.get_gradients(context_id)[one], found)


def scaled_by_hooked(value):
    """In one region with what leads to a parameter of this worker alone."""
    weight = handlers.parameter().exp()
    weight.register_hook(lambda g: CALLED.append("weight"))
    return value * weight


@on_workers("main", "b")
def test_so_is_the_part_of_a_region_that_leads_to_none():
    one, other = x(), x()
    other.register_hook(lambda g: CALLED.append("other"))
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", scaled_by_hooked, (one * other,))
        (found,) = autograd.grad(context_id, y.sum(), one, retain_graph=True)
        assert CALLED == []
        autograd.backward(context_id, [y.sum()])
        assert sorted(CALLED) == ["other", "weight"]
        assert torch.equal(autograd.get_gradients(context_id)[one], found)


@on_workers("main", "b")
def test_a_torch_tensor_may_lie_behind_anything_that_arrived():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one,))
        late = y * 1.0
        found = autograd.grad(context_id, (late * y).sum(), [late, one])
        assert [each.tolist() for each in found] == [[10.0, 21.0], [40.0, 126.0]]


@on_workers("main", "b")
def test_an_input_made_after_all_that_came_needs_no_message_over_torchs_graph_either(simulation):
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (x(),))
        middle = from_torch(y) * 3.0
        loss = (to_torch(middle) * y).sum()
        before = len(simulation.trace)
        (found,) = autograd.grad(context_id, loss, middle)
        assert isinstance(found, tg.Tensor)
        assert found.tolist() == [10.0, 21.0]
        assert frames_sent(simulation, before) == 0
