"""A pass that fails: who hears of it, and that it leaves nothing behind."""

import gc
import weakref

import numpy as np
import pytest
from tests.distributed import handlers
from tests.distributed.simulated import IN_ORDER, on_workers
from tests.interpreter import needs_prompt_freeing

import telegrad as tg
from telegrad.distributed import autograd, rpc
from telegrad.distributed.current import autograd_of
from telegrad.distributed.passes.coordinator import GRADIENTS
from telegrad.distributed.passes.plan import PassPlan
from telegrad.errors import (
    AnomalyError,
    CallTimeout,
    ContextError,
    GradientError,
    GraphFreedError,
    PassAborted,
    PeerError,
    WorkerLost,
)
from telegrad.rpc.options import Options
from telegrad.testing.simulation import Faults

W = np.array([2.0, 3.0])
X = np.array([5.0, 7.0])


def x():
    return tg.tensor(X, requires_grad=True)


def notes(error):
    return "\n".join(getattr(error, "__notes__", []))


def no_gradients(context_id, *names):
    mine = autograd.get_gradients(context_id)
    theirs = [rpc.rpc_sync(name, handlers.gradient, (context_id,)) for name in names]
    return mine == {} and theirs == [None] * len(names)


@on_workers("main", "b", "c")
def test_an_exception_of_any_type_in_a_handler_keeps_type_message_and_worker():
    with autograd.context():
        with pytest.raises(handlers.Unlucky, match="no luck today") as caught:
            rpc.rpc_sync("b", rpc.rpc_sync, ("c", handlers.fail, (x(),)))
        assert "raised on worker 'c'" in notes(caught.value)
        assert "raised on worker 'b'" in notes(caught.value)


@on_workers("main", "b", "c")
def test_a_failing_rule_elsewhere_fails_the_pass_with_its_type_worker_and_operation():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("c", handlers.scale, (one,))
        z = rpc.rpc_sync("b", handlers.with_failing_rule, (y,))
        with pytest.raises(ZeroDivisionError, match="a rule that fails") as caught:
            autograd.backward(context_id, [(z * one).sum()])
        assert "raised on worker 'b'" in notes(caught.value)
        assert "ThriceBackward" in notes(caught.value)
        assert no_gradients(context_id, "b", "c")


@on_workers("main", "b", "c")
def test_a_pass_under_detect_anomaly_ends_at_the_first_nan_wherever_it_is():
    one = x()
    for name, here in (("b", lambda v: v), ("main", handlers.with_nan_in_backward)):
        with autograd.context() as context_id, tg.autograd.detect_anomaly():
            there = handlers.with_nan_in_backward if name == "b" else handlers.scale
            y = rpc.rpc_sync("b", there, (here(one),))
            with pytest.raises(AnomalyError, match="SqrtBackward gave NaN") as caught:
                autograd.backward(context_id, [rpc.rpc_sync("c", handlers.scale, (y,)).sum()])
            assert ("raised on worker 'b'" in notes(caught.value)) == (name == "b")
            assert no_gradients(context_id, "b", "c")


@on_workers("main", "b", "c")
def test_a_failing_hook_elsewhere_fails_the_pass_with_its_type_and_worker():
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.with_failing_hook, (x(),))
        z = rpc.rpc_sync("c", handlers.scale, (y,))
        with pytest.raises(handlers.Unlucky, match="no luck in the hook") as caught:
            autograd.backward(context_id, [z.sum()])
        assert "raised on worker 'b'" in notes(caught.value)
        assert no_gradients(context_id, "b", "c")


@on_workers("main", "b")
def test_a_failing_hook_of_the_root_leaves_nothing_elsewhere():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one,))
        one.register_hook(lambda g: handlers.fail())
        with pytest.raises(handlers.Unlucky):
            autograd.backward(context_id, [y.sum()])
        assert no_gradients(context_id, "b")


@on_workers("main", "b", "c", "d")
def test_one_failure_among_many_workers_leaves_no_gradients():
    one = x()
    with autograd.context() as context_id:
        good = rpc.rpc_sync("c", handlers.through, (["d"], one))
        bad = rpc.rpc_sync("b", handlers.with_failing_hook, (one,))
        with pytest.raises(handlers.Unlucky):
            autograd.backward(context_id, [(good + bad).sum()])
        assert no_gradients(context_id, "b", "c", "d")


