"""What is recorded of a call: every tensor that requires grad, wherever it is, and nothing else."""

import collections
import dataclasses
import threading

import numpy as np
import pytest
from tests.distributed import handlers
from tests.distributed.simulated import IN_ORDER, frames_sent, on_workers

import telegrad as tg
from telegrad.autograd import forward_ad
from telegrad.distributed import LocalCluster, autograd, rpc
from telegrad.errors import ContextError, GraphFreedError

W = [2.0, 3.0]
Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass
class Batch:
    values: object
    label: str


def x():
    return tg.tensor(np.array([5.0, 7.0]), requires_grad=True)


def messages(context_id):
    """How many messages this worker gave away and received in a context."""
    found = autograd._retrieve_context(context_id)
    return len(found._send_functions()), len(found._recv_functions())


def gradient_after(context_id, y, leaf):
    autograd.backward(context_id, [y.sum()])
    return autograd.get_gradients(context_id)[leaf].numpy().tolist()


def names_of_types(*values):
    return [type(value).__name__ for value in values]


# Ways to call.


@on_workers("main", "b")
def test_a_recorded_parameter_arrives_as_a_tensor_and_a_constant_one_as_it_is():
    trained, constant = tg.nn.Parameter([1.0]), tg.nn.Parameter([2.0], requires_grad=False)
    with autograd.context():
        found = rpc.rpc_sync("b", names_of_types, (x(), trained, constant))
    assert found == ["Tensor", "Tensor", "Parameter"]


@on_workers("main", "b")
def test_rpc_sync_and_rpc_async_are_recorded():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one,))
        z = rpc.rpc_async("b", handlers.scale, (y,)).wait()
        assert gradient_after(context_id, z, one) == [4.0, 9.0]
        assert rpc.rpc_sync("b", handlers.gradient, (context_id,)) == [20.0, 42.0]


@pytest.mark.processes
def test_an_answer_that_another_thread_waits_for_is_recorded():
    one = x()
    with LocalCluster(["b"]), autograd.context() as context_id:
        future = rpc.rpc_async("b", handlers.scale, (one,))
        answers = []
        thread = threading.Thread(target=lambda: answers.append(future.wait()))
        thread.start()
        thread.join(30)
        assert gradient_after(context_id, answers[0], one) == W


def scale_by_callback(t):
    """Scales here, then on `c`, in a callback of the future."""
    following = rpc.Future()

    def go_on(done):
        following.set_result(rpc.rpc_sync("c", handlers.scale, (done.value(),)))

    rpc.rpc_async("b", handlers.scale, (t,)).add_done_callback(go_on)
    return following


def scale_and_then(t):
    called = rpc.rpc_async("b", handlers.scale, (t,))
    return called.then(lambda done: rpc.rpc_sync("c", handlers.scale, (done.value(),)))


@pytest.mark.parametrize("scale_on_both", [scale_by_callback, scale_and_then])
@pytest.mark.parametrize("where", ["here", "in a handler"])
def test_what_a_callback_calls_is_recorded_in_the_context_of_who_gave_it(scale_on_both, where):
    @on_workers("main", "b", "c")
    def test():
        one = x()
        with autograd.context() as context_id:
            if where == "here":
                y = scale_on_both(one).wait()
            else:
                y = rpc.rpc_sync("b", rpc.async_execution(scale_on_both), (one,))
            assert gradient_after(context_id, y, one) == [4.0, 9.0]
            for name in "bc":
                assert rpc.rpc_sync(name, handlers.gradient, (context_id,)) == [10.0, 21.0]

    test()


@on_workers("main", "b")
def test_what_a_callback_computes_is_recorded_if_what_its_giver_computed_was():
    one = x()
    with autograd.context(), tg.no_grad():
        called = rpc.rpc_async("b", handlers.scale, (one,))
        assert not called.then(lambda done: done.value() * one).wait().requires_grad


@on_workers("main", "b", "c", faults=IN_ORDER)
def test_remote_and_to_here_are_recorded():
    one = x()
    with autograd.context() as context_id:
        first = rpc.remote("b", handlers.scale, (one,))
        second = rpc.remote("c", lambda: first.to_here() * handlers.parameter())
        assert gradient_after(context_id, second.to_here(), one) == [4.0, 9.0]
        assert rpc.rpc_sync("b", handlers.gradient, (context_id,)) == [10.0, 21.0]
        assert rpc.rpc_sync("c", handlers.gradient, (context_id,)) == [10.0, 21.0]


