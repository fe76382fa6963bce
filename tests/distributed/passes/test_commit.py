"""The end of a pass whose root dies, or can't reach someone: all keep its gradients, or none."""

import random

import numpy as np
import pytest
from tests.distributed import handlers
from tests.distributed.simulated import IN_ORDER, SLOW, on_workers
from tests.distributed.soak import amount

import telegrad as tg
from telegrad.distributed import autograd, rpc
from telegrad.errors import ContextError, TelegradError, WorkerLost
from telegrad.rpc.options import Options

OPTIONS = Options(rpc_timeout=5.0, lost_after=10.0)
SHAPES = ("star", "chain", "unused")


def run_from_here(context_id, shape):
    """A pass whose root is not the home of its context, over c and d."""
    one = tg.tensor(np.array([5.0, 7.0]), requires_grad=True)
    if shape == "star":
        loss = rpc.rpc_sync("c", handlers.scale, (one,)) * rpc.rpc_sync("d", handlers.scale, (one,))
    elif shape == "chain":
        loss = rpc.rpc_sync("c", handlers.through, (["d"], one))
    else:
        loss = rpc.rpc_sync("c", handlers.ignore_another, (one, "d"))
    autograd.backward(context_id, [loss.sum()])


def who_has_gradients(shape, disturb, seed, faults=SLOW):
    """Whether c and d have gradients after such a pass, whatever happened to b, its root."""
    found = []

    @on_workers("main", "b", "c", "d", seed=seed, faults=faults, options=OPTIONS)
    def run(simulation):
        with autograd.context() as context_id:
            disturb(simulation)
            try:
                rpc.rpc_sync("b", run_from_here, (context_id, shape), timeout=100.0)
            except TelegradError:
                pass
            # Each ends: a local pass commits or aborts, though nobody notifies its worker.
            for name in "cd":
                try:
                    there = rpc.rpc_sync(name, handlers.gradient, (context_id,), timeout=60.0)
                    found.append(there is not None)
                except ContextError:
                    found.append(None)  # It is released there, or was never met.

    run()
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_a_root_that_dies_at_any_message_leaves_all_of_the_gradients_or_none(shape):
    kept = 0
    for occurrence in range(1, 16):
        for seed in range(2):
            found = who_has_gradients(
                shape,
                lambda simulation, n=occurrence: simulation.crash_at("b", "before send", n),
                seed,
                faults=(SLOW, IN_ORDER)[seed],
            )
            assert bool(found[0]) == bool(found[1]), (occurrence, seed, found)
            kept += found == [True, True]
    assert kept


def later(simulation, seed, disturb):
    """Does something at some time while the pass runs."""

    def wait_and_disturb():
        simulation.sleep(random.Random(seed).uniform(0.0, 0.3))
        disturb()

    simulation.worker("main").host.start(wait_and_disturb)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_root_that_dies_at_any_time_leaves_all_of_the_gradients_or_none(shape):
    for seed in range(amount(25, 1000)):
        found = who_has_gradients(
            shape,
            lambda simulation, s=seed: later(simulation, s, lambda: simulation.crash("b")),
            seed,
        )
        assert bool(found[0]) == bool(found[1]), (seed, found)


@pytest.mark.parametrize("pair", ["bc", "bd", "cd"])
def test_a_cut_between_two_workers_leaves_all_of_the_gradients_or_none(pair):
    for seed in range(amount(10, 500)):
        found = who_has_gradients(
            "chain",
            lambda simulation, s=seed: later(simulation, s, lambda: simulation.cut(*pair)),
            seed,
        )
        assert bool(found[0]) == bool(found[1]), (seed, found)
        assert None not in found, (seed, found)


def test_a_cut_between_the_root_and_the_home_leaves_all_of_the_gradients_or_none():
    for seed in range(amount(10, 500)):
        found = who_has_gradients(
            "chain",
            lambda simulation, s=seed: later(simulation, s, lambda: simulation.cut("b", "main")),
            seed,
        )
        # When b has lost the home it releases the context, perhaps after one was asked.
        assert not {True, False} <= set(found), (seed, found)


def run_further_on(name, context_id, value):
    return rpc.rpc_sync(name, run_from_value, (context_id, value))


def run_from_value(context_id, value):
    autograd.backward(context_id, [(value * handlers.parameter()).sum()])


@on_workers("main", "b", "c", options=OPTIONS)
def test_a_home_that_loses_the_way_to_a_dead_root_does_not_wait_for_it(simulation):
    one = tg.tensor(np.array([5.0, 7.0]), requires_grad=True)

    def lose_the_others(gradient):
        simulation.crash("b")
        simulation.crash("c")

    with autograd.context() as context_id:
        one.register_hook(lose_the_others)
        with pytest.raises(WorkerLost):
            rpc.rpc_sync("b", run_further_on, ("c", context_id, one))
        assert len(autograd.get_gradients(context_id)) == 0
