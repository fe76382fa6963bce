"""Torch tensors as inputs of a distributed pass: leaves, and tensors inside of a graph."""

import pytest
import torch
from tests.distributed.simulated import on_workers
from tests.interop.torch import handlers as handlers

from telegrad.distributed import autograd, rpc
from telegrad.errors import GradientError


def x():
    return torch.tensor([5.0, 7.0], dtype=torch.float64, requires_grad=True)


def remote(value):
    return rpc.rpc_sync("b", handlers.scale, (value,))


@on_workers("main", "b")
def test_the_gradient_of_a_tensor_inside_of_the_graph_is_that_of_one_process():
    one = x()
    with autograd.context() as context_id:
        middle = one.exp()
        loss = (remote(middle) + middle.sin() + one).square().sum()
        found = autograd.grad(context_id, [loss], [middle, one], retain_graph=True)
        w = torch.tensor([2.0, 3.0], dtype=torch.float64)
        plain = (middle * w + middle.sin() + one).square().sum()
        expected = torch.autograd.grad(plain, [middle, one], retain_graph=True)
        for gradient, wanted in zip(found, expected):
            assert torch.allclose(gradient, wanted, rtol=1e-12)
        (alone,) = autograd.grad(context_id, [loss], [middle])
        assert torch.equal(alone, found[0])
        assert dict(autograd.get_gradients(context_id)) == {}


@on_workers("main", "b")
def test_a_tensor_that_came_from_another_worker_may_be_an_input():
    one = x()
    with autograd.context() as context_id:
        y = remote(one)
        z = remote(y)
        loss = (z * y).sum()
        # z = y w, so the derivative of w y² is 2 w y.
        there, here = autograd.grad(context_id, [loss], [y, one], retain_graph=True)
        assert there.tolist() == [2 * 2 * 10, 2 * 3 * 21]
        assert here.tolist() == [2 * 2 * 10 * 2, 2 * 3 * 21 * 3]
        (last,) = autograd.grad(context_id, [loss], [z])
        assert last.tolist() == y.tolist()


@on_workers("main", "b")
def test_a_root_and_a_tensor_that_was_sent_may_be_inputs():
    one = x()
    with autograd.context() as context_id:
        middle = one * 1
        loss = remote(middle).sum()
        of_loss, of_sent = autograd.grad(context_id, [loss], [loss, middle])
        assert of_loss.tolist() == 1
        assert of_sent.tolist() == [2, 3]


@on_workers("main", "b")
def test_one_result_of_a_node_with_several_may_be_an_input():
    one = torch.arange(4.0, dtype=torch.float64, requires_grad=True)
    with autograd.context() as context_id:
        first, second = one.split(2)
        loss = (remote(first) * second).sum() + first.sum()
        of_first, of_second = autograd.grad(context_id, [loss], [first, second])
        assert of_first.tolist() == [2 * 2 + 1, 3 * 3 + 1]
        assert of_second.tolist() == [0 * 2, 1 * 3]


@on_workers("main", "b")
def test_backward_with_a_tensor_inside_of_the_graph_gives_the_context_its_gradient_alone():
    one = x()
    with autograd.context() as context_id:
        middle = one * 2
        autograd.backward(context_id, [remote(middle).sum()], inputs=[middle])
        found = autograd.get_gradients(context_id)
        assert found[middle].tolist() == [2, 3]
        assert one not in found
        assert rpc.rpc_sync("b", handlers.gradients, (context_id,)) == {}


@on_workers("main", "b")
def test_a_hook_of_the_input_is_in_its_gradient_whatever_else_is_asked_for():
    one = x()
    with autograd.context() as context_id:
        middle = one * 2
        middle.register_hook(lambda g: g * 10)
        loss = (remote(middle) + middle).sum()
        both = autograd.grad(context_id, [loss], [middle, one], retain_graph=True)
        assert [g.tolist() for g in both] == [[30, 40], [60, 80]]
        (alone,) = autograd.grad(context_id, [loss], [middle])
        assert alone.tolist() == [30, 40]


@on_workers("main", "b")
def test_gradients_of_inputs_share_no_memory():
    one = x()
    with autograd.context() as context_id:
        first = one.view(2)
        second = first.view(2)
        found = autograd.grad(context_id, [remote(second).sum()], [second, first, one])
        found[0].mul_(100)
        found[1].mul_(10)
        assert [g.tolist() for g in found] == [[200, 300], [20, 30], [2, 3]]


@on_workers("main", "b")
def test_the_gradient_of_a_tensor_inside_can_be_differentiated_again():
    one = x()
    with autograd.context() as context_id:
        middle = one * 1
        loss = (remote(middle) * middle).sum()
        (first,) = autograd.grad(context_id, [loss], [middle], create_graph=True)
        assert first.tolist() == [20, 42]
        (second,) = autograd.grad(context_id, [first.sum()], [one])
        assert second.tolist() == [4, 6]


@on_workers("main", "b")
def test_a_tensor_inside_of_the_graph_of_another_worker_may_be_an_input():
    one = x()
    with autograd.context() as context_id:
        inner = rpc.remote("b", handlers.scale, (one,))
        loss = rpc.rpc_sync("b", handlers.square_of, (inner,)).sum()
        (gradient,) = autograd.grad(context_id, [loss], [inner])
        assert gradient.tolist() == [2 * 10, 2 * 21]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_of_references_are_the_same_where_pytorch_records_nothing(mode):
    @on_workers("main", "b", "c")
    def program():
        there, idle = rpc.remote("b", handlers.parameter), rpc.remote("c", handlers.parameter)
        with autograd.context() as context_id:
            loss = remote(x()).square().sum()
            with mode():
                first, unused = autograd.grad(
                    context_id, [loss], [there, idle], create_graph=True, allow_unused=True
                )
            assert (first.tolist(), unused) == ([2 * 25 * 2, 2 * 49 * 3], None)
            (second,) = autograd.grad(context_id, [first.sum()], [there])
            assert second.tolist() == [2 * 25, 2 * 49]
        del there, idle

    program()


@on_workers("main", "b")
def test_an_input_that_was_not_used_is_named_and_may_be_none_or_zeros():
    one = x()
    with autograd.context() as context_id:
        unused = one * 3
        loss = remote(one).sum()
        with pytest.raises(GradientError, match=r"inputs \[0\] were not used"):
            autograd.grad(context_id, [loss], [unused], retain_graph=True)
        assert autograd.grad(
            context_id, [loss], [unused], allow_unused=True, retain_graph=True
        ) == (None,)
        (zeros,) = autograd.grad(context_id, [loss], [unused], materialize_grads=True)
        assert zeros.tolist() == [0, 0]
