"""What can't be served: each says what was expected, what came and what to do."""

import numpy as np
import pytest
from tests.distributed import handlers
from tests.distributed.simulated import IN_ORDER, on_workers

import telegrad as tg
from telegrad.distributed import autograd, rpc
from telegrad.errors import ContextError, DTypeError, GradientError, ShapeError, UsageError
from telegrad.rpc.options import Options

X = np.array([5.0, 7.0])


def x():
    return tg.tensor(X, requires_grad=True)


@on_workers("main", "b")
def test_an_unknown_or_released_context_is_refused_with_its_id():
    with autograd.context() as released:
        pass
    for context_id in (released, 12345):
        with pytest.raises(ContextError, match=rf"worker 'main', got {context_id}; it was never"):
            autograd.backward(context_id, [x().sum()])
        with pytest.raises(ContextError, match=f"got {context_id}"):
            autograd.get_gradients(context_id)
        with pytest.raises(ContextError, match=f"got {context_id}"):
            autograd.grad(context_id, [x().sum()], [x()])
        with pytest.raises(ContextError, match=f"got {context_id}"):
            autograd._retrieve_context(context_id)
    with pytest.raises(ContextError, match="an int, got str"):
        autograd.backward("one", [x().sum()])


@pytest.mark.parametrize("is_used", [True, False])
def test_a_tensor_that_arrived_in_another_context_is_refused(is_used):
    @on_workers("main", "b")
    def test():
        with autograd.context() as first:
            y = rpc.rpc_sync("b", handlers.scale, (x(),))
        with autograd.context() as second:
            z = rpc.rpc_sync("b", handlers.scale, (y,))
            # A call that is not used makes the tensor wait, and the pass search on from it.
            loss = z.sum() if is_used else y.sum()
            with pytest.raises(
                ContextError, match=rf"in context {second}, got .* in context {first}.*detach\(\)"
            ):
                autograd.backward(second, [loss])

    test()


@on_workers("main", "b")
def test_a_forgotten_context_is_asked_for():
    with pytest.raises(ContextError, match="an int, got list: hand over first what `with context"):
        autograd.backward([x().sum()])


@on_workers("main", "b")
def test_empty_roots_are_refused():
    with (
        autograd.context() as context_id,
        pytest.raises(UsageError, match="at least one tensor to differentiate, got none"),
    ):
        autograd.backward(context_id, [])


@on_workers("main", "b")
def test_a_root_that_is_no_scalar_wants_a_gradient():
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (x(),))
        with pytest.raises(GradientError, match=r"got a tensor of shape \(2,\).*grad_tensors\[0\]"):
            autograd.backward(context_id, [y])


@on_workers("main", "b")
def test_a_root_without_grad_is_refused():
    with (
        autograd.context() as context_id,
        pytest.raises(GradientError, match="expected a tensor that requires grad"),
    ):
        autograd.backward(context_id, [tg.tensor(1.0)])


@on_workers("main", "b")
def test_roots_that_are_no_tensors_are_refused():
    with autograd.context() as context_id:
        with pytest.raises(DTypeError, match="a sequence of Tensors as roots, got int"):
            autograd.backward(context_id, 3)
        with pytest.raises(DTypeError, match=r"a Tensor as roots\[0\], got RRef"):
            autograd.backward(context_id, [rpc.RRef(x())])


@on_workers("main", "b")
def test_a_gradient_of_the_wrong_shape_dtype_or_number_is_refused():
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (x(),))
        with pytest.raises(ShapeError, match=r"shape \(2,\).*got \(3,\)"):
            autograd.backward(context_id, [y], grad_tensors=[tg.ones(3, dtype=tg.float64)])
        with pytest.raises(DTypeError, match=r"float64.*got float32"):
            autograd.backward(context_id, [y], grad_tensors=[tg.ones(2)])
        with pytest.raises(UsageError, match=r"one gradient for each of the 1 tensors.*got 2"):
            autograd.backward(context_id, [y], grad_tensors=[None, None])


