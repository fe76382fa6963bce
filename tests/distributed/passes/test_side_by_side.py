"""Workers of one pass work side by side: what is ready leaves while the rest runs."""

from contextlib import suppress
from itertools import count

import pytest
from tests.distributed import handlers
from tests.distributed.simulated import on_workers

import telegrad as tg
from telegrad.distributed import autograd, rpc
from telegrad.distributed.passes.local_pass import LocalPass
from telegrad.distributed.passes.request import PassRequest, PassRequests
from telegrad.errors import CallTimeout
from telegrad.rpc.calls.future import Future


class Stages:
    """Two micro-batches through two stages.

    On its way back the first takes its time in `late`, and the second waits there until the first
    has been through `early`.
    """

    through_early: Future[None]
    seen = 0

    @classmethod
    def reset(cls):
        cls.through_early, cls.seen = Future(), 0

    @classmethod
    def early(cls, x):
        y = x * handlers.parameter()
        y.register_hook(lambda gradient: cls._pass_early())
        return y

    @classmethod
    def late(cls, x):
        y = x * handlers.parameter()
        y.register_hook(lambda gradient: cls._take_turn())
        return y

    @classmethod
    def _pass_early(cls):
        if not cls.through_early.done():
            cls.through_early.set_result(None)

    @classmethod
    def _take_turn(cls):
        cls.seen += 1
        if cls.seen == 2:
            cls.through_early.wait(10)
            return
        with suppress(CallTimeout):
            Future().wait(0.01)

    @classmethod
    def both(cls, x):
        return rpc.rpc_sync("late", cls.late, (cls.early(x),))


def gradients_of(micro_batches, run):
    Stages.reset()
    with autograd.context() as context_id:
        outputs = [run(each) for each in micro_batches]
        autograd.backward(context_id, [sum(y.sum() for y in outputs)])
        assert Stages.seen == len(micro_batches)
        return [autograd.get_gradients(context_id)[x].numpy().tolist() for x in micro_batches]


def two():
    return [tg.tensor([float(i), 1.0], requires_grad=True) for i in range(2)]


@on_workers("main", "early", "late")
def test_gradients_for_the_asker_leave_before_it_has_its_answer():
    def run(x):
        return rpc.rpc_sync("late", Stages.late, (rpc.rpc_sync("early", Stages.early, (x,)),))

    assert gradients_of(two(), run) == [[4.0, 9.0]] * 2


@on_workers("main", "early", "late")
def test_a_stage_hands_on_what_it_has_to_the_one_that_called_it():
    assert (
        gradients_of(two(), lambda x: rpc.rpc_sync("early", Stages.both, (x,))) == [[4.0, 9.0]] * 2
    )


@on_workers("main", "late")
def test_what_leaves_is_not_kept_by_what_runs_here():
    def run(x):
        return Stages.late(rpc.rpc_sync("late", Stages.early, (x,)))

    assert gradients_of(two(), run) == [[4.0, 9.0]] * 2


@on_workers("main", "b")
def test_a_thread_that_is_to_wait_at_once_does_so_though_another_pauses_the_pass(monkeypatch):
    """Nobody else would read the answer."""
    did, looks = [], count()
    ask, go_on, read = PassRequests.ask, LocalPass.go_on, PassRequest.read

    def asked(self, to, *args, waits=False):
        did.append(f"asked {to}, waits" if waits else f"asked {to}")
        return ask(self, to, *args, waits=waits)

    monkeypatch.setattr(PassRequests, "ask", asked)
    monkeypatch.setattr(
        PassRequest, "read", lambda self, take: (did.append("waited"), read(self, take))[1]
    )
    monkeypatch.setattr(LocalPass, "go_on", lambda self: (did.append("went on"), go_on(self))[1])
    # As if another thread paused it again and again.
    monkeypatch.setattr(LocalPass, "is_paused", property(lambda self: next(looks) % 2 == 1))
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    with autograd.context() as context_id:
        autograd.backward(context_id, [rpc.rpc_sync("b", handlers.scale, (x,)).sum()])
        assert autograd.get_gradients(context_id)[x].tolist() == [2.0, 3.0]
    assert did[:2] == ["asked b, waits", "waited"]


def nap(seconds):
    with suppress(CallTimeout):
        Future().wait(seconds)


def scale_and_take_its_time(x):
    y = x * handlers.parameter()
    y.register_hook(lambda gradient: nap(0.01))
    return y


@on_workers("main", "b")
def test_one_that_is_behind_is_sent_more_at_a_time_and_needs_no_thread_for_each(simulation):
    most, x = [0], tg.tensor([1.0, 2.0], requires_grad=True)

    def look(gradient):
        most[0] = max(most[0], len(simulation.hosts["b"].strands))
        nap(0.001)

    with autograd.context() as context_id:
        outputs = [rpc.rpc_sync("b", scale_and_take_its_time, (x,)) for _ in range(200)]
        for y in outputs:
            y.register_hook(look)
        autograd.backward(context_id, [sum(y.sum() for y in outputs)])
        assert autograd.get_gradients(context_id)[x].tolist() == [400.0, 600.0]
    assert most[0] < 30


@on_workers("main", "b")
def test_a_failure_elsewhere_ends_a_local_pass_that_has_much_left_to_run():
    seen = []

    def look(gradient):
        seen.append(gradient)
        nap(0.1)

    x = tg.tensor([1.0, 2.0], requires_grad=True)
    with autograd.context() as context_id:
        outputs = [rpc.rpc_sync("b", handlers.with_failing_rule, (x,)) for _ in range(20)]
        for y in outputs:
            y.register_hook(look)
        with pytest.raises(ZeroDivisionError):
            autograd.backward(context_id, [sum(y.sum() for y in outputs)])
    assert len(seen) < 5
