"""Notices about contexts and levels, and who waits for them; those of a commit, which wait."""

import gc
import threading
import weakref

import numpy as np
import pytest
from tests.distributed import handlers
from tests.distributed.simulated import IN_ORDER, frames_sent, on_workers
from tests.interpreter import needs_prompt_freeing
from tests.rpc.neighbours import neighbours

import telegrad as tg
from telegrad.distributed import autograd, rpc
from telegrad.distributed.contexts import dual_levels, leases
from telegrad.distributed.current import autograd_of
from telegrad.distributed.notices import LateNotice
from telegrad.distributed.worker_autograd import attach_autograd

ANSWERS = {leases.HELD: leases.RELEASE, dual_levels.HELD: dual_levels.CLOSED}


@pytest.mark.parametrize("service", list(ANSWERS))
def test_an_answer_to_who_must_be_dialled_keeps_nobody_waiting(service, monkeypatch):
    may_dial = threading.Event()
    with neighbours("a", "b") as (a, b):
        attach_autograd(a)
        attach_autograd(b)
        dial = a.host.dial

        def dial_late(*arguments):
            may_dial.wait(30)
            return dial(*arguments)

        monkeypatch.setattr(a.host, "dial", dial_late)
        heard = threading.Event()
        b.register_service(ANSWERS[service], lambda _: heard.set(), inline=True)
        b.notify_service("a", service, b.next_id())
        try:
            assert b.rpc_sync("a", abs, (-1,), timeout=5) == 1
            assert not heard.is_set()
        finally:
            may_dial.set()
        assert heard.wait(10)


KEPT = []


def scale_and_retain(x):
    KEPT.append(x * handlers.parameter())
    KEPT[-1].retain_grad()
    return KEPT[-1]


def run_a_pass(context_id, *names):
    x = tg.tensor(np.array([5.0, 7.0]), requires_grad=True)
    losses = [rpc.rpc_sync(name, scale_and_retain, (x,)).sum() for name in names]
    autograd.backward(context_id, losses)


def outcomes(simulation, name, context_id):
    return list(autograd_of(simulation.worker(name)).contexts.get(context_id).outcomes.values())


@on_workers("main", "b", "c", faults=IN_ORDER)
def test_a_commit_and_the_release_that_follows_it_are_one_message_to_each_worker(simulation):
    KEPT.clear()
    with autograd.context() as context_id:
        run_a_pass(context_id, "b", "c")
        since = len(simulation.trace)
    simulation.sleep(1)
    assert frames_sent(simulation, since) == 2
    # It was committed: an abort would have taken them back.
    assert [value.grad.tolist() for value in KEPT] == [[1.0, 1.0]] * 2


@needs_prompt_freeing
@on_workers("main", "b")
def test_a_pass_that_commits_as_its_context_is_released_leaves_nothing_to_the_collector(simulation):
    gc.collect()
    gc.disable()
    try:
        with autograd.context() as context_id:
            run_a_pass(context_id, "b")
            (found,) = autograd_of(simulation.worker("b")).contexts.get(context_id).passes.values()
            gradient = weakref.ref(*found.staged.values())
            del found
        simulation.sleep(1)
        assert gradient() is None
    finally:
        gc.enable()


@on_workers("main", "b", faults=IN_ORDER)
def test_a_commit_is_told_before_anything_else_is_asked(simulation):
    with autograd.context() as context_id:
        run_a_pass(context_id, "b")
        since, began = len(simulation.trace), simulation.now
        assert rpc.rpc_sync("b", handlers.gradient, (context_id,)) == [5.0, 7.0]
        assert frames_sent(simulation, since) == 3
        assert simulation.now - began < 0.05


@on_workers("main", "b")
def test_a_commit_after_which_nothing_is_asked_is_told_all_the_same(simulation):
    with autograd.context() as context_id:
        run_a_pass(context_id, "b")
        assert outcomes(simulation, "b", context_id) == []
        simulation.sleep(1)
        assert outcomes(simulation, "b", context_id) == [True]


@on_workers("main", "b", "c", faults=IN_ORDER)
def test_a_commit_is_told_though_another_who_took_part_was_lost_meanwhile(simulation):
    with autograd.context() as context_id:
        run_a_pass(context_id, "b", "c")
        simulation.crash("c")
        simulation.sleep(30)
        assert outcomes(simulation, "b", context_id) == [True]


def test_a_late_notice_is_said_once_by_one_of_two():
    with neighbours("a", "b") as (a, b):
        heard = []
        b.register_service("late", lambda request: heard.append(request.header), inline=True)
        assert a.rpc_sync("b", abs, (-1,)) == 1
        first, second = (LateNotice(a, ["b"], "late", [n]) for n in (1, 2))
        first.flush()
        assert second.take() == [2]
        second.flush()
        first.flush()
        assert a.rpc_sync("b", abs, (-1,)) == 1
        assert heard == [[1]]