@pytest.mark.parametrize("names", ["bc", "cb"])
@on_workers("main", "b", "c")
def test_a_failure_is_raised_at_once_though_another_worker_is_still_busy(simulation, names):
    one = x()
    there = {"b": handlers.with_failing_rule, "c": slow_in_backward}
    with autograd.context() as context_id:
        y, z = (rpc.rpc_sync(name, there[name], (one,)) for name in names)
        loss = (y * z).sum()
        began = simulation.now
        with pytest.raises(ZeroDivisionError) as caught:
            autograd.backward(context_id, [loss], retain_graph=True)
        assert "raised on worker 'b'" in notes(caught.value)
        assert "ThriceBackward" in notes(caught.value)
        assert simulation.now - began < 1.0
        assert no_gradients(context_id, "b", "c")
        # A second try need not wait for its late local pass, which is for nobody.
        autograd.backward(context_id, [loss])
        for _ in range(2):
            found = autograd.get_gradients(context_id)[one].numpy()
            assert found.tolist() == (6 * X * W * W).tolist()
            assert rpc.rpc_sync("c", handlers.gradient, (context_id,)) == (3 * X * X * W).tolist()
            simulation.sleep(1100.0)


@pytest.mark.parametrize("names", ["bc", "cb"])
@on_workers("main", "b", "c", "d")
def test_a_failure_is_raised_at_once_through_a_worker_with_several_requests(simulation, names):
    with autograd.context() as context_id:
        loss = rpc.rpc_sync("d", ask_both, (names, x())).sum()
        began = simulation.now
        with pytest.raises(handlers.Unlucky) as caught:
            autograd.backward(context_id, [loss])
        assert "raised on worker 'b'" in notes(caught.value)
        assert "raised on worker 'd'" in notes(caught.value)
        assert simulation.now - began < 1.0
        assert no_gradients(context_id, "b", "c", "d")
    simulation.sleep(1100.0)


def ask_both(names, value):
    there = {"b": handlers.with_failing_hook, "c": slow_in_backward}
    y, z = (rpc.rpc_sync(name, there[name], (value,)) for name in names)
    return y * z


@pytest.mark.parametrize("names", ["bc", "cb"])
@on_workers("main", "b", "c")
def test_a_failure_after_the_correction_is_raised_at_once_too(simulation, names):
    with autograd.context() as context_id:
        one = x()
        used = [rpc.rpc_sync(name, scale_by_hooked, (one,)) for name in names]
        for name in names:
            # Not used: the parameter there waits for it, and runs only after the correction.
            rpc.rpc_sync(name, scale_by_hooked, (one,))
        began = simulation.now
        with pytest.raises(handlers.Unlucky) as caught:
            autograd.backward(context_id, [(used[0] * used[1]).sum()])
        assert "raised on worker 'b'" in notes(caught.value)
        assert simulation.now - began < 1.0
        assert no_gradients(context_id, "b", "c")
    simulation.sleep(1100.0)


def scale_by_hooked(value):
    """By a parameter whose gradient is bad luck on one worker, and takes long on another."""
    weight = handlers.parameter("hooked")
    simulation = rpc.current_worker().host.simulation
    if rpc.get_worker_info().name == "b":
        weight.register_hook(lambda g: handlers.fail())
    else:
        weight.register_hook(lambda g: simulation.sleep(1000.0))
    return value * weight


@on_workers("main", "b", "c", "d")
def test_answers_that_come_late_and_out_of_order_are_all_taken(simulation):
    one = x()
    with autograd.context() as context_id:
        values = [rpc.rpc_sync(name, slow_in_backward, (one, pause)) for name, pause in PAUSES]
        began = simulation.now
        autograd.backward(context_id, [(values[0] * values[1] * values[2]).sum()])
        assert 30.0 <= simulation.now - began < 31.0
        expected = 3 * X * X * W * W * W
        assert autograd.get_gradients(context_id)[one].numpy().tolist() == expected.tolist()
        for name, _ in PAUSES:
            found = rpc.rpc_sync(name, handlers.gradient, (context_id,))
            assert found == (X * X * X * W * W).tolist()


