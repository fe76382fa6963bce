"""Hooks of torch tensors and leaves in a distributed pass: how often they run, and on what."""

import pytest
import torch
from tests.distributed.simulated import on_workers
from tests.interop.torch import handlers as handlers
from torch.autograd.graph import get_gradient_edge

from telegrad.distributed import autograd, rpc
from telegrad.torch import from_torch


def x():
    return torch.tensor([5.0, 7.0], dtype=torch.float64, requires_grad=True)


def remote(value):
    return rpc.rpc_sync("b", handlers.scale, (value,))


def used_thrice(leaf):
    """A loss that reaches the leaf over two messages and a graph of this worker: three regions."""
    return (remote(leaf) + remote(leaf * 1) + leaf * 10).sum()


WHOLE = [2.0 + 2 + 10, 3.0 + 3 + 10]


@pytest.mark.parametrize("program", [used_thrice, lambda leaf: remote(leaf * 7).sum()])
def test_a_post_accumulate_hook_fires_once_with_the_final_gradient(program):
    @on_workers("main", "b")
    def run():
        one = x()
        before = torch.ones(2, dtype=torch.float64)
        one.grad = before
        seen = []
        one.register_post_accumulate_grad_hook(lambda leaf: seen.append((leaf, leaf.grad.tolist())))
        with autograd.context() as context_id:
            autograd.backward(context_id, [program(one)])
            gradient = autograd.get_gradients(context_id)[one]
        assert len(seen) == 1
        assert seen[0][0] is one
        assert seen[0][1] == gradient.tolist()
        assert one.grad is before
        assert before.tolist() == [1, 1]

    run()


@on_workers("main", "b")
def test_what_a_post_accumulate_hook_leaves_is_what_the_context_gets():
    one, other = x(), x()

    def halve(leaf):
        leaf.grad = leaf.grad / 2

    def use_up(leaf):
        leaf.grad = None

    one.register_post_accumulate_grad_hook(halve)
    other.register_post_accumulate_grad_hook(use_up)
    with autograd.context() as context_id:
        autograd.backward(context_id, [remote(one * other).sum()])
        found = autograd.get_gradients(context_id)
        assert found[one].tolist() == [5, 10.5]
        assert other not in found
        assert one.grad is None
        assert other.grad is None


@on_workers("main", "b")
def test_an_optimiser_may_step_in_a_post_accumulate_hook_on_the_worker_of_the_parameter():
    rpc.rpc_sync("b", handlers.step_while_passing)
    one = x()
    with autograd.context() as context_id:
        autograd.backward(context_id, [remote(one).sum()])
        assert autograd.get_gradients(context_id)[one].tolist() == [2, 3]
        # w - 0.1 * x, and nothing is left of the gradient.
        assert rpc.rpc_sync("b", handlers.parameter).tolist() == [1.5, pytest.approx(2.3)]
        assert rpc.rpc_sync("b", handlers.gradients, (context_id,)) == {}


@on_workers("main", "b")
def test_hooks_of_the_accumulation_node_fire_once_with_the_final_gradient():
    one = x()
    node = get_gradient_edge(one).node
    seen = []
    node.register_hook(lambda inputs, outputs: seen.append((inputs, outputs[0].tolist())))
    node.register_prehook(lambda outputs: seen.append(outputs[0].tolist()) or (outputs[0] * 2,))
    with autograd.context() as context_id:
        autograd.backward(context_id, [used_thrice(one)])
        twice = [2 * g for g in WHOLE]
        assert seen == [WHOLE, ((), twice)]
        assert autograd.get_gradients(context_id)[one].tolist() == twice
        assert one.grad is None


@on_workers("main", "b")
def test_hooks_of_the_accumulation_node_fire_where_the_leaf_itself_is_sent():
    one, other = x(), x()
    for _ in range(2):
        # The second time, after leaves without such hooks were met.
        node = get_gradient_edge(one).node
        seen = []
        handle = node.register_hook(lambda inputs, outputs, seen=seen: seen.append(outputs))
        with autograd.context() as context_id:
            autograd.backward(context_id, [(remote(one) + remote(other)).sum()])
        assert len(seen) == 1
        handle.remove()
        with autograd.context() as context_id:
            autograd.backward(context_id, [(remote(one) + remote(other)).sum()])
        assert len(seen) == 1


@on_workers("main", "b")
def test_hooks_of_accumulation_run_for_the_chosen_leaves_of_backward_and_not_for_grad():
    one, other = x(), x()
    seen = []
    for leaf in (one, other):
        leaf.register_post_accumulate_grad_hook(seen.append)
    with autograd.context() as context_id:
        loss = remote(one * other).sum()
        autograd.grad(context_id, [loss], [one], retain_graph=True)
        assert seen == []
        autograd.backward(context_id, [loss], inputs=[one])
        assert [leaf is one for leaf in seen] == [True]


