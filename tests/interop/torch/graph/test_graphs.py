"""Graphs of PyTorch's of many forms in a pass over workers: long, shared, with several results."""

import gc
import math
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tests.distributed.simulated import on_workers
from tests.interop.torch import handlers as handlers
from torch.utils.checkpoint import checkpoint

from telegrad.distributed import LocalCluster, autograd, rpc
from telegrad.torch import from_torch, to_torch


def x():
    return torch.tensor([5.0, 7.0], dtype=torch.float64, requires_grad=True)


def there(context_id):
    return rpc.rpc_sync("b", handlers.gradients, (context_id,))


@on_workers("main", "b")
def test_after_its_context_nothing_of_a_graph_is_left():
    held = []
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (x(),))
        held.append(weakref.ref(y.grad_fn))
        # What came is sent on: the graph of PyTorch's lies between the two messages.
        z = rpc.rpc_sync("b", handlers.scale, (y.exp(),))
        autograd.backward(context_id, [z.sum()], retain_graph=True)
        del y, z
    gc.collect()
    assert held[0]() is None


@on_workers("main", "b")
def test_after_its_context_nothing_of_a_recorded_pass_is_left():
    def leave_a_graph():
        one = x()
        with autograd.context() as context_id:
            y = rpc.rpc_sync("b", handlers.scale, (one**2,))
            autograd.backward(context_id, [(y * one).sum()], create_graph=True)
            return weakref.ref(y.grad_fn)

    held = leave_a_graph()
    gc.collect()
    assert held() is None


@on_workers("main", "b")
def test_a_gradient_in_a_context_has_the_layout_of_its_leaf_and_may_be_changed():
    one = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.same, (one.sum() * 2,))
        autograd.backward(context_id, [y])
        found = autograd.get_gradients(context_id)[one]
        assert found.stride() == (3, 1)
        assert found.mul_(3).tolist() == [[6, 6, 6], [6, 6, 6]]


@on_workers("main", "b")
def test_a_chain_of_many_nodes_needs_no_recursion():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.long_chain, (one, 20_000))
        autograd.backward(context_id, [y.sum()])
        assert autograd.get_gradients(context_id)[one].tolist() == [2, 3]


@pytest.mark.processes
def test_passes_of_several_threads_through_the_same_torch_nodes_stay_apart():
    failures = []

    def train(factor):
        one = torch.tensor([factor, 2 * factor], dtype=torch.float64, requires_grad=True)
        for _ in range(25):
            with autograd.context() as context_id:
                # Two calls: their graphs meet in the node of the shared value.
                y = rpc.rpc_sync("b", handlers.scale_by_shared, (one,))
                z = rpc.rpc_sync("b", handlers.scale_by_shared, (one * 3,))
                autograd.backward(context_id, [(y + z).sum()], retain_graph=True)
                here = autograd.get_gradients(context_id)[one].tolist()
                found = there(context_id)["w"]
            shared = [math.exp(2), math.exp(3)]
            expected = [4 * factor * shared[0], 8 * factor * shared[1]]
            if found != pytest.approx(expected) or here != pytest.approx([4 * s for s in shared]):
                failures.append((factor, found, here))

    with LocalCluster(["b"]):
        rpc.rpc_sync("b", handlers.scale_by_shared, (x(),))
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(train, [1.0, 10.0, 100.0]))
    assert failures == []


@on_workers("main", "b")
def test_checkpoints_of_torch_are_computed_again_in_the_pass():
    one = x()

    def whole(value, wrapped):
        return (wrapped * value).sum()

    calls = []

    def middle(value):
        calls.append(1)
        return value.sin().exp()

    (expected,) = torch.autograd.grad(whole(middle(one), middle(one).cos()), one)
    calls.clear()
    with autograd.context() as context_id:
        h = checkpoint(middle, one, use_reentrant=False)
        autograd.backward(context_id, [whole(h, rpc.rpc_sync("b", torch.cos, (h,)))])
        assert torch.allclose(autograd.get_gradients(context_id)[one], expected)
    assert len(calls) == 2


def with_a_call_inside(value):
    return rpc.rpc_sync("b", handlers.scale, (value.exp(),)).sin()


def checkpointed(value):
    return checkpoint(with_a_call_inside, value, use_reentrant=False)


@pytest.mark.parametrize("where", ["main", "b", "c"])
@pytest.mark.parametrize("create_graph", [False, True])
def test_a_checkpoint_of_torch_may_make_calls_wherever_it_is(where, create_graph):
    @on_workers("main", "b", "c")
    def test():
        found = []
        for block in (with_a_call_inside, checkpointed):
            one = x()
            with autograd.context() as context_id:
                loss = rpc.rpc_sync(where, block, (one.sqrt(),)).sum()
                for _ in range(2):
                    options = {"retain_graph": True, "create_graph": create_graph}
                    autograd.backward(context_id, [loss], **options)
                    mine = autograd.get_gradients(context_id)[one]
                    found.append([mine.tolist(), there(context_id)])
        assert found[2:] == found[:2]

    test()