PAUSES = (("b", 30.0), ("c", 10.0), ("d", 20.0))


@on_workers("main", "b", options=Options(rpc_timeout=1.0))
def test_a_request_that_waits_for_a_thread_longer_than_a_calls_timeout_is_not_given_up(simulation):
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one,))
        simulation.faults, began = Faults(lag=1000.0), simulation.now
        autograd.backward(context_id, [y.sum()])
        simulation.faults = Faults()
        assert simulation.now - began > 10.0
        assert autograd.get_gradients(context_id)[one].numpy().tolist() == W.tolist()


@pytest.mark.parametrize("succeeded", [True, False])
@on_workers("main", "b", faults=IN_ORDER)
def test_a_message_of_a_pass_that_has_ended_is_refused_and_makes_no_new_local_pass(succeeded):
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.with_failing_rule, (x(), 0 if succeeded else 1))
        try:
            autograd.backward(context_id, [y.sum()], retain_graph=True)
        except ZeroDivisionError:
            assert not succeeded
        here = rpc.current_worker()
        (pass_id,) = autograd_of(here).contexts.get(context_id).outcomes
        plan = PassPlan(context_id, pass_id, (1,), True, False, None)
        with pytest.raises(PassAborted, match="has ended already"):
            here.ask_service("b", GRADIENTS, [plan, []])
        assert rpc.rpc_sync("b", handlers.leftovers)["passes"] == 0


@on_workers("main", "b", "c")
def test_a_second_try_of_a_retained_graph_is_exact():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("c", handlers.scale, (one,))
        loss = rpc.rpc_sync("b", handlers.with_failing_rule, (y, 2)).sum()
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                autograd.backward(context_id, [loss], retain_graph=True)
        autograd.backward(context_id, [loss])
        found = autograd.get_gradients(context_id)[one].numpy()
        assert found.tolist() == (3 * W * W).tolist()
        for name in ("b", "c"):
            assert rpc.rpc_sync(name, handlers.gradient, (context_id,)) == (3 * X * W).tolist()


RETAINED = []


def scale_and_retain(value):
    RETAINED.append(handlers.scale(value))
    RETAINED[-1].retain_grad()
    return RETAINED[-1]


@on_workers("main", "b", "c", faults=IN_ORDER)
def test_a_failed_pass_leaves_what_was_retained_as_it_was_on_every_worker():
    RETAINED.clear()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.with_failing_rule, (x(), 1))
        z = scale_and_retain(rpc.rpc_sync("c", scale_and_retain, (y,)))
        autograd.grad(context_id, z.sum(), z, retain_graph=True)
        with pytest.raises(ZeroDivisionError):
            autograd.backward(context_id, [z.sum()], retain_graph=True)
        assert no_gradients(context_id, "b", "c")
        theirs, mine = RETAINED
        assert theirs.grad is None
        assert mine.grad.tolist() == [1.0, 1.0]
        autograd.backward(context_id, [z.sum()])
        assert theirs.grad.tolist() == W.tolist()
        assert mine.grad.tolist() == [2.0, 2.0]


def refuse_to_add(shape, monkeypatch):
    """Gradients of that shape can't be added to those that a context has."""

    def add(old, new):
        if old.shape == shape:
            raise MemoryError("no memory for the sum")
        return old + new

    monkeypatch.setattr("telegrad.distributed.contexts.context.added", add)


def test_a_root_that_has_no_memory_for_its_gradients_fails_the_pass_everywhere(monkeypatch):
    @on_workers("main", "b", "c")
    def run():
        first, one = x(), tg.tensor([5.0], requires_grad=True)
        with autograd.context() as context_id:
            product = first * one
            product.retain_grad()
            y = rpc.rpc_sync("b", handlers.through, (["c"], product)).sum()
            autograd.backward(context_id, [y], retain_graph=True)
            with monkeypatch.context() as patch:
                refuse_to_add((1,), patch)
                with pytest.raises(MemoryError, match="no memory for the sum"):
                    autograd.backward(context_id, [y], retain_graph=True)
            for times in (1, 2):
                mine = autograd.get_gradients(context_id)
                assert mine[first].tolist() == (times * 5 * W * W).tolist()
                assert mine[one].tolist() == [times * (X * W * W).sum()]
                assert product.grad.tolist() == (times * W * W).tolist()
                for name in ("b", "c"):
                    theirs = rpc.rpc_sync(name, handlers.gradient, (context_id,))
                    assert theirs == (times * 5 * X * W).tolist()
                if times == 1:
                    autograd.backward(context_id, [y])

    run()


