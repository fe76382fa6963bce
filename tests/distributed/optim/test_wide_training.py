"""Several trainers over the same parameters: random programs, passes and steps at the same time.

Which numbers a trainer sees depends on the moment. But each pass must be that of its own forward
run, whose tangents tell, and no step of another may be lost.
"""

import random
from collections import defaultdict

import numpy as np
import pytest
from tests.distributed.passes.test_wide_programs import (
    SLOW,
    WORKERS,
    assert_clean,
    loss_of,
    random_placement,
    weighted,
)
from tests.distributed.soak import amount
from tests.distributed.wide_programs import STEPS, random_program, run_program
from tests.distributed.worlds import SHAPES, There, numbers

from telegrad import optim
from telegrad.autograd import forward_ad
from telegrad.distributed import autograd
from telegrad.distributed.optim import DistributedOptimizer
from telegrad.distributed.worker_autograd import attach_autograd
from telegrad.testing.simulation import Simulation

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
# A pass of these computes with what it finds: parameters that may have been stepped since. What
# has no history on an island has tangents all the same.
LEFT_OUT = ("hooked", "distant", "checkpointed", "checkpointed in depth", "island")
KINDS = [kind for kind in STEPS if kind not in LEFT_OUT]
RATE = 0.01


def train(world, program, steps):
    """Steps a trainer's way; gives the gradients of each step."""
    places = sorted(world.placement)
    references = [world.parameter(place, i) for place in places for i in range(len(SHAPES))]
    optimizer = DistributedOptimizer(optim.SGD, references, lr=RATE)
    found = []
    for _ in range(steps):
        with autograd.context() as context_id:
            loss, tangent = loss_with_tangent(world, program)
            autograd.backward(context_id, [loss])
            if not np.isfinite(optimizer.clip_grad_norm_(context_id, 10.0)):
                continue
            gradients = world.gradients()
            along = sum((gradients[i] * (0.3 + i)).sum() for i in range(3) if i in gradients)
            scale = max([1.0, *(np.abs(gradients[i]).max() for i in range(3) if i in gradients)])
            np.testing.assert_allclose(along, tangent, rtol=1e-3, atol=1e-3 * scale)
            optimizer.step(context_id)
            found.append(gradients)
    return found


def loss_with_tangent(world, program):
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(x, weighted(x, 0.3 + i)) for i, x in enumerate(world.inputs)]
        values = [x for x in run_program(world, program, duals) if x.requires_grad]
        loss, tangent = forward_ad.unpack_dual(loss_of(values[-3:]) * 0.1)
    return loss, 0.0 if tangent is None else numbers(tangent)


def several_trainers(seed):
    rng = random.Random(seed)
    placement = random_placement(seed)
    with (
        There(f"{seed}", seed, placement) as shared,
        Simulation(WORKERS, seed=seed, faults=SLOW, on_start=attach_autograd) as simulation,
    ):
        before = {name: numbers(x) for name, x in shared.parameters.items()}

        def trainer(name):
            program = random_program(random.Random(rng.random()), KINDS)
            placed = {**placement, "p0": name}

            def main():
                with There(f"{seed} {name}", seed, placed, shared=shared) as world:
                    return train(world, program, 3)

            return main

        results = simulation.run_all({name: trainer(name) for name in WORKERS[:3]})
        assert_clean(simulation)
    sums = defaultdict(float)
    for gradients in [each for found in results.values() for each in found]:
        for name, gradient in gradients.items():
            sums[name] = sums[name] + gradient
    for name, x in shared.parameters.items():
        expected = before[name] - RATE * sums[name]
        np.testing.assert_allclose(numbers(x), expected, rtol=1e-9, atol=1e-9, err_msg=str(name))
    return len(sums)


def test_each_pass_is_that_of_what_its_trainer_saw_and_no_step_is_lost():
    assert sum(several_trainers(seed) for seed in range(amount(2, 1000))) > 0
