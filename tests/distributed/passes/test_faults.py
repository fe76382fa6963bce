"""Bad networks and dying workers: the exact result or a typed error, never a hang."""

import random
from dataclasses import replace

import pytest
from tests.distributed import programs
from tests.distributed.passes.test_random_programs import WORKERS, alone, same_bits
from tests.distributed.soak import amount

from telegrad.distributed.current import autograd_of
from telegrad.distributed.worker_autograd import attach_autograd
from telegrad.errors import ContextError, PeerError
from telegrad.rpc.options import Options
from telegrad.testing.simulation import Faults, Simulation

BAD = Faults(lag=0.01, breaks=0.004)
OPTIONS = Options(rpc_timeout=5.0, lost_after=10.0)
DEADLINE = 200.0
"""Virtual seconds within which everything must have ended."""


def run_badly(seed, schedule, faults, disturb=None, placement=None, quiet=()):
    """Runs a program under faults; the gradients or the error, once nothing is left."""
    placement = placement or programs.random_placement(random.Random(schedule), WORKERS)
    run = programs.Run(f"bad {seed} {schedule}", placement, seed)
    simulation = Simulation(
        WORKERS,
        seed=schedule,
        faults=faults,
        options={name: replace(OPTIONS, listen=name not in quiet) for name in WORKERS},
        on_start=attach_autograd,
    )
    try:
        with simulation:
            if disturb is not None:
                disturb(simulation)
            program = programs.program_of(seed)
            try:
                outcome = programs.distributed_gradients(simulation, "w0", run, seed, program)
            except (PeerError, ContextError) as error:
                outcome = error
            assert simulation.now < DEADLINE
            simulation.settle(100)
            for name in WORKERS:
                if simulation.hosts[name].is_alive:
                    left = autograd_of(simulation.worker(name)).contexts
                    assert len(left) == 0, f"{name} still has a context"
        return outcome
    finally:
        del programs.RUNS[run.name]


@pytest.mark.parametrize("quiet", [(), ("w1",), ("w1", "w2")], ids=str)
@pytest.mark.parametrize("block", range(amount(4, 200)))
def test_over_bad_networks_a_pass_is_exact_or_fails_with_a_typed_error(block, quiet):
    exact = 0
    for seed in range(25 * block, 25 * block + 25):
        outcome = run_badly(seed, seed, BAD, quiet=quiet)
        if isinstance(outcome, Exception):
            continue
        same_bits(outcome, alone(seed))
        exact += 1
    assert exact >= 5


def test_delays_alone_change_nothing():
    for seed in range(amount(60, 2000)):
        outcome = run_badly(seed, seed, Faults(longest=0.1, lag=0.1))
        assert not isinstance(outcome, Exception), outcome
        same_bits(outcome, alone(seed))


@pytest.mark.parametrize("point", ["before send", "during execution", "before answer"])
def test_a_worker_that_crashes_at_any_point_ends_the_pass_with_an_error_that_names_it(point):
    crashed = 0
    placement = {"p0": "w0", "p1": "w1", "p2": "w1", "p3": "w2"}
    for seed in range(amount(60, 2000)):

        def crash(simulation, seed=seed):
            simulation.crash_at("w1", point, random.Random(seed).randrange(1, 6))

        outcome = run_badly(seed, seed, Faults(), crash, placement)
        if isinstance(outcome, PeerError):
            crashed += 1
            assert "w1" in str(outcome) or any("w1" in note for note in outcome.__notes__)
        elif not isinstance(outcome, Exception):
            same_bits(outcome, alone(seed))
    assert crashed >= 5