def test_a_worker_that_has_no_memory_for_its_gradients_leaves_none_anywhere(monkeypatch):
    @on_workers("main", "b", "c")
    def run(simulation):
        one = tg.tensor([5.0], requires_grad=True)
        with autograd.context() as context_id:
            y = rpc.rpc_sync("b", handlers.scale, (rpc.rpc_sync("c", handlers.same, (one,)),))
            autograd.backward(context_id, [y.sum()], retain_graph=True)
            rpc.rpc_sync("b", handlers.gradient, (context_id,))  # It has ended there as well.
            refuse_to_add((2,), monkeypatch)
            autograd.backward(context_id, [y.sum()])
            simulation.settle(5)
            for name in ("b", "c"):
                with pytest.raises(ContextError, match="is released"):
                    rpc.rpc_sync(name, handlers.gradient, (context_id,))
            with pytest.raises(ContextError, match="is released"):
                autograd.get_gradients(context_id)

    run()


@on_workers("main", "b")
def test_a_second_try_of_a_graph_that_was_not_retained_says_so():
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.with_failing_rule, (x(),))
        loss = (y * y).sum()
        with pytest.raises(ZeroDivisionError):
            autograd.backward(context_id, [loss])
        with pytest.raises(GraphFreedError, match="retain_graph=True"):
            autograd.backward(context_id, [loss])


@on_workers("main", "b", "c")
def test_a_failure_after_the_correction_leaves_nothing_either():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.ignore_another, (one, "c"))
        one.register_hook(lambda g: handlers.fail())
        with pytest.raises(handlers.Unlucky):
            autograd.backward(context_id, [y.sum()])
        assert no_gradients(context_id, "b", "c")


@on_workers("main", "b")
def test_a_hook_may_itself_run_a_pass_of_another_context():
    seen = []

    def look(g):
        with tg.enable_grad(), autograd.context() as inner:
            two = x()
            autograd.backward(inner, [rpc.rpc_sync("b", handlers.scale, (two,)).sum()])
            seen.append(autograd.get_gradients(inner)[two].numpy().tolist())

    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one,))
        y.register_hook(lambda g: run_elsewhere(look, g))
        autograd.backward(context_id, [y.sum()])
        assert autograd.get_gradients(context_id)[one].numpy().tolist() == W.tolist()
    assert seen == [W.tolist()]


def run_elsewhere(function, *args):
    """Runs outside of the current context."""
    from telegrad.distributed.contexts.context import CURRENT

    token = CURRENT.set(None)
    try:
        function(*args)
    finally:
        CURRENT.reset(token)


class ReachesItself(tg.autograd.Function):
    """Its rule has another worker differentiate what it made itself, and so runs again there."""

    @staticmethod
    def forward(ctx, value):
        made = value * value
        ctx.save_for_backward(value, made)
        return made

    @staticmethod
    def backward(ctx, gradient):
        value, made = ctx.saved_tensors
        context_id = autograd._current_context()._context_id()
        args = (context_id, made, rpc.RRef(value))
        with tg.enable_grad():
            return gradient * rpc.rpc_sync("c", slope_of, args)


def slope_of(context_id, made, value):
    return autograd.grad(context_id, made.sum(), value, create_graph=True)[0]


def reach_itself(value):
    return ReachesItself.apply(value)


@on_workers("main", "b", "c")
def test_a_rule_whose_pass_reaches_itself_ends_as_in_one_process(simulation):
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", reach_itself, (x(),)).sum()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("telegrad.distributed.passes.coordinator._DEEPEST", 20)
            with pytest.raises(RecursionError, match=r"at most 20 passes .* the same rule again"):
                autograd.backward(context_id, [y])
        assert simulation.now < 10
        assert no_gradients(context_id, "b", "c")


