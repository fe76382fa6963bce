"""How many round trips things take, where every message takes exactly ten milliseconds.

Time is virtual, so the counts are exact: what is done side by side takes as long over eight workers
as over one.
"""

from contextlib import contextmanager, suppress

import numpy as np
import pytest
from tests.distributed import handlers
from tests.distributed.simulated import on_workers

import telegrad as tg
from telegrad import optim
from telegrad.distributed import autograd, rpc
from telegrad.distributed.optim import DistributedOptimizer
from telegrad.errors import CallTimeout, GradientError
from telegrad.profiler import profile
from telegrad.rpc.calls.future import Future
from telegrad.testing.simulation import Faults

OTHERS = [f"w{i}" for i in range(8)]
EXACT = Faults(shortest=0.01, longest=0.01)
ROUND_TRIP = 0.02

on_nine_workers = on_workers("main", *OTHERS, faults=EXACT)


@contextmanager
def round_trips(count, simulation):
    began = simulation.now
    yield
    assert (simulation.now - began) / ROUND_TRIP == pytest.approx(count)


def leaf():
    return tg.tensor(np.array([5.0, 7.0]), requires_grad=True)


def parameter_reference():
    return rpc.RRef(handlers.parameter())


def call_all(function, *args):
    return [call.wait() for call in [rpc.rpc_async(name, function, args) for name in OTHERS]]


def loss_over_all(x):
    return sum((y.sum() for y in call_all(handlers.scale, x)), tg.tensor(0.0))


@on_nine_workers
def test_a_pass_over_workers_side_by_side_takes_one(simulation):
    with autograd.context() as context_id:
        loss = loss_over_all(leaf())
        with round_trips(1, simulation):
            autograd.backward(context_id, [loss])


@on_nine_workers
def test_a_pass_with_unused_calls_takes_three(simulation):
    x = leaf()
    with autograd.context() as context_id:
        loss = loss_over_all(x)
        loss_over_all(x)
        with round_trips(3, simulation):
            autograd.backward(context_id, [loss])


@on_nine_workers
def test_what_an_optimiser_asks_of_its_owners_takes_one(simulation):
    references = call_all(parameter_reference)
    with round_trips(1, simulation):
        optimizer = DistributedOptimizer(optim.SGD, references, lr=0.1)
    with autograd.context() as context_id:
        autograd.backward(context_id, [loss_over_all(leaf())])
        with round_trips(1, simulation):
            optimizer.step(context_id)
    with round_trips(1, simulation):
        optimizer.state_dict()


def take_a_second_on_the_way_back(x):
    def wait(gradient):
        with suppress(CallTimeout):
            Future().wait(1.0)

    y = x * 2.0
    y.register_hook(wait)
    return y


@on_workers("main", "slow", "b", "c", faults=Faults(shortest=0.001, longest=0.001))
def test_a_worker_that_is_slow_keeps_the_others_for_a_moment_at_most(simulation):
    x = leaf()
    with autograd.context() as context_id:
        start = x * 1.0
        ended = []
        start.register_hook(lambda gradient: ended.append(simulation.now))
        slow, y = rpc.rpc_sync("slow", take_a_second_on_the_way_back, (x,)), start
        for i in range(10):
            y = rpc.rpc_sync("bc"[i % 2], handlers.same, (y * 2.0,))
        began = simulation.now
        autograd.backward(context_id, [(slow + y).sum()])
        # Ten times 2 ms there and back, and once the 20 ms that the slow one alone is waited for.
        assert ended[0] - began < 0.041
        assert autograd.get_gradients(context_id)[x].numpy().tolist() == [1026.0] * 2


@on_nine_workers
@pytest.mark.parametrize("how", [{}, {"as_rrefs": True}, {"create_graph": True}], ids=str)
def test_gradients_of_referenced_inputs_come_in_one_more_than_the_pass(simulation, how):
    references = call_all(parameter_reference)
    x = leaf()
    with autograd.context() as context_id:
        loss = loss_over_all(x)
        with round_trips(2, simulation):
            *theirs, mine = autograd.grad(context_id, [loss], [*references, x], **how)
        theirs = [each.to_here() if isinstance(each, rpc.RRef) else each for each in theirs]
        assert [each.detach().numpy().tolist() for each in theirs] == [[5.0, 7.0]] * 8
        assert mine.detach().numpy().tolist() == [16.0, 24.0]


@on_nine_workers
def test_references_that_were_just_asked_for_are_made_known_in_one_more(simulation):
    with autograd.context() as context_id:
        loss = loss_over_all(leaf())
        references = [rpc.remote(name, handlers.fetch) for name in OTHERS]
        with round_trips(3, simulation):
            found = autograd.grad(context_id, [loss], references)
        assert [each.numpy().tolist() for each in found] == [[5.0, 7.0]] * 8


@on_nine_workers
@pytest.mark.parametrize("look", [autograd.gradients, autograd.draw])
def test_a_context_is_looked_at_in_one_for_each_step_away_from_here(simulation, look):
    with autograd.context() as context_id:
        loss_over_all(leaf())
        with round_trips(1, simulation):
            look(context_id)
    with autograd.context() as context_id:
        rpc.rpc_sync("w0", handlers.through, (["w1", "w2"], leaf()))
        with round_trips(3, simulation):
            look(context_id)


def use_one_of_two(x):
    h = x * 2.0
    rpc.rpc_sync("c", handlers.scale, (h,))
    return rpc.rpc_sync("c", handlers.scale, (h,))


@on_workers("main", "b", "c", faults=EXACT)
def test_what_a_correction_has_for_who_asked_rides_on_the_answer(simulation):
    x = leaf()
    with autograd.context() as context_id:
        loss = rpc.rpc_sync("b", use_one_of_two, (x,)).sum()
        # Two for the gradients, there and back. To search and to run on takes one each: what is to
        # go on at `main`, which asked, rides on the answer.
        with round_trips(4, simulation):
            autograd.backward(context_id, [loss])
        assert autograd.get_gradients(context_id)[x].numpy().tolist() == [4.0, 6.0]
        assert rpc.rpc_sync("c", handlers.gradient, (context_id,)) == [10.0, 14.0]


@on_nine_workers
def test_to_refuse_unused_calls_takes_three(simulation):
    x = leaf()
    with autograd.context() as context_id:
        loss = loss_over_all(x)
        loss_over_all(x)
        with round_trips(3, simulation), pytest.raises(GradientError) as caught:
            autograd.backward(context_id, [loss], mode="fast")
        assert all(f"from {name!r}" in str(caught.value) for name in OTHERS)


@on_nine_workers
def test_recording_on_all_workers_begins_in_two_and_what_they_recorded_is_fetched_in_one(
    simulation,
):
    watched = profile()
    with round_trips(2, simulation):
        watched.__enter__()
    call_all(abs, -1)
    with round_trips(1, simulation):
        watched.__exit__(None, None, None)
    assert [len(watched.events[name]) for name in OTHERS] == [1] * 8