@on_workers("main", "b")
def test_calls_of_methods_through_proxies_are_recorded():
    one = x()
    model = rpc.remote("b", handlers.Model)
    with autograd.context() as context_id:
        y = model.rpc_sync().forward(one)
        z = model.rpc_async().forward(y).wait()
        v = model.remote().forward(z).to_here()
        assert gradient_after(context_id, v, one) == [8.0, 27.0]
        assert model.rpc_sync().gradient(context_id) == [60.0, 189.0]
    del model


@on_workers("main", "b")
def test_calls_to_oneself_are_recorded_without_a_wire(simulation):
    one = x()
    with autograd.context() as context_id:
        before = len(simulation.trace)
        y = rpc.rpc_sync("main", handlers.scale, (one,))
        z = rpc.remote("main", handlers.scale, (y,)).to_here()
        assert messages(context_id) == (3, 3)
        assert gradient_after(context_id, z, one) == [4.0, 9.0]
        assert handlers.gradient(context_id) == [20.0, 42.0]
        assert frames_sent(simulation, before) == 0


@on_workers("main", "b")
def test_a_handler_that_calls_back_its_caller_is_recorded():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.bounce, ("main", 5, one))
        assert gradient_after(context_id, y, one) == [64.0, 729.0]


# Where tensors may be.


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda t: {"deep": [{"er": t}]},
        lambda t: Batch(t, "label"),
        lambda t: Pair(1, (t, 2)),
        lambda t: _holding(t),
    ],
    ids=["dicts", "dataclass", "named tuple", "object"],
)
@on_workers("main", "b")
def test_tensors_inside_of_containers_and_objects_are_recorded_both_ways(wrapped):
    one = x()
    with autograd.context() as context_id:
        back = rpc.rpc_sync("b", handlers.same, (wrapped(one),))
        y = _unwrapped(back)
        assert y is not one
        assert gradient_after(context_id, y * y, one) == [10.0, 14.0]


def _holding(tensor):
    held = handlers.Model()
    held.weight = tensor
    return held


def _unwrapped(value):
    if isinstance(value, dict):
        return value["deep"][0]["er"]
    if isinstance(value, Batch):
        return value.values
    return value.right[0] if isinstance(value, Pair) else value.weight


@on_workers("main", "b")
def test_tensors_captured_by_closures_and_defaults_are_recorded():
    one, two = x(), x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", lambda factor=two: one * factor)
        autograd.backward(context_id, [y.sum()])
        found = autograd.get_gradients(context_id)
        assert found[one].numpy().tolist() == [5.0, 7.0]
        assert found[two].numpy().tolist() == [5.0, 7.0]


@on_workers("main", "b")
def test_the_same_tensor_twice_in_one_call_arrives_once_and_gets_one_sum():
    one = x()
    with autograd.context() as context_id:
        y, are_one = rpc.rpc_sync("b", lambda a, b: (a * b, a is b), (one, one))
        assert are_one
        assert gradient_after(context_id, y, one) == [10.0, 14.0]


@on_workers("main", "b")
def test_several_results_are_one_message():
    one = x()
    with autograd.context() as context_id:
        first, second = rpc.rpc_sync("b", handlers.scale_twice, (one,))
        assert messages(context_id) == (1, 1)
        assert gradient_after(context_id, first + second, one) == [7.0, 10.0]


@on_workers("main", "b")
def test_a_leaf_that_is_fetched_gets_its_gradient_where_it_lives():
    with autograd.context() as context_id:
        weight = rpc.rpc_sync("b", handlers.fetch)
        autograd.backward(context_id, [(weight * weight).sum()])
        assert autograd.get_gradients(context_id) == {}
        assert rpc.rpc_sync("b", handlers.gradient, (context_id,)) == [4.0, 6.0]


# What is not recorded.


@on_workers("main", "b")
def test_calls_under_no_grad_record_nothing_on_either_side():
    one = x()
    with autograd.context() as context_id:
        with tg.no_grad():
            y = rpc.rpc_sync("b", handlers.scale, (one,))
            assert not y.requires_grad
            assert not rpc.rpc_sync("b", handlers.has_context, (context_id,))
        assert messages(context_id) == (0, 0)
    assert y.numpy().tolist() == [10.0, 21.0]


