"""PyTorch's own passes towards chosen inputs raise where they would leave out another worker."""

import pytest
import torch
from tests.distributed.simulated import on_workers
from tests.interop.torch import handlers

from telegrad.distributed import autograd, rpc
from telegrad.errors import GradientError


def leaf():
    return torch.tensor([5.0, 7.0], dtype=torch.float64, requires_grad=True)


def remote(value, to="b"):
    return rpc.rpc_sync(to, handlers.scale, (value,))


PASSES = {
    "grad": torch.autograd.grad,
    "grad that allows": lambda loss, x: torch.autograd.grad(loss, x, allow_unused=True),
    "grad that records": lambda loss, x: torch.autograd.grad(loss, x, create_graph=True),
    "backward": lambda loss, x: loss.backward(inputs=[x]),
    "edge": lambda loss, x: torch.autograd.grad(loss, torch.autograd.graph.get_gradient_edge(x)),
}


@pytest.mark.parametrize("kind", PASSES)
@pytest.mark.parametrize("hops", [1, 2])
@on_workers("main", "b", "c")
def test_an_input_that_another_worker_was_given_is_refused(kind, hops):
    x = leaf()
    with autograd.context() as context_id:
        middle = x * 1
        y = remote(middle)
        if hops == 2:
            y = remote(y.exp(), "c")
        loss = (y + 3 * x).sum()
        for each in (x, middle):
            with pytest.raises(GradientError, match=r"sent to worker '[bc]'.*autograd\.grad\("):
                PASSES[kind](loss, each)
        assert x.grad is None
        (whole,) = autograd.grad(context_id, loss, [x])
        assert whole.tolist() != [3.0, 3.0]


@on_workers("main", "b")
def test_a_transform_of_pytorch_over_a_call_is_refused():
    with autograd.context(), pytest.raises(GradientError, match="sent to worker 'b'"):
        torch.autograd.functional.vjp(lambda x: remote(x).sum() + x.sum(), leaf().detach())


@on_workers("main", "b")
def test_inputs_that_no_worker_was_given_have_their_gradients():
    x, w = leaf(), leaf()
    with autograd.context():
        y = remote(x)
        # The answer itself; what stayed here; and the answer as a constant.
        assert torch.autograd.grad((y * w).sum(), [y, w], retain_graph=True)[0].tolist() == [5, 7]
        assert torch.autograd.grad((y * w).sum(), w)[0].tolist() == [10, 21]
        assert torch.autograd.grad((y.detach() * x).sum(), x)[0].tolist() == [10, 21]
        # Sent after the loss was computed.
        loss = (x * w).sum()
        remote(w)
        assert torch.autograd.grad(loss, w)[0].tolist() == [5, 7]


def inner_step(x):
    w = handlers.parameter()
    (gradient,) = torch.autograd.grad((x * w).square().sum(), w, create_graph=True)
    return x * (w - gradient)


@on_workers("main", "b")
def test_a_handler_may_run_an_inner_loop_on_what_it_was_given():
    x = leaf()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", inner_step, (x,))
        y = rpc.rpc_sync("b", inner_step, (y,))
        (found,) = autograd.grad(context_id, y.sum(), [x])
        w = torch.tensor([2.0, 3.0], dtype=torch.float64)
        plain = x
        for _ in range(2):
            plain = plain * (w - 2 * plain.square() * w)
        assert torch.allclose(found, torch.autograd.grad(plain.sum(), x)[0], rtol=1e-12)


def transformed(x):
    return torch.func.grad(lambda t: t.pow(3).sum())(x) + torch.func.jacrev(torch.sin)(x).sum(0)


@on_workers("main", "b")
def test_transforms_of_pytorch_work_in_a_context_and_in_handlers():
    x = leaf()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", transformed, (x,)) + transformed(x)
        (found,) = autograd.grad(context_id, y.sum(), [x])
    (wanted,) = torch.autograd.grad(2 * transformed(x).sum(), x)
    assert torch.allclose(found, wanted, rtol=1e-12)


@on_workers("main", "b")
def test_inputs_that_pytorch_refuses_are_refused_by_it():
    x = leaf()
    with autograd.context(), pytest.raises(RuntimeError, match="does not require grad"):
        torch.autograd.grad(remote(x).sum(), torch.ones(2))
