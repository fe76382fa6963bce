"""create_graph over workers: derivatives of derivatives, equal to those of one process."""

from contextlib import nullcontext

import numpy as np
import pytest
from tests.distributed import handlers
from tests.distributed.simulated import IN_ORDER, on_workers

import telegrad as tg
from telegrad.autograd import functional
from telegrad.distributed import autograd, rpc
from telegrad.distributed.current import autograd_of
from telegrad.errors import ContextError

W = np.array([2.0, 3.0])
X = np.array([0.5, 0.7])


def leaf(values):
    return tg.tensor(values, requires_grad=True)


def layer(x, other=None):
    """tanh(w·x), and the same again on another worker if one is given."""
    y = tg.tanh(x * handlers.parameter())
    return y if other is None else rpc.rpc_sync(other, layer, (y,))


def two_layers(x, w, v):
    """The same in one process."""
    return tg.tanh(tg.tanh(x * w) * v)


def close(found, expected):
    np.testing.assert_allclose(found, expected.detach().numpy(), rtol=1e-12)


def gradient_of(context_id, name):
    return np.array(rpc.rpc_sync(name, handlers.gradient, (context_id,)))


@on_workers("main", "b", "c")
def test_a_gradient_penalty_reaches_the_parameters_of_every_worker():
    x = leaf(X)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", layer, (x, "c"))
        (g,) = autograd.grad(context_id, y.sum(), x, create_graph=True)
        autograd.backward(context_id, [y.sum() + ((g * g).sum() - 1.0) ** 2])
        mine = autograd.get_gradients(context_id)[x].detach().numpy()
        theirs = gradient_of(context_id, "b"), gradient_of(context_id, "c")

    x, w, v = leaf(X), leaf(W), leaf(W)
    y = two_layers(x, w, v)
    (g,) = tg.autograd.grad(y.sum(), x, create_graph=True)
    (y.sum() + ((g * g).sum() - 1.0) ** 2).backward()
    close(mine, x.grad)
    close(theirs[0], w.grad)
    close(theirs[1], v.grad)


@on_workers("main", "b", "c", faults=IN_ORDER)
def test_a_hessian_vector_product_of_parameters_on_two_workers():
    there = [rpc.remote(name, handlers.fetch) for name in ("b", "c")]
    direction = [tg.tensor(np.array([1.0, -2.0])), tg.tensor(np.array([0.5, 3.0]))]
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", layer, (leaf(X), "c")).sum()
        first = autograd.grad(context_id, y, there, create_graph=True)
        product = sum(((g * d).sum() for g, d in zip(first, direction)), tg.tensor(0.0))
        found = [g.numpy() for g in autograd.grad(context_id, product, there)]

    w, v = leaf(W), leaf(W)
    first = tg.autograd.grad(two_layers(leaf(X), w, v).sum(), [w, v], create_graph=True)
    product = sum(((g * d).sum() for g, d in zip(first, direction)), tg.tensor(0.0))
    for mine, expected in zip(found, tg.autograd.grad(product, [w, v])):
        close(mine, expected)


@on_workers("main", "b")
def test_an_inner_step_with_parameters_elsewhere_is_differentiated_through():
    """As in MAML: one step of descent on fetched parameters, then the gradient through the step."""
    x = leaf(X)
    with autograd.context() as context_id:
        w = rpc.rpc_sync("b", handlers.fetch)
        (inner,) = autograd.grad(context_id, (tg.tanh(x * w) ** 2).sum(), w, create_graph=True)
        adapted = w - 0.1 * inner
        autograd.backward(context_id, [(tg.sin(x * adapted)).sum()])
        mine = autograd.get_gradients(context_id)[x].detach().numpy()
        theirs = gradient_of(context_id, "b")

    x, w = leaf(X), leaf(W)
    (inner,) = tg.autograd.grad((tg.tanh(x * w) ** 2).sum(), w, create_graph=True)
    tg.sin(x * (w - 0.1 * inner)).sum().backward()
    close(mine, x.grad)
    close(theirs, w.grad)