@on_workers("main", "b")
def test_a_handler_under_no_grad_gives_constants():
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", tg.no_grad()(lambda t: t * 2.0), (x(),))
        assert not y.requires_grad
        assert messages(context_id) == (1, 0)


@on_workers("main", "b")
def test_integers_and_booleans_pass_through_beside_others():
    one, count, mask = x(), tg.tensor([1, 2]), tg.tensor([True, False])
    with autograd.context() as context_id:
        y, n, m = rpc.rpc_sync(
            "b", lambda a, n, m: (tg.where(m, a * a, a), n + 1, m), (one, count, mask)
        )
        assert n.numpy().tolist() == [2, 3]
        assert m.numpy().tolist() == [True, False]
        assert not n.requires_grad
        assert gradient_after(context_id, y, one) == [10.0, 1.0]


@on_workers("main", "b")
def test_tensors_that_need_no_grad_make_no_message_and_no_further_frame(simulation):
    def cost(value):
        before = len(simulation.trace)
        rpc.rpc_sync("b", handlers.same, (value,))
        return frames_sent(simulation, before)

    constant = tg.tensor(np.array([5.0, 7.0]))
    rpc.rpc_sync("b", handlers.same, (constant,))
    outside = cost(constant)
    with autograd.context() as context_id:
        assert cost(constant) == outside == 2
        assert messages(context_id) == (0, 0)


@on_workers("main", "b")
def test_outside_of_a_context_a_leaf_arrives_as_a_new_leaf():
    one = x()
    arrived = rpc.rpc_sync("b", lambda t: (t.is_leaf, t.requires_grad), (one,))
    assert arrived == (True, True)
    w = rpc.rpc_sync("b", handlers.parameter)
    assert w.is_leaf
    with autograd.context() as context_id:
        autograd.backward(context_id, [(w * w).sum()])
        assert list(autograd.get_gradients(context_id)) == [w]


# What was computed and sent outside of every context: to differentiate through it is an error.


def unrecorded():
    return pytest.raises(ContextError, match=r"outside of any context.*make the call inside of")


@on_workers("main", "b")
@pytest.mark.parametrize("is_dual", [False, True])
def test_a_backward_pass_through_the_result_of_a_call_outside_of_a_context_raises(is_dual):
    one = x()
    with forward_ad.dual_level():
        sent = forward_ad.make_dual(one, tg.ones_like(one)) if is_dual else one
        y = rpc.rpc_sync("b", handlers.scale, (sent,))
    assert y.requires_grad
    assert not y.is_leaf
    with unrecorded():
        y.sum().backward()
    with unrecorded():
        tg.autograd.grad((y * one).sum(), one)
    with autograd.context() as context_id:
        with unrecorded():
            autograd.backward(context_id, [y.sum()])
        recorded = rpc.rpc_sync("b", handlers.scale, (one,))
        with unrecorded():
            autograd.backward(context_id, [(recorded * y).sum()], retain_graph=True)
        assert not autograd.get_gradients(context_id)
        autograd.backward(context_id, [(recorded * y.detach()).sum()])
        got = autograd.get_gradients(context_id)[one].numpy()
    np.testing.assert_array_equal(got, np.array(W) * y.detach().numpy())


@on_workers("main", "b")
def test_its_own_gradient_can_be_asked_for():
    y = rpc.rpc_sync("b", handlers.scale, (x(),))
    (gradient,) = tg.autograd.grad((y * y).sum(), y)
    assert gradient.numpy().tolist() == (2 * y.detach().numpy()).tolist()


@on_workers("main", "b")
def test_a_handler_outside_of_a_context_can_not_differentiate_what_its_caller_computed():
    def differentiated(value):
        (value * value).sum().backward()

    with unrecorded():
        rpc.rpc_sync("b", differentiated, (x() * 2.0,))


@on_workers("main", "b")
def test_nor_can_one_that_fetches_a_computed_value_outside_of_a_context():
    reference = rpc.remote("b", handlers.scale, (x(),))
    with unrecorded():
        reference.to_here().sum().backward()