@on_workers("main")
def test_gradients_in_the_place_of_retain_graph_are_refused():
    one, two = x(), tg.tensor(2.0, dtype=tg.float64)
    with autograd.context() as context_id:
        for misplaced in (two, [two]):
            with pytest.raises(UsageError, match="given by name, grad_tensors="):
                autograd.backward(context_id, [one.sum()], misplaced)
        assert len(autograd.get_gradients(context_id)) == 0


@on_workers("main", "b")
def test_a_root_recorded_in_another_context_is_refused_with_both_ids():
    with autograd.context() as first:
        y = rpc.rpc_sync("b", handlers.scale, (x(),)).sum()
    with (
        autograd.context() as second,
        pytest.raises(ContextError, match=rf"context {second}, got .* in context {first}"),
    ):
        autograd.backward(second, [y])


@on_workers("main", "b")
def test_gradients_asked_for_during_a_pass_are_waited_for(simulation):
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", slow_in_backward, (one,))
        asked = rpc.rpc_async("b", gradient_after, (0.5, context_id))
        autograd.backward(context_id, [y.sum()])
        assert asked.wait() == X.tolist()


def test_the_table_of_gradients_has_those_of_a_pass_whose_outcome_is_still_under_way():
    def test():
        with autograd.context() as context_id:
            rpc.rpc_sync("c", handlers.scale, (x(),))
            rpc.rpc_sync("b", backward_through_c, (context_id,))
            assert len(autograd.gradients(context_id).by_worker["c"]) == 1

    for seed in range(30):
        on_workers("main", "b", "c", seed=seed, faults=IN_ORDER)(test)()


def backward_through_c(context_id):
    autograd.backward(context_id, [rpc.rpc_sync("c", handlers.scale, (x(),)).sum()])


def slow_in_backward(value):
    y = value * handlers.parameter()
    simulation = rpc.current_worker().host.simulation
    y.register_hook(lambda g: simulation.sleep(5.0))
    return y


def gradient_after(seconds, context_id):
    rpc.current_worker().host.simulation.sleep(seconds)
    return handlers.gradient(context_id)


@pytest.mark.parametrize("read", [autograd.get_gradients, autograd.gradients])
@on_workers("main", "b")
def test_gradients_asked_for_in_a_hook_of_the_pass_itself_are_refused(read):
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (x(),))
        y.register_hook(lambda g: read(context_id))
        with pytest.raises(ContextError, match=r"in a hook of that pass.* would wait for itself"):
            autograd.backward(context_id, [y.sum()])


@pytest.mark.parametrize("names", ["c", "bc", "cbc"])
@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_asked_for_by_what_a_hook_calls_are_refused_too(names, create_graph):
    @on_workers("main", "b", "c", options=Options(rpc_timeout=0))
    def test():
        with autograd.context() as context_id:
            y = rpc.rpc_sync("b", handlers.scale, (x(),))
            z = rpc.rpc_sync("c", handlers.scale, (y,))
            y.register_hook(lambda g: ask_through(names, context_id))
            with pytest.raises(ContextError, match="in what a hook called"):
                autograd.backward(context_id, [(z * y).sum()], create_graph=create_graph)
            # What is asked when it has ended is answered, as ever.
            assert ask_through(names, context_id) is None

    test()


@on_workers("main", "b", "c", options=Options(rpc_timeout=0))
def test_gradients_asked_for_by_a_pass_that_a_hook_runs_are_refused_too():
    with autograd.context() as context_id:
        y = rpc.rpc_sync("c", handlers.scale, (x(),))
        z = rpc.rpc_sync("b", handlers.scale, (y,))

        def run_another(g):
            with tg.enable_grad():
                inner = rpc.rpc_sync("b", with_asking_hook, (x(), context_id)).sum()
            autograd.backward(context_id, [inner])

        y.register_hook(run_another)
        with pytest.raises(ContextError, match="in a hook of that pass"):
            autograd.backward(context_id, [z.sum()])