@on_workers("main", "b")
def test_a_post_accumulate_hook_that_fails_fails_the_pass_and_gives_grad_back():
    one = x()
    one.register_post_accumulate_grad_hook(lambda leaf: 1 / 0)
    with autograd.context() as context_id:
        with pytest.raises(ZeroDivisionError):
            autograd.backward(context_id, [remote(one).sum()])
        assert one.grad is None
        assert dict(autograd.get_gradients(context_id)) == {}


def test_hooks_of_accumulation_run_in_the_order_of_pytorch():
    def order(back):
        one, seen = x(), []
        node = get_gradient_edge(one).node
        node.register_hook(lambda *_: seen.append("after the node"))
        one.register_post_accumulate_grad_hook(lambda _: seen.append("accumulated"))
        node.register_prehook(lambda _: seen.append("before the node"))
        back(one * 2).sum().backward()
        return seen

    assert order(from_torch) == order(lambda tensor: tensor)


def test_a_pass_of_telegrad_in_one_process_runs_hooks_of_accumulation_and_then_accumulates():
    one = x()
    one.grad = torch.ones(2, dtype=torch.float64)
    seen = []
    one.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.tolist()))
    (from_torch(one * 2).sum() + from_torch(one).sum()).backward()
    assert seen == [[3, 3]]
    assert one.grad.tolist() == [4, 4]


@pytest.mark.parametrize("where", ["here", "there"])
def test_retain_grad_keeps_the_whole_gradient_once(where):
    def program():
        one = x()
        with autograd.context() as context_id:
            middle = rpc.rpc_sync("b", handlers.same, (one * 2,)) if where == "there" else one * 2
            middle.retain_grad()
            loss = (remote(middle) + remote(middle) + middle * 10).sum()
            autograd.backward(context_id, [loss], retain_graph=True)
            assert middle.grad.tolist() == WHOLE
            autograd.backward(context_id, [loss])
            assert middle.grad.tolist() == [2 * g for g in WHOLE]
            assert autograd.get_gradients(context_id)[one].tolist() == [4 * g for g in WHOLE]

    on_workers("main", "b")(program)()


@on_workers("main", "b")
def test_a_tensor_hook_where_regions_meet_is_applied_once_and_its_other_calls_change_no_sum():
    one = x()
    total = torch.zeros(2, dtype=torch.float64)
    applied = []

    def hook(g):
        total.add_(g)
        applied.append(g.tolist())
        return g.clamp(max=15)

    with autograd.context() as context_id:
        middle = one * 1
        middle.register_hook(hook)
        loss = (remote(middle) + remote(middle) + middle * 10).sum()
        autograd.backward(context_id, [loss])
        assert autograd.get_gradients(context_id)[one].tolist() == [14, 15]
        assert total.tolist() == WHOLE
        assert [g for g in applied if any(g)] == [WHOLE]


@pytest.mark.parametrize("has_hook", [False, True])
def test_a_weight_of_many_calls_has_their_sum_and_hooks_see_it_whole(has_hook):
    seen, found = [], []

    def hook(gradient):
        seen.append(gradient.tolist())
        return gradient * 10

    @on_workers("main", "b")
    def program():
        one, weight = x(), x()
        if has_hook:
            weight.register_hook(hook)
        with autograd.context() as context_id:
            # What each call is given is a piece of the graph, and all of them lead to the weight.
            back = [rpc.rpc_sync("b", handlers.same, (one * weight * i,)) for i in (1, 2, 3)]
            autograd.backward(context_id, [sum(each.sum() for each in back) + weight.sum()])
            found.append(autograd.get_gradients(context_id)[weight].tolist())

    program()
    whole = [31, 43]
    assert found == [[310, 430] if has_hook else whole]
    assert [g for g in seen if any(g)] == ([whole] if has_hook else [])


@on_workers("main", "b")
def test_a_hook_of_the_accumulation_node_that_came_between_two_passes_is_seen():
    leaf, seen = x(), []
    for _ in range(2):
        with autograd.context() as context_id:
            middle = leaf * 1
            # Where pieces of the graph meet, passes hang hooks of their own, which are no user's.
            loss = (remote(middle) + remote(middle) + middle * 10).sum()
            autograd.backward(context_id, [loss])
            assert autograd.get_gradients(context_id)[leaf].tolist() == WHOLE
        if not seen:
            node = get_gradient_edge(leaf).node
            node.register_prehook(lambda gradients: seen.append(gradients[0].tolist()))
    assert seen == [WHOLE]