# Lost workers, on virtual time.


@pytest.mark.parametrize("when", ["before", "during"])
@on_workers("main", "b", "c")
def test_a_worker_that_dies_fails_the_pass_by_name_for_everyone(simulation, when):
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (x(),))
        z = rpc.rpc_sync("c", handlers.scale, (y,))
        if when == "before":
            simulation.crash("b")
        else:
            simulation.crash_at("b", "during execution")
        with pytest.raises(WorkerLost, match=r"\bb\b"):
            autograd.backward(context_id, [z.sum()])
        simulation.sleep(30.0)
        assert no_gradients(context_id, "c")


@on_workers("main", "b", "c")
def test_a_worker_that_dies_after_its_local_pass_takes_only_its_own_gradients(simulation):
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.through, (["c"], one))
        autograd.backward(context_id, [y.sum()])
        simulation.crash("b")
        simulation.sleep(30.0)
        assert autograd.get_gradients(context_id)[one].numpy().tolist() == (W * W).tolist()
        assert rpc.rpc_sync("c", handlers.gradient, (context_id,)) == (X * W).tolist()


@pytest.mark.parametrize("seed", range(4))
def test_an_abort_is_heard_of_though_the_one_that_would_forward_it_died(seed):
    @on_workers("main", "b", "c", seed=seed)
    def test(simulation):
        with autograd.context() as context_id:
            y = rpc.rpc_sync("b", slow_further_on, ("c", x()))
            kill_later(simulation, "b")
            with pytest.raises(WorkerLost, match=r"\bb\b"):
                autograd.backward(context_id, [y.sum()])
            # The root has never met c, which would wait for the end of the pass.
            assert no_gradients(context_id, "c")
            assert handlers.leftovers(simulation.worker("c"))["passes"] == 0

    test()


def slow_further_on(other, value):
    return rpc.rpc_sync(other, slow_in_backward, (value, 5.0))


@on_workers("main", "b", "c", "d")
def test_a_worker_that_takes_no_part_may_die_during_a_pass(simulation):
    with autograd.context() as context_id:
        one = x()
        y = rpc.rpc_sync("b", slow_further_on, ("c", one))
        rpc.rpc_sync("c", handlers.through, (["d"], X))
        rpc.rpc_sync("d", handlers.scale, (X,))
        kill_later(simulation, "d")
        autograd.backward(context_id, [y.sum()])
        assert rpc.rpc_sync("c", handlers.gradient, (context_id,)) == X.tolist()
        assert autograd.get_gradients(context_id)[one].numpy().tolist() == W.tolist()


def kill_later(simulation, name):
    """Kills a worker while a slow pass runs."""

    def kill():
        simulation.sleep(2.0)
        simulation.crash(name)

    rpc.current_worker().host.start(kill)


@on_workers("main", "b", "c")
def test_a_worker_that_stops_is_found_by_its_heartbeat(simulation):
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.through, (["c"], x()))
        began = simulation.now
        simulation.pause("c", 1000.0)
        with pytest.raises(PeerError, match="'c'"):
            autograd.backward(context_id, [y.sum()])
        assert simulation.now - began < 60.0
    simulation.sleep(1200.0)


@on_workers("main", "b", "c")
def test_the_root_of_a_pass_that_dies_leaves_nothing_on_the_others(simulation):
    held = rpc.rpc_async("b", train_slowly_from_here, ("c",))
    simulation.sleep(1.0)
    simulation.crash("b")
    simulation.sleep(30.0)
    with pytest.raises(WorkerLost):
        held.wait()
    assert handlers.leftovers(simulation.worker("c")) == handlers.CLEAN


def train_slowly_from_here(other):
    with autograd.context() as context_id:
        y = rpc.rpc_sync(other, slow_in_backward, (x(),))
        autograd.backward(context_id, [y.sum()])


def slow_in_backward(value, seconds=1000.0):
    y = value * handlers.parameter()
    simulation = rpc.current_worker().host.simulation
    y.register_hook(lambda g: simulation.sleep(seconds))
    return y