@on_workers("main", "b")
def test_a_call_that_fails_leaves_no_send_behind_and_the_pass_goes_on():
    one = x()
    with autograd.context() as context_id:
        with pytest.raises(handlers.Unlucky):
            rpc.rpc_sync("b", handlers.fail, (one,))
        assert messages(context_id) == (0, 0)
        y = rpc.rpc_sync("b", handlers.scale, (one,))
        autograd.backward(context_id, [y.sum()], mode="fast")
        assert autograd.get_gradients(context_id)[one].numpy().tolist() == W


# Hooks.


@on_workers("main", "b")
def test_hooks_fire_on_the_worker_that_owns_them_and_may_change_the_gradient():
    one = x()
    seen = []
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", with_hook, (one,))
        y.register_hook(lambda g: seen.append(g.numpy().tolist()))
        one.register_hook(lambda g: seen.append(g.numpy().tolist()))
        autograd.backward(context_id, [y.sum()])
        assert seen == [[1.0, 1.0], [20.0, 30.0]]
        assert rpc.rpc_sync("b", lambda: list(SEEN)) == [("b", [1.0, 1.0])]
        assert rpc.rpc_sync("b", handlers.gradient, (context_id,)) == [50.0, 70.0]


SEEN = []


def with_hook(value):
    SEEN.clear()
    y = value * handlers.parameter()

    def tenfold(g):
        SEEN.append((rpc.get_worker_info().name, g.numpy().tolist()))
        return g * 10.0

    y.register_hook(tenfold)
    return y


@on_workers("main", "b")
def test_hooks_of_a_node_may_replace_the_gradients_that_it_gives():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", with_hook_of_its_node, (one,))
        assert gradient_after(context_id, y, one) == [20.0, 30.0]
        assert rpc.rpc_sync("b", handlers.gradient, (context_id,)) == [50.0, 70.0]


def with_hook_of_its_node(value):
    y = value * handlers.parameter()
    y.grad_fn.register_hook(lambda inputs, outputs: tuple(g * 10.0 for g in inputs))
    return y


@on_workers("main", "b")
def test_a_freed_node_is_refused_though_it_has_hooks():
    one = x()
    with autograd.context() as context_id:
        y = tg.sin(rpc.rpc_sync("b", handlers.scale, (one,)))
        y.register_hook(lambda g: g * 10.0)
        autograd.backward(context_id, [y.sum()])
        with pytest.raises(GraphFreedError, match="got SinBackward"):
            autograd.backward(context_id, [y.sum()])


@on_workers("main", "b", "c", "d")
def test_a_hook_may_call_another_worker_while_further_gradients_arrive():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", with_calling_hook, (one, "d"))
        z = rpc.rpc_sync("b", with_calling_hook, (one, "d"))
        # The gradient of y comes from here, that of z by way of c.
        u = rpc.rpc_sync("c", handlers.scale, (z,))
        assert gradient_after(context_id, y + u, one) == [6.0, 12.0]


def with_calling_hook(value, other):
    y = value * handlers.parameter()
    y.register_hook(lambda g: rpc.rpc_sync(other, sleep_there, (2.0,)))
    return y


def sleep_there(seconds):
    rpc.current_worker().host.simulation.sleep(seconds)


# What rules call.


class ComputedAgain(tg.autograd.Function):
    """Keeps its argument alone; the backward pass computes, and differentiates, once more."""

    @staticmethod
    def forward(ctx, value):
        ctx.save_for_backward(value)
        with tg.no_grad():
            return further_on(value)

    @staticmethod
    def backward(ctx, gradient):
        again = ctx.saved_tensors[0].detach().requires_grad_()
        with tg.enable_grad():
            further_on(again).backward(gradient)
        return again.grad


def further_on(value):
    return rpc.rpc_sync("c", handlers.scale, (value * value,))


def computed_again(value):
    return ComputedAgain.apply(value)


@pytest.mark.parametrize("where", ["main", "b", "c"])
def test_a_rule_may_compute_again_with_calls_wherever_it_runs(where):
    @on_workers("main", "b", "c")
    def test():
        one = x()
        with autograd.context() as context_id:
            y = rpc.rpc_sync(where, computed_again, (one,))
            assert gradient_after(context_id, y, one) == [2 * 5.0 * 2.0, 2 * 7.0 * 3.0]
            assert rpc.rpc_sync("c", handlers.gradient, (context_id,)) == [25.0, 49.0]

    test()