@pytest.mark.parametrize("is_multithreaded", [True, False])
def test_pytorch_runs_on_the_thread_of_the_pass_also_where_it_has_threads_for_devices(
    is_multithreaded,
):
    @on_workers("main", "b")
    def test():
        seen = []
        one = x()
        h = one.sin()
        h.register_hook(lambda g: seen.append(torch._C._is_multithreading_enabled()))
        with autograd.context() as context_id:
            autograd.backward(context_id, [rpc.rpc_sync("b", handlers.scale, (h,)).sum()])
        assert seen == [False]

    with torch.autograd.set_multithreading_enabled(is_multithreaded):
        test()
        # What the program has chosen for its own passes is as it was.
        assert torch._C._is_multithreading_enabled() == is_multithreaded


@on_workers("main", "b")
def test_what_a_hook_of_torch_calls_in_an_ordinary_pass_is_not_recorded():
    one, seen = x(), []
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one * 2,))
        h = y.sin()
        h.register_hook(lambda g: seen.append(rpc.rpc_sync("b", handlers.scale, (g,))))
        autograd.backward(context_id, [h.exp().sum()])
    assert not seen[0].requires_grad


@on_workers("main", "b")
def test_nodes_with_several_results_are_entered_at_the_right_one():
    start = torch.tensor([[1.0, 2.0], [3.0, 0.5], [0.25, 4.0]], dtype=torch.float64)

    def whole(x, call):
        a, b, c = (x * 2).unbind()
        sent = call(c)
        values, _ = torch.cat([a, b.sin(), sent]).sort()
        first, rest = values.split([2, 4])
        return (call(first) * b).sum() + (call(rest)[2:] * first).sum() + (rest[:2] * a).sum()

    here = start.clone().requires_grad_()
    (expected,) = torch.autograd.grad(whole(here, torch.tanh), here)
    away = start.clone().requires_grad_()
    with autograd.context() as context_id:
        loss = whole(away, lambda value: rpc.rpc_sync("b", torch.tanh, (value,)))
        autograd.backward(context_id, [loss])
        assert torch.allclose(autograd.get_gradients(context_id)[away], expected)


@on_workers("main", "b")
def test_views_changed_in_place_before_they_are_sent():
    def whole(x, call):
        y = x * 1.0
        y[0] = call(y[1] * 2)
        y.mul_(call(y).detach() + 1)
        return (call(y) * x).sum()

    here, away = x(), x()
    (expected,) = torch.autograd.grad(whole(here, torch.sin), here)
    with autograd.context() as context_id:
        loss = whole(away, lambda value: rpc.rpc_sync("b", torch.sin, (value,)))
        autograd.backward(context_id, [loss])
        assert torch.allclose(autograd.get_gradients(context_id)[away], expected)


class Remembering(torch.autograd.Function):
    """Calls what it remembers as the node of a leaf calls its tensor."""

    @staticmethod
    def forward(ctx, value):
        ctx.variable = value
        return value * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


@on_workers("main", "b")
def test_a_function_of_the_users_that_has_a_variable_is_no_leaf():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one,))
        autograd.backward(context_id, [Remembering.apply(y).sum()])
        assert autograd.get_gradients(context_id)[one].tolist() == [4, 6]
        assert there(context_id)["w"] == [10, 14]


def both_ways(a, unused, b, c):
    """Two results, whose graphs share no node but that of `b`."""
    return a * b, b * c


@on_workers("main", "b")
def test_each_tensor_of_a_message_gets_what_the_pieces_of_a_graph_have_for_it():
    given = [x() for _ in range(4)]
    with autograd.context() as context_id:
        y, z = rpc.rpc_sync("b", both_ways, tuple(given))
        autograd.backward(context_id, [y.sum()], retain_graph=True)
        first = autograd.get_gradients(context_id)
        assert [first[each].tolist() if each in first else None for each in given] == [
            [5, 7],
            None,
            [5, 7],
            None,
        ]
        autograd.backward(context_id, [y.sum() + (z * 2).sum()])
        both = autograd.get_gradients(context_id)
        assert [both[each].tolist() if each in both else None for each in given] == [
            [10, 14],
            None,
            [20, 28],
            [10, 14],
        ]


@on_workers("main", "b")
def test_what_leaves_in_one_message_is_differentiated_in_one_go():
    one, seen = x(), []
    with autograd.context() as context_id:
        middle = one * 2
        middle.register_hook(lambda gradient: seen.append(gradient.tolist()))
        # The second of those that are given lies behind the first, and both behind `middle`.
        given = middle * 3
        y, z, _ = rpc.rpc_sync("b", handlers.same, ((given * 5, given, middle.exp()),))
        autograd.backward(context_id, [y.sum() + z.sum()])
        assert autograd.get_gradients(context_id)[one].tolist() == [36, 36]
    assert seen == [[18, 18]]


@on_workers("main", "b")
def test_several_roots_are_differentiated_in_one_go():
    one, seen = x(), []
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one,))
        y.register_hook(lambda gradient: seen.append(gradient.tolist()))
        autograd.backward(context_id, [y.sum(), (y * y).sum(), one.sum()])
        # d/dx of w·x + (w·x)² + x, where w is [2, 3] and x is [5, 7].
        assert autograd.get_gradients(context_id)[one].tolist() == [43, 130]
    assert seen == [[21, 43]]


@on_workers("main", "b")
def test_a_root_that_is_behind_another_over_the_other_graph_waits_for_it():
    one = x()
    with autograd.context() as context_id:
        total = rpc.rpc_sync("b", handlers.scale, (one,)).sum()
        own = from_torch(total)
        autograd.backward(context_id, [to_torch(own * 3) * 2, own, total])
        assert autograd.get_gradients(context_id)[one].tolist() == [16, 24]
