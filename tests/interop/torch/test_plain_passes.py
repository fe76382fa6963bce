"""Passes whose groups of entries meet nowhere: only the ends of PyTorch's graph are looked for."""

import numpy as np
import pytest
import torch
from tests.distributed.simulated import on_workers
from tests.interop.torch import handlers

import telegrad as tg
from telegrad.distributed import autograd, rpc
from telegrad.interop.torch.bridge import entry_of
from telegrad.interop.torch.graph.cut import cut_apart
from telegrad.interop.torch.graph.ends import AllLeaves


def leaves(count):
    return [
        torch.full((2,), 1.0 + i, dtype=torch.float64, requires_grad=True) for i in range(count)
    ]


class Message:
    """A node behind which values of PyTorch's lie, such as a message's."""

    def __init__(self, *values):
        self.edges = [entry_of(value, keeps=True) for value in values]


def test_all_leaves_of_a_graph_are_one_end():
    a, b, c = leaves(3)
    y = ((a * b + c) * a).sum()
    found = cut_apart([entry_of(y, keeps=True)], True)
    (region,) = found.pieces
    (end,) = region.edges
    assert type(end) is AllLeaves
    assert {*map(id, found.leaves[end])} == {id(a), id(b), id(c)}
    gradients = dict(zip(found.leaves[end], *region.pull(torch.ones((), dtype=torch.float64))))
    for leaf, expected in zip((a, b, c), torch.autograd.grad(y, (a, b, c))):
        assert torch.equal(gradients[leaf], expected)


@pytest.mark.parametrize("meet", ["nowhere", "at a node", "at a leaf", "at the entry"])
def test_groups_that_meet_are_not_apart(meet):
    a, b = leaves(2)
    inner = a * 2
    first, second = {
        "nowhere": (inner.sum(), b.sum()),
        "at a node": (inner.exp(), inner.sum()),
        "at a leaf": (inner.exp(), a.sum()),
        "at the entry": (inner, inner.sum()),
    }[meet]
    assert (cut_apart([Message(first), Message(second)], True) is not None) == (meet == "nowhere")
    # In one group they may meet.
    found = cut_apart([Message(first, second)], True)
    assert len(found.pieces) == 1
    assert len(found.edges) == 2


def test_the_only_value_of_a_message_enters_its_region_at_once():
    (a,) = leaves(1)
    message = Message(a.exp())
    found = cut_apart([message], True)
    (region,) = found.pieces
    assert found.edges == {message: (region,)}
    ((gradient,),) = region.pull(np.full(2, 3.0))
    assert torch.equal(gradient, 3 * a.detach().exp())
    ((gradient,),) = region.pull_recorded(tg.tensor([3.0, 3.0], requires_grad=True))
    assert gradient.requires_grad


def test_a_leaf_that_is_an_entry_itself_is_left_to_the_walk():
    (a,) = leaves(1)
    assert cut_apart([entry_of(a, keeps=True)], True) is None


@pytest.mark.parametrize("is_recorded", [False, True])
@on_workers("main", "b")
def test_leaves_never_share_the_memory_of_their_gradients(is_recorded):
    a, b = leaves(2)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (a + b,))
        autograd.backward(context_id, [y.sum()], create_graph=is_recorded)
        found = autograd.get_gradients(context_id)
        assert torch.equal(found[a], found[b])
        before = found[b].clone()
        with torch.no_grad():
            found[a].mul_(100)
        assert torch.equal(found[b], before)


OWN = torch.full((2,), 3.0, dtype=torch.float64)
"""A tensor of the program's own that becomes a gradient."""


class Fixed(torch.autograd.Function):
    """Its gradient is `OWN`."""

    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, gradient):
        return OWN


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize(
    "how", ["a function's own", "a hook's own", "kept by a hook", "a hook's of the node"]
)
@on_workers("main", "b")
def test_a_gradient_that_the_program_holds_as_well_is_copied(how, is_shared):
    (a,) = leaves(1)
    held = [OWN]
    if how == "a hook's own":
        a.register_hook(lambda gradient: OWN)
    if how == "kept by a hook":
        a.register_hook(held.append)
    if how == "a hook's of the node":
        a.expand_as(a).grad_fn.next_functions[0][0].register_prehook(lambda gradients: (OWN,))
    with autograd.context() as context_id:
        y = Fixed.apply(a) if how == "a function's own" else a * 3
        if is_shared:
            # Two messages lead to the leaf, whose hooks then get the sum.
            y = rpc.rpc_sync("b", handlers.same, (y,)) + rpc.rpc_sync("b", handlers.same, (a * 0,))
        autograd.backward(context_id, [y.sum()])
        gradient = autograd.get_gradients(context_id)[a]
    assert torch.equal(gradient, OWN)
    gradient.mul_(100)
    assert all(torch.equal(each, torch.full_like(each, 3.0)) for each in held if each.any())


@on_workers("main")
def test_hooks_of_leaves_and_of_their_accumulation_run_once():
    a, b, c = leaves(3)
    seen = []
    a.register_hook(lambda g: g * 2)
    b.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.clone()))
    node = c.expand_as(c).grad_fn.next_functions[0][0]
    node.register_prehook(lambda gs: (gs[0] * 3,))
    with autograd.context() as context_id:
        autograd.backward(context_id, [(a * b * c).sum()])
        found = autograd.get_gradients(context_id)
    with torch.no_grad():
        assert torch.equal(found[a], 2 * b * c)
        assert torch.equal(found[b], a * c)
        assert torch.equal(found[c], 3 * a * b)
        assert len(seen) == 1
        assert torch.equal(seen[0], a * c)


@on_workers("main")
def test_a_leaf_that_is_not_contiguous_has_a_gradient_as_it_lies():
    (a,) = leaves(1)
    across = torch.ones(3, 2, dtype=torch.float64).t().requires_grad_()
    with autograd.context() as context_id:
        autograd.backward(context_id, [(across * 2 + a[:, None]).sum()])
        found = autograd.get_gradients(context_id)
        assert found[across].stride() == across.stride()
        assert torch.equal(found[across], torch.full((2, 3), 2.0, dtype=torch.float64))
        assert torch.equal(found[a], torch.full((2,), 3.0, dtype=torch.float64))
