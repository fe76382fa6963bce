"""Random programs × placements × schedules: the gradients of one process, bit for bit."""

import functools
import random

import numpy as np
import pytest
from tests.distributed import programs
from tests.distributed.soak import amount

from telegrad.distributed.current import autograd_of
from telegrad.distributed.passes import local_pass
from telegrad.distributed.worker_autograd import attach_autograd
from telegrad.engine import OrderedTask
from telegrad.rpc.options import Options
from telegrad.testing.simulation import Faults, Simulation

WORKERS = ("w0", "w1", "w2", "w3")
SLOW = Faults(shortest=0.0001, longest=0.05, lag=0.05)


def run_once(seed, placement, schedule, faults=SLOW, quiet=(), **options):
    """Run a program; workers that are `quiet` listen nowhere."""
    run = programs.Run(f"{seed} {schedule}", placement, seed)
    try:
        with Simulation(
            WORKERS,
            seed=schedule,
            faults=faults,
            options={name: Options(listen=name not in quiet) for name in WORKERS},
            on_start=attach_autograd,
        ) as simulation:
            program = programs.program_of(seed)
            found = programs.distributed_gradients(simulation, "w0", run, seed, program, **options)
            simulation.settle(5)
            for name in WORKERS:
                left = autograd_of(simulation.worker(name)).contexts
                assert len(left) == 0, f"{name} still has a context"
        return found
    finally:
        del programs.RUNS[run.name]


@functools.cache
def alone(seed):
    """With every place on the root: each call is made to oneself."""
    return run_once(seed, dict.fromkeys(programs.PLACES, "w0"), 0)


def same_bits(left, right):
    assert left.keys() == right.keys()
    for name in left:
        assert left[name].tobytes() == right[name].tobytes(), name


@pytest.mark.parametrize("block", range(amount(10, 300)))
def test_any_placement_and_schedule_gives_the_bits_of_one_process(block):
    rng = random.Random(block)
    for seed in range(100 * block, 100 * block + 100):
        reference = alone(seed)
        for _ in range(3):
            placement = programs.random_placement(rng, WORKERS)
            same_bits(run_once(seed, placement, rng.randrange(10**6)), reference)


@pytest.mark.parametrize("quiet", ["w0", "w2"])
def test_a_worker_that_listens_nowhere_changes_no_bit(quiet):
    rng = random.Random(quiet)
    for seed in range(amount(60, 3000)):
        placement = programs.random_placement(rng, WORKERS)
        schedule = rng.randrange(10**6)
        same_bits(run_once(seed, placement, schedule, quiet=[quiet]), alone(seed))


def test_a_value_that_is_left_on_the_caller_itself_is_fetched_over_a_boundary_too():
    seed = 7010732
    placement = {"p0": "w0", "p1": "w2", "p2": "w0", "p3": "w3"}
    same_bits(run_once(seed, placement, 947815), alone(seed))


@pytest.mark.parametrize(("most", "riding"), [(1, 1.0), (2, 1.0), (1, 0.0)])
def test_the_bits_do_not_tell_how_many_gradients_left_together(most, riding, monkeypatch):
    rng = random.Random(most)
    for seed in range(amount(100, 3000)):
        reference = alone(seed)
        placement = programs.random_placement(rng, WORKERS)
        with monkeypatch.context() as patch:
            patch.setattr("telegrad.distributed.passes.local_pass._MOST", most)
            patch.setattr("telegrad.distributed.passes.coordinator._RIDE_WITHIN", riding)
            same_bits(run_once(seed, placement, rng.randrange(10**6)), reference)


class AnyOrder(dict):
    """What is ready to run, of which any may be next."""

    rng = random.Random(1)

    def popitem(self):
        node = self.rng.choice(list(self))
        return node, self.pop(node)


def test_the_bits_do_not_tell_in_which_order_nodes_ran(monkeypatch):
    def task_in_any_order(*args, **options):
        task = OrderedTask(*args, **options)
        task.ready = AnyOrder()
        return task

    rng = random.Random(5)
    for seed in range(amount(60, 3000)):
        reference = alone(seed)
        placement = programs.random_placement(rng, WORKERS)
        with monkeypatch.context() as patch:
            patch.setattr(local_pass, "OrderedTask", task_in_any_order)
            same_bits(run_once(seed, placement, rng.randrange(10**6)), reference)


@pytest.mark.parametrize("seed", range(amount(100, 3000)))
def test_the_plain_local_program_gives_the_same_up_to_rounding(seed):
    plain = programs.plain_gradients(seed, programs.program_of(seed))
    placement = programs.random_placement(random.Random(seed), WORKERS)
    found = run_once(seed, placement, seed)
    # A leaf that the loss does not reach has no entry in either.
    assert found.keys() == plain.keys()
    for name in plain:
        np.testing.assert_allclose(found[name], plain[name], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(amount(40, 1000)))
def test_a_second_pass_over_a_retained_graph_adds_the_same_again(seed):
    placement = programs.random_placement(random.Random(seed), WORKERS)
    once = run_once(seed, placement, seed)
    twice = run_once(seed, placement, seed + 1, passes=2)
    assert once.keys() == twice.keys()
    for name in once:
        np.testing.assert_allclose(twice[name], 2 * once[name], rtol=1e-12)