@pytest.mark.parametrize("seed", range(5))
def test_three_orders_over_two_workers_equal_those_of_one_process(seed):
    @on_workers("main", "b", "c", seed=seed)
    def run():
        x = leaf(X)
        with autograd.context() as context_id:
            y = rpc.rpc_sync("b", layer, (x, "c")).sum()
            for _ in range(3):
                (g,) = autograd.grad(context_id, y, x, create_graph=True)
                found.append(g.detach().numpy())
                y = (g * g).sum()
            autograd.backward(context_id, [y])
            found.append(autograd.get_gradients(context_id)[x].detach().numpy())
            found.append(gradient_of(context_id, "b"))

    found = []
    run()
    x, w, v = leaf(X), leaf(W), leaf(W)
    y = two_layers(x, w, v).sum()
    expected = []
    for _ in range(3):
        (g,) = tg.autograd.grad(y, x, create_graph=True)
        expected.append(g)
        y = (g * g).sum()
    y.backward()
    expected += [x.grad, w.grad]
    for mine, other in zip(found, expected, strict=True):
        close(mine, other)


@on_workers("main", "b")
def test_gradients_in_the_context_can_be_differentiated_again():
    x = leaf(X)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.weigh_and_sum, (x,))
        autograd.backward(context_id, [y], create_graph=True)
        first = autograd.get_gradients(context_id)[x]
        assert first.requires_grad
        (second,) = autograd.grad(context_id, first.sum(), x)
        np.testing.assert_allclose(second.numpy(), 6 * W * X)


@on_workers("main", "b")
def test_unused_calls_do_no_harm_at_second_order():
    x = leaf(X)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.weigh_and_sum, (x,))
        rpc.rpc_sync("b", handlers.weigh_and_sum, (x,))
        (first,) = autograd.grad(context_id, y, x, create_graph=True)
        (second,) = autograd.grad(context_id, first.sum(), x)
        np.testing.assert_allclose(second.numpy(), 6 * W * X)


@on_workers("main", "b")
def test_create_graph_retains_the_graph_unless_told_otherwise():
    x = leaf(X)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.weigh_and_sum, (x,))
        autograd.backward(context_id, [y], create_graph=True)
        autograd.backward(context_id, [y])
        found = autograd.get_gradients(context_id)[x].detach().numpy()
        np.testing.assert_allclose(found, 2 * 3 * W * X * X)