LEAVES = []
"""Weak references to the leaves of the next test, on either worker."""


def leaf_to_watch():
    made = x()
    LEAVES.append(weakref.ref(made))
    return made


def scale_by_a_new_leaf(value, hook):
    result = value * leaf_to_watch()
    if hook is not None:
        result.register_hook(hook)
    return result


def fail_a_pass(how):
    with autograd.context() as context_id:
        hook = (lambda gradient: 1 / 0) if how == "a hook there" else None
        y = rpc.rpc_sync("b", scale_by_a_new_leaf, (leaf_to_watch(), hook))
        z = tg.sin(y).sum()
        if hook is None:
            autograd.backward(context_id, [z if how == "a second pass here" else y.sum()])
        try:
            autograd.backward(context_id, [z])
        except (GraphFreedError, ZeroDivisionError):
            return
    raise AssertionError("it did not fail")


@needs_prompt_freeing
@pytest.mark.parametrize("how", ["a second pass here", "a second pass there", "a hook there"])
@on_workers("main", "b")
def test_what_a_failed_pass_held_goes_without_the_garbage_collector(simulation, how):
    LEAVES.clear()
    gc.collect()
    gc.disable()
    try:
        fail_a_pass(how)
        simulation.sleep(1.0)
        assert [leaf() for leaf in LEAVES] == [None, None]
    finally:
        gc.enable()


# A pass that comes for a call that failed.


@on_workers("main", "b")
def test_a_pass_through_what_a_call_kept_that_timed_out_says_that_the_call_failed(simulation):
    one = x()
    with autograd.context() as context_id:
        with pytest.raises(CallTimeout):
            rpc.rpc_sync("b", keep, (one, 5.0), timeout=1.0)
        simulation.sleep(10.0)
        kept = rpc.rpc_sync("b", take_kept)
        with pytest.raises(
            GradientError, match=r"'main' made with it failed \(CallTimeout"
        ) as caught:
            autograd.backward(context_id, [kept.sum()])
        assert not isinstance(caught.value, GraphFreedError)
        assert "make the call again" in str(caught.value)
        assert no_gradients(context_id, "b")


@on_workers("main", "b", "c")
def test_a_pass_through_what_a_failed_call_had_another_keep_says_that_the_call_failed():
    one = x()
    with autograd.context() as context_id:
        with pytest.raises(handlers.Unlucky):
            rpc.rpc_sync("b", fail_after, ("c", one))
        kept = rpc.rpc_sync("c", take_kept)
        with pytest.raises(GradientError, match=r"'main' made with it failed \(Unlucky") as caught:
            autograd.backward(context_id, [kept.sum()])
        assert not isinstance(caught.value, GraphFreedError)
        assert no_gradients(context_id, "b", "c")


@on_workers("main", "b")
def test_a_pass_for_a_message_that_an_earlier_one_freed_still_says_so():
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (x(),))
        autograd.backward(context_id, [y.sum()])
        with pytest.raises(GraphFreedError, match="retain_graph=True"):
            autograd.backward(context_id, [y.sum()])


KEPT = []


def keep(value, seconds=0.0):
    if seconds:
        rpc.current_worker().host.simulation.sleep(seconds)
    KEPT.append(value * handlers.parameter())


def take_kept():
    return KEPT.pop()


def fail_after(other, value):
    rpc.rpc_sync(other, keep, (value * handlers.parameter(),))
    handlers.fail()


@on_workers("main", "b", faults=IN_ORDER)
def test_a_worker_that_was_started_again_since_the_forward_pass_is_a_lost_one(simulation):
    with autograd.context() as context_id:
        loss = rpc.rpc_sync("b", handlers.square, (x(),)).sum()
        simulation.crash("b")
        simulation.restart("b")
        simulation.sleep(1)
        # It has met the context, too.
        rpc.rpc_sync("b", handlers.square, (x(),))
        with pytest.raises(WorkerLost, match=r"worker 'b' was lost, and started again since: what"):
            autograd.backward(context_id, [loss])
        assert autograd.get_gradients(context_id) == {}
