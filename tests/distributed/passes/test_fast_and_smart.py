"""Calls that were not used, partly used, or used in circles: exact, and no dearer than need be."""

import re
from functools import partial

import numpy as np
import pytest
from tests.distributed import handlers
from tests.distributed.simulated import frames_sent, on_workers

import telegrad as tg
from telegrad.distributed import autograd, rpc
from telegrad.errors import GradientError, UsageError
from telegrad.rpc.calls.future import Future

W = np.array([2.0, 3.0])
X = np.array([5.0, 7.0])


def x():
    return tg.tensor(X, requires_grad=True)


def gradients(context_id, leaf, *names):
    """The gradient of a leaf here, and of the parameter of each worker."""
    mine = autograd.get_gradients(context_id).get(leaf)
    theirs = [rpc.rpc_sync(name, handlers.gradient, (context_id,)) for name in names]
    return [None if mine is None else mine.numpy().tolist(), *theirs]


@on_workers("main", "b")
def test_an_unused_result_contributes_nothing():
    one = x()
    with autograd.context() as context_id:
        used = rpc.rpc_sync("b", handlers.scale, (one,))
        rpc.rpc_sync("b", handlers.scale, (one,))
        autograd.backward(context_id, [used.sum()])
        assert gradients(context_id, one, "b") == [W.tolist(), X.tolist()]


@on_workers("main", "b")
def test_a_result_that_is_partly_used_contributes_that_part():
    one = x()
    with autograd.context() as context_id:
        first, _ = rpc.rpc_sync("b", handlers.scale_twice, (one,))
        autograd.backward(context_id, [first.sum()])
        assert gradients(context_id, one, "b") == [W.tolist(), X.tolist()]
        assert rpc.rpc_sync("b", handlers.gradient, (context_id, "v")) is None


@on_workers("main", "b", "c")
def test_a_handler_may_ignore_what_it_asked_for():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.ignore_another, (one, "c"))
        autograd.backward(context_id, [y.sum()])
        expected = [(W * W).tolist(), (X * W).tolist(), (X * W).tolist()]
        assert gradients(context_id, one, "b", "c") == expected


@on_workers("main", "b", "c")
def test_a_send_that_only_another_unused_send_would_feed_is_found():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.ignore_a_chain, (one, "c"))
        autograd.backward(context_id, [y.sum()])
        assert gradients(context_id, one, "b", "c") == [W.tolist(), X.tolist(), None]


@on_workers("main", "b")
def test_a_root_that_never_crossed_a_wire_is_exact_beside_calls_that_did():
    one = x()
    with autograd.context() as context_id:
        rpc.rpc_sync("b", handlers.scale, (one,))
        autograd.backward(context_id, [(one * one).sum()])
        assert gradients(context_id, one, "b") == [(2 * X).tolist(), None]


@on_workers("main", "b")
def test_a_root_that_later_calls_used_too_gets_only_its_own():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one,))
        rpc.rpc_sync("b", handlers.scale, (y,))
        autograd.backward(context_id, [y.sum()])
        assert gradients(context_id, one, "b") == [W.tolist(), X.tolist()]


@on_workers("main", "b")
def test_cycles_between_workers_are_no_cycles_of_the_graph():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.bounce, ("main", 3, one))
        autograd.backward(context_id, [y.sum()])
        twice = (2 * X * W**3).tolist()
        assert gradients(context_id, one, "main", "b") == [(W**4).tolist(), twice, twice]


@on_workers("main", "b", "c", "d")
def test_a_diamond_over_four_workers_sums_both_ways():
    one = x()

    def join(left, right):
        return left * right * handlers.parameter()

    with autograd.context() as context_id:
        y = one * 1.0
        left = rpc.rpc_async("b", handlers.scale, (y,))
        right = rpc.rpc_async("c", handlers.scale, (y,))
        z = rpc.rpc_sync("d", join, (left.wait(), right.wait()))
        autograd.backward(context_id, [z.sum()])
        both = (X * X * W * W).tolist()
        assert gradients(context_id, one, "b", "c", "d") == [
            (2 * X * W**3).tolist(),
            both,
            both,
            both,
        ]


@on_workers("main", "b", "c", "d")
def test_a_diamond_of_which_one_side_is_not_used_is_exact_too():
    one = x()
    with autograd.context() as context_id:
        left = rpc.rpc_sync("b", handlers.through, (["c", "d"], one))
        rpc.rpc_sync("d", handlers.through, (["c", "b"], one))
        autograd.backward(context_id, [left.sum()])
        each = (X * W * W).tolist()
        assert gradients(context_id, one, "b", "c", "d") == [(W**3).tolist(), each, each, each]


