"""Random programs × placements × schedules, differentiated twice: the gradients of one process."""

import random
from collections import defaultdict
from itertools import count, islice

import numpy as np
import pytest
from tests.distributed import programs
from tests.distributed.passes.test_random_programs import SLOW, WORKERS, same_bits
from tests.distributed.soak import amount

import telegrad as tg
from telegrad.distributed import autograd
from telegrad.distributed.current import autograd_of
from telegrad.distributed.worker_autograd import attach_autograd
from telegrad.testing.simulation import Simulation


def penalty_of(gradients):
    """A scalar made of first derivatives; None if there is nothing to differentiate."""
    found = [g for g in gradients if g is not None and g.requires_grad]
    if not found:
        return None
    return sum(((g * g).sum() for g in found[1:]), (found[0] * found[0]).sum())


def program_of(seed):
    return programs.random_program(random.Random(seed), length=(4, 6), reach=4)


def plain(seed):
    """The same in one process."""
    steps, returned = program_of(seed)
    run = programs.Run(f"plain twice {seed}", dict.fromkeys(programs.PLACES, "here"), seed)
    inputs = programs.start_values(seed)
    try:
        outputs = programs.execute(run, "p0", steps, returned, inputs, programs.plain_caller(run))
    finally:
        del programs.RUNS[run.name]
    loss = programs.loss_of(outputs)
    if not loss.requires_grad:
        return {}
    first = tg.autograd.grad(loss, inputs, create_graph=True, allow_unused=True)
    penalty = penalty_of(first)
    if penalty is None:
        return {}
    penalty.backward()
    leaves = {**dict(enumerate(inputs)), **run.parameters}
    return {name: x.grad.numpy() for name, x in leaves.items() if x.grad is not None}


def distributed(seed, placement, schedule):
    """The same over workers."""
    steps, returned = program_of(seed)
    run = programs.Run(f"twice {seed} {schedule}", placement, seed)
    inputs = programs.start_values(seed)
    found = {}

    def main():
        worker = simulation.worker("w0")
        with autograd.context() as context_id:
            call = programs.caller(run, worker)
            outputs = programs.execute(run, "p0", steps, returned, inputs, call)
            loss = programs.loss_of(outputs)
            if not loss.requires_grad:
                return
            first = autograd.grad(context_id, loss, inputs, create_graph=True, allow_unused=True)
            penalty = penalty_of(first)
            if penalty is None:
                return
            autograd.backward(context_id, [penalty])
            here = autograd.get_gradients(context_id)
            found.update({i: here[x].numpy() for i, x in enumerate(inputs) if x in here})
            by_worker = defaultdict(list)
            for name in run.parameters:
                by_worker[placement[name[0]]].append(name)
            for name, places in by_worker.items():
                args = (run.name, context_id, places)
                found.update(worker.rpc_sync(name, programs.collect, args))

    try:
        with Simulation(
            WORKERS, seed=schedule, faults=SLOW, on_start=attach_autograd
        ) as simulation:
            simulation.run("w0", main)
            simulation.settle(5)
            for name in WORKERS:
                assert len(autograd_of(simulation.worker(name)).contexts) == 0
    finally:
        del programs.RUNS[run.name]
    return found


def telling(block, size):
    """Seeds of programs with several leaves at second order, and their gradients in one process."""
    found = ((seed, plain(seed)) for seed in count(10_000 * block))
    return islice(((seed, gradients) for seed, gradients in found if len(gradients) > 1), size)


@pytest.mark.parametrize("block", range(amount(4, 100)))
def test_a_gradient_penalty_equals_that_of_one_process_and_has_the_bits_of_one_worker(block):
    for seed, expected in telling(block, 25):
        placement = programs.random_placement(random.Random(seed), WORKERS)
        found = distributed(seed, placement, seed)
        # A leaf that only zeros reach may have an entry in one and not in the other.
        for name in {*expected, *found}:
            left, right = found.get(name, np.zeros(3)), expected.get(name, np.zeros(3))
            np.testing.assert_allclose(left, right, rtol=1e-8, atol=1e-8, err_msg=f"seed {seed}")
        same_bits(distributed(seed, placement, seed + 1), found)
        same_bits(distributed(seed, dict.fromkeys(programs.PLACES, "w0"), seed), found)