def ask_through(names, context_id):
    """The gradient of a parameter of the last worker, which each of the others asks for."""
    if not names:
        return handlers.gradient(context_id)
    return rpc.rpc_sync(names[0], ask_through, (names[1:], context_id))


def with_asking_hook(value, context_id):
    y = value * handlers.parameter("other")
    y.register_hook(lambda g: ask_through("", context_id))
    return y


# Plain backward.


@on_workers("main", "b")
def test_plain_backward_outside_of_its_context_says_what_to_do():
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (x(),))
    with pytest.raises(ContextError, match=rf"context {context_id}, which is released; call"):
        y.sum().backward()


@on_workers("main", "b")
def test_plain_backward_accumulates_in_grad_here_and_in_the_context_everywhere():
    one = x()
    with autograd.context() as context_id:
        for k in (1, 2):
            y = rpc.rpc_sync("b", handlers.scale, (one,))
            (y + one).sum().backward()
            assert one.grad.numpy().tolist() == [3.0 * k, 4.0 * k]
            assert autograd.get_gradients(context_id)[one].numpy().tolist() == [3.0 * k, 4.0 * k]
            assert rpc.rpc_sync("b", handlers.gradient, (context_id,)) == [5.0 * k, 7.0 * k]
    assert one.grad.numpy().tolist() == [6.0, 8.0]


@on_workers("main", "b")
def test_plain_backward_with_inputs_gives_both_what_those_alone_get():
    one, two = x(), x()
    with autograd.context() as context_id:
        middle = one * two
        y = rpc.rpc_sync("b", handlers.scale, (middle,)).sum()
        rpc.rpc_sync("b", handlers.scale, (middle,))
        for k in (1, 2):
            y.backward(inputs=[two, middle], retain_graph=k == 1, create_graph=k == 2)
            found = autograd.get_gradients(context_id)
            assert {id(t): g.tolist() for t, g in found.items()} == {
                id(two): [10.0 * k, 21.0 * k],
                id(middle): [2.0 * k, 3.0 * k],
            }
            assert two.grad.tolist() == [10.0 * k, 21.0 * k]
            assert middle.grad.tolist() == [2.0 * k, 3.0 * k]
            assert one.grad is None
            assert rpc.rpc_sync("b", handlers.gradient, (context_id,)) is None
        (again,) = tg.autograd.grad(two.grad.sum(), one)
        assert again.tolist() == [2.0, 3.0]


@on_workers("main", "b")
def test_plain_grad_runs_over_workers_and_leaves_grad_alone():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.weigh_and_sum, (one,))
        (first,) = tg.autograd.grad(y, one, create_graph=True)
        (second,) = tg.autograd.grad(first.sum(), one)
        np.testing.assert_allclose(second.numpy(), 6 * np.array([2.0, 3.0]) * X)
        assert one.grad is None
        assert autograd.get_gradients(context_id) == {}


@on_workers("main", "b")
def test_a_handler_may_run_plain_backward_over_its_caller():
    one = x()

    def finish(y, context_id):
        (y * handlers.parameter()).sum().backward()
        return handlers.parameter().grad.numpy().tolist(), handlers.gradient(context_id)

    with autograd.context() as context_id:
        assert rpc.rpc_sync("b", finish, (one * 2.0, context_id)) == ([10.0, 14.0], [10.0, 14.0])
        assert autograd.get_gradients(context_id)[one].numpy().tolist() == [4.0, 6.0]
    assert one.grad is None


@on_workers("main", "b")
def test_one_argument_without_its_comma_is_refused_with_advice():
    with pytest.raises(UsageError, match=r"expected args as a tuple, got Tensor.*\(x,\)"):
        rpc.rpc_sync("b", handlers.scale, x())


def answer_later():
    return rpc.rpc_async("main", abs, (-1,))


@on_workers("main", "b")
def test_a_future_as_a_result_is_refused_with_advice():
    with pytest.raises(TypeError, match=r"from answer_later, got a Future.*async_execution"):
        rpc.rpc_sync("b", answer_later)