@on_workers("main", "b")
def test_two_passes_in_one_context_each_from_its_own_root_add_up():
    one = x()
    with autograd.context() as context_id:
        first = rpc.rpc_sync("b", handlers.scale, (one,))
        second = rpc.rpc_sync("b", handlers.scale, (one,))
        autograd.backward(context_id, [first.sum()])
        autograd.backward(context_id, [second.sum()])
        assert gradients(context_id, one, "b") == [(2 * W).tolist(), (2 * X).tolist()]


@on_workers("main", "b", "c")
def test_many_contexts_at_once_over_the_same_parameters_keep_apart():
    futures = [rpc.rpc_async("main", train_slowly, (float(k),)) for k in range(1, 9)]
    for k, future in enumerate(futures, 1):
        each = (k * X * W).tolist()
        assert future.wait() == [(k * W * W).tolist(), each, each]


def train_slowly(factor):
    simulation = rpc.current_worker().host.simulation
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.through, (["c"], one))
        simulation.sleep(1.0)
        autograd.backward(context_id, [(y * factor).sum()])
        simulation.sleep(1.0)
        return gradients(context_id, one, "b", "c")


# FAST.


@on_workers("main", "b", "c")
def test_fast_is_exact_where_every_call_was_used():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.through, (["c"], one))
        autograd.backward(context_id, [y.sum()], mode="fast")
        each = (X * W).tolist()
        assert gradients(context_id, one, "b", "c") == [(W * W).tolist(), each, each]


@on_workers("main", "b")
def test_fast_does_not_wait_for_what_an_earlier_pass_has_used_up():
    one = x()
    with autograd.context() as context_id:
        for k in (1, 2):
            y = rpc.rpc_sync("b", handlers.scale, (one,))
            autograd.backward(context_id, [y.sum()], mode="fast")
            assert gradients(context_id, one, "b") == [(k * W).tolist(), (k * X).tolist()]


@on_workers("main", "b")
def test_fast_names_the_calls_that_were_not_used_and_leaves_nothing_behind():
    one = x()
    with autograd.context() as context_id:
        used = rpc.rpc_sync("b", handlers.scale, (one,))
        before = set(autograd._retrieve_context(context_id)._recv_functions())
        rpc.rpc_sync("b", handlers.scale, (one,))
        (unused,) = set(autograd._retrieve_context(context_id)._recv_functions()) - before
        with pytest.raises(GradientError) as caught:
            autograd.backward(context_id, [used.sum()], retain_graph=True, mode="fast")
        assert f"message {unused} from 'b' to 'main'" in str(caught.value)
        assert "use mode='smart'" in str(caught.value)
        assert gradients(context_id, one, "b") == [None, None]
        # The retained graph can be tried again.
        autograd.backward(context_id, [used.sum()])
        assert gradients(context_id, one, "b") == [W.tolist(), X.tolist()]


@on_workers("main", "b", "c")
def test_fast_does_not_name_what_was_used_and_only_waits():
    one = x()
    with autograd.context() as context_id:
        first = rpc.rpc_sync("b", handlers.scale, (one,))
        second = rpc.rpc_sync("b", handlers.scale, (one,))
        used = rpc.rpc_sync("c", handlers.scale, (second,))
        found = autograd._retrieve_context(context_id)
        before = {*found._send_functions(), *found._recv_functions()}
        rpc.rpc_sync("c", handlers.scale, (second,))
        unused = {*found._send_functions(), *found._recv_functions()} - before
        with pytest.raises(GradientError) as caught:
            autograd.backward(context_id, [(first + used).sum()], mode="fast")
        named = re.findall(r"message (\d+) from", str(caught.value))
        assert {int(each) for each in named} == unused


@pytest.mark.parametrize("mode", ["fast", "smart"])
@on_workers("main", "b")
def test_what_a_checkpoint_calls_again_leaves_nothing_in_the_context(simulation, mode):
    one = x()
    with autograd.context() as context_id:
        y = tg.autograd.checkpoint(lambda v: tg.sin(rpc.rpc_sync("b", handlers.scale, (v,))), one)
        before = [handlers.leftovers(simulation.worker(name)) for name in ("main", "b")]
        autograd.backward(context_id, [y.sum()], retain_graph=True, mode=mode)
        expected = [(W * np.cos(W * X)).tolist(), (X * np.cos(W * X)).tolist()]
        assert gradients(context_id, one, "b") == expected
        simulation.sleep(1.0)
        after = [handlers.leftovers(simulation.worker(name)) for name in ("main", "b")]
        assert after == before