class SquareByAnother(tg.autograd.Function):
    """A square whose derivative another worker computes, with its parameter in it."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return rpc.rpc_sync("c", weigh_slope, (gradient, *ctx.saved_tensors))


def weigh_slope(gradient, x):
    return 2.0 * gradient * x * handlers.parameter()


def square_by_another(x):
    return SquareByAnother.apply(x)


@pytest.mark.parametrize("where", ["main", "b", "c"])
def test_what_a_rule_asks_of_another_worker_is_differentiated_again(where):
    @on_workers("main", "b", "c")
    def test():
        x = leaf(X)
        with autograd.context() as context_id:
            y = rpc.rpc_sync(where, square_by_another, (x,))
            (first,) = autograd.grad(context_id, y.sum(), x, create_graph=True)
            autograd.backward(context_id, [(first * first).sum()])
            found = autograd.get_gradients(context_id)[x].detach().numpy()
            np.testing.assert_allclose(found, 2 * 4 * X * W * W)
            np.testing.assert_allclose(gradient_of(context_id, "c"), 2 * 4 * X * X * W)

    test()


@on_workers("main", "b", "c")
def test_what_a_hook_asks_of_another_worker_is_differentiated_again():
    x = leaf(X)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", cube_with_slope_weighed, (x,))
        (first,) = autograd.grad(context_id, y.sum(), x, create_graph=True)
        np.testing.assert_allclose(first.detach().numpy(), 3 * X * X * W)
        autograd.backward(context_id, [first.sum()])
        found = autograd.get_gradients(context_id)[x].detach().numpy()
        # The hook runs in the second pass, too.
        np.testing.assert_allclose(found, 6 * X * W * W)
        np.testing.assert_allclose(gradient_of(context_id, "c"), 3 * X * X)


def cube_with_slope_weighed(x):
    x = x * 1.0
    x.register_hook(lambda gradient: rpc.rpc_sync("c", handlers.scale, (gradient,)))
    return x * x * x


ONES = np.ones(2)


def _remote_square(x):
    return (rpc.rpc_sync("b", handlers.scale, (x,)) ** 2).sum()


REVERSE = {
    "grad": lambda x, one: functional.grad(_remote_square)(x),
    "vjp": lambda x, one: functional.vjp(_remote_square, x),
    "jacobian": lambda x, one: functional.jacobian(_remote_square)(x),
    "hessian": lambda x, one: functional.hessian(_remote_square)(x),
    "hvp": lambda x, one: functional.hvp(_remote_square, x, one),
    "vhp": lambda x, one: functional.vhp(_remote_square, x, one),
    "linearize": lambda x, one: functional.linearize(_remote_square, x),
    "grad of jvp": lambda x, one: functional.grad(
        lambda x: functional.jvp(_remote_square, x, one)[1]
    )(x),
}


@pytest.mark.parametrize("name", REVERSE)
@on_workers("main", "b")
def test_a_transform_of_a_remote_call_outside_of_a_context_says_so(name):
    x, one = tg.asarray(ONES * 5.0), tg.asarray(ONES)
    with pytest.raises(ContextError, match=r"call to worker 'b'.*autograd\.context\(\)"):
        REVERSE[name](x, one)
    with autograd.context():
        REVERSE[name](x, one)
    # Nothing is refused that has no part in what is differentiated.
    w = tg.tensor(ONES, requires_grad=True)
    found = functional.grad(lambda x: (x * _remote_square(w * x.detach()).detach()).sum())(x)
    assert found.tolist() == [325.0, 325.0]
    assert functional.jvp(_remote_square, x, one)[1].item() == 130.0
    assert _remote_square(w * 5.0).requires_grad


@on_workers("main", "b")
def test_a_transform_in_a_context_that_is_released_during_it_says_so():
    """As on a thread that goes on after the block whose context it was given."""
    x = tg.asarray(ONES)
    with autograd.context() as context_id:
        autograd_of(rpc.current_worker()).leases.release(context_id)
        with pytest.raises(ContextError, match="got none, or one that is released"):
            functional.grad(_remote_square)(x)
        assert _remote_square(x).item() == (W * W).sum()


def slope_of_remote_square(x, opens):
    with autograd.context() if opens else nullcontext():
        return functional.grad(_remote_square)(x)


@on_workers("main", "b")
def test_a_transform_in_a_handler_that_is_called_under_no_grad_needs_a_context_of_its_own():
    x = tg.asarray(ONES)
    with autograd.context():
        found = rpc.rpc_sync("b", slope_of_remote_square, (x, False))
        with tg.no_grad():
            assert rpc.rpc_sync("b", slope_of_remote_square, (x, True)).tolist() == found.tolist()
            with pytest.raises(ContextError, match="called under no_grad is in no context"):
                rpc.rpc_sync("b", slope_of_remote_square, (x, False))


def bend(x):
    return tg.sin(x * handlers.parameter())


def slope(context_id, to, x):
    """The gradient of a call to another worker, recorded: a pass whose root is here."""
    x = x * 1.0
    (g,) = autograd.grad(context_id, rpc.rpc_sync(to, bend, (x,)).sum(), x, create_graph=True)
    return g


def second_order_of_slopes(names, roots):
    """The gradient that passes started on `roots`, one after the other, leave at second order."""
    found = []
    numbers = np.random.default_rng(5).standard_normal((len(roots), 2))

    @on_workers(*names)
    def run():
        far = names[-1]
        with autograd.context() as context_id:
            slopes = []
            for root, values in zip(roots, numbers):
                args = (context_id, far, leaf(values))
                is_called = root is not None
                slopes.append(rpc.rpc_sync(root, slope, args) if is_called else slope(*args))
            autograd.backward(context_id, [sum(slopes[1:], slopes[0]).sum()])
            found.extend(rpc.rpc_sync(far, handlers.gradient, (context_id,)))

    run()
    return found


ORDERS = [
    (None, None, "b", "c"),
    (None, "b", "c", None),
    ("b", None, None, "c"),
    ("c", None, "b", None),
]


@pytest.mark.parametrize("order", ORDERS)
def test_passes_of_several_roots_are_summed_in_the_order_of_the_program(order):
    alone = [root and "main" for root in order]
    expected = second_order_of_slopes(["main"], alone)
    assert second_order_of_slopes(["main", "b", "c", "d"], order) == expected


def go_back_from(context_id, reference):
    """A recorded pass whose root is here, over what others share."""
    y = reference.to_here()
    autograd.backward(context_id, [(y * y).sum()], create_graph=True)


@on_workers("main", "b", "c", faults=IN_ORDER)
def test_no_two_messages_of_recorded_passes_have_one_path():
    with autograd.context() as context_id:
        shared = rpc.remote("c", bend, (leaf(X),))
        go_back_from(context_id, shared)
        rpc.rpc_sync("b", go_back_from, (context_id, shared))
        paths = [tuple(path) for path in rpc.rpc_sync("c", paths_of, (context_id,))]
        # The value, and a gradient of what it was computed from, for each of them.
        assert len(paths) == len(set(paths)) == 4
    del shared


def paths_of(context_id):
    """Where in the program the messages were made that this worker gave away."""
    return [send.path for send in autograd._retrieve_context(context_id)._send_functions().values()]