@on_workers("main", "b", "c")
def test_a_checkpoint_on_another_worker_may_differentiate_what_it_calls():
    one = x()
    found = []
    for checkpointed in (False, True):
        with autograd.context() as context_id:
            y = rpc.rpc_sync("b", slope_elsewhere, (one, checkpointed))
            autograd.backward(context_id, [y.sum()])
            found.append(gradients(context_id, one, "c"))
    assert found[0] == found[1]
    assert None not in found[0]


def slope_elsewhere(x, checkpointed):
    def block(x):
        x = x * 1.0
        y = rpc.rpc_sync("c", handlers.scale, (x * x,))
        (slope,) = tg.autograd.grad(tg.sin(y).sum(), x, create_graph=True)
        return tg.exp(slope)

    return tg.autograd.checkpoint(block, x) if checkpointed else block(x)


@on_workers("main", "b")
def test_a_checkpoint_whose_remote_call_gives_other_numbers_the_second_time_is_an_error():
    one = x()
    with autograd.context() as context_id:
        y = tg.autograd.checkpoint(lambda v: tg.sin(rpc.rpc_sync("b", handlers.noisy, (v,))), one)
        with pytest.raises(GradientError, match="value 0 has other numbers"):
            autograd.backward(context_id, [y.sum()])
        assert len(autograd.get_gradients(context_id)) == 0


@on_workers("main", "b")
def test_passes_at_the_same_time_go_through_one_checkpoint_that_calls(simulation):
    one = x()
    with autograd.context() as context_id:
        y = tg.autograd.checkpoint(lambda v: tg.sin(rpc.rpc_sync("b", handlers.scale, (v,))), one)
        ended = [Future() for _ in range(3)]

        def run_pass(future):
            autograd.backward(context_id, [y.sum()], retain_graph=True)
            future.set_result(None)

        for future in ended:
            simulation.start(simulation.hosts["main"], partial(run_pass, future))
        for future in ended:
            future.wait()
        expected = [(3 * W * np.cos(W * X)).tolist(), (3 * X * np.cos(W * X)).tolist()]
        np.testing.assert_allclose(gradients(context_id, one, "b"), expected)


@on_workers("main", "b", "c", "d")
def test_smart_sends_no_more_than_fast_where_every_call_was_used(simulation):
    sent = {}
    for mode in ("fast", "smart"):
        with autograd.context() as context_id:
            y = rpc.rpc_sync("b", handlers.through, (["c", "d", "b", "main"], x()))
            z = rpc.rpc_sync("c", handlers.bounce, ("b", 3, y))
            simulation.sleep(1.0)
            before = len(simulation.trace)
            autograd.backward(context_id, [z.sum()], mode=mode)
            simulation.sleep(1.0)
            sent[mode] = frames_sent(simulation, before)
    assert sent["smart"] == sent["fast"]
    assert sent["fast"] > 0


@on_workers("main", "b")
def test_a_pass_over_one_call_costs_a_request_an_answer_and_a_notice(simulation):
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (x(),))
        simulation.sleep(1.0)
        before = len(simulation.trace)
        autograd.backward(context_id, [y.sum()])
        simulation.sleep(1.0)
        assert frames_sent(simulation, before) == 3


@on_workers("main", "b")
def test_a_hundred_calls_to_one_worker_go_back_in_four_questions(simulation):
    one = x()
    with autograd.context() as context_id:
        futures = [rpc.rpc_async("b", handlers.scale, (one,)) for _ in range(100)]
        total = sum((future.wait() for future in futures[1:]), futures[0].wait())
        simulation.sleep(1.0)
        before = len(simulation.trace)
        autograd.backward(context_id, [total.sum()])
        simulation.sleep(1.0)
        # 32 gradients each, the last 4; their answers; and one notice.
        assert frames_sent(simulation, before) == 9
        assert gradients(context_id, one, "b") == [(100 * W).tolist(), (100 * X).tolist()]


@on_workers("main", "b")
def test_an_unknown_mode_is_refused():
    with (
        autograd.context() as context_id,
        pytest.raises(UsageError, match="smart or fast, got"),
    ):
        autograd.backward(context_id, [x().sum()], mode="quick")
