"""Random programs of both kinds of tensors over workers: what PyTorch gives, on every schedule."""

import random
from contextlib import suppress

import numpy as np
import pytest
import torch
from tests.distributed import handlers
from tests.distributed.soak import amount
from tests.interop.torch.mixed_programs import (
    KINDS,
    PLACES,
    Here,
    There,
    loss_of,
    numbers,
    random_program,
    run_program,
)

import telegrad as tg
from telegrad.distributed import autograd
from telegrad.distributed.worker_autograd import attach_autograd
from telegrad.errors import GradientError
from telegrad.testing.simulation import Faults, Simulation

WORKERS = ("w0", "w1", "w2", "w3")
SLOW = Faults(shortest=0.0001, longest=0.05, lag=0.05)


# PyTorch's own ``backward`` warns of a recorded pass.
pytestmark = pytest.mark.filterwarnings("ignore:Using backward:UserWarning")


def weighted(x, weight):
    if isinstance(x, torch.Tensor):
        return torch.full(x.shape, weight, dtype=x.dtype)
    return tg.full(x.shape, weight).astype(x.dtype)


# Questions: fn(world, values, rng). The values are those of the program that require grad.


def several_roots(world, values, rng):
    """Of both kinds, some of them more than once."""
    roots = rng.choices(values, k=rng.randint(1, 4))
    weights = [weighted(root, rng.choice((0.0, -1.5, 0.5))) for root in roots]
    world.backward(roots, weights, create_graph=rng.random() < 0.5)
    return world.gradients()


def several_passes(world, values, rng):
    for _ in range(3):
        loss = loss_of(world, rng.choices(values, k=2), rng.choice(KINDS))
        world.backward([loss], retain_graph=True)
    world.backward([loss_of(world, values[-3:])], create_graph=rng.random() < 0.5)
    return world.gradients()


def chosen_inputs(world, values, rng):
    """Values in the middle and parameters of other workers; then what their gradients are of."""
    inputs = rng.choices(values, k=rng.randint(1, 3))
    for _ in range(rng.randint(0, 2)):
        inputs.append(world.parameter(rng.choice(PLACES), rng.choice(KINDS)))
    loss = loss_of(world, values[-3:], rng.choice(KINDS))
    gradients = world.grad(loss, inputs, create_graph=rng.random() < 0.6)
    found = {("input", i): numbers(g) for i, g in enumerate(gradients) if g is not None}
    further = [g for g in gradients if g is not None and g.requires_grad]
    if further:
        world.backward([loss_of(world, further)], retain_graph=True)
        found.update(world.gradients())
    return found


def chosen_leaves(world, values, rng):
    loss = loss_of(world, values[-3:], rng.choice(KINDS))
    leaves = rng.sample(world.inputs, rng.randint(1, 3))
    world.backward([loss], inputs=leaves, retain_graph=True)
    world.backward([loss], inputs=leaves[:1])
    return world.gradients()


def third_order(world, values, rng):
    found, loss = {}, loss_of(world, values[-3:], rng.choice(KINDS))
    for order in range(2):
        gradients = world.grad(loss, world.inputs, create_graph=True)
        found.update({(order, i): numbers(g) for i, g in enumerate(gradients) if g is not None})
        further = [g for g in gradients if g is not None and g.requires_grad]
        if not further:
            return found
        loss = loss_of(world, [g * g for g in further], rng.choice(KINDS))
    world.backward([loss])
    return found | world.gradients()


class Stumble(Exception):
    """What a hook raises."""


def second_tries(world, values, rng):
    """On workers some hooks raise at first: the graph was kept, and nothing else was."""
    failures = [rng.randrange(3) if world.is_mixed else 0]

    def stumble(gradient):
        if failures[0] > 0:
            failures[0] -= 1
            raise Stumble

    computed = [x for x in values if x.grad_fn is not None]
    for value in rng.sample(computed, min(2, len(computed))):
        value.register_hook(stumble)
    loss = loss_of(world, values[-3:], rng.choice(KINDS))
    while True:
        try:
            world.backward([loss], retain_graph=True)
        except Stumble:
            assert world.gradients() == {}
        else:
            return world.gradients()


def fast_or_smart(world, values, rng):
    loss = loss_of(world, values[-3:], rng.choice(KINDS))
    if world.is_mixed:
        with suppress(GradientError):
            world.backward([loss], retain_graph=True, mode="fast")
            return world.gradients()
        assert world.gradients() == {}
    world.backward([loss])
    return world.gradients()


def on_owners(world, values, rng):
    for _ in range(2):
        world.backward_of(rng.choice(PLACES), rng.choice(KINDS), rng.choices(values, k=2))
    return world.gradients()


def retained(world, values, rng):
    computed = [x for x in values if x.grad_fn is not None]
    chosen = rng.sample(computed, min(3, len(computed)))
    for value in chosen:
        value.retain_grad()
    world.backward([loss_of(world, values[-3:], rng.choice(KINDS))])
    kept = {("kept", i): numbers(x.grad) for i, x in enumerate(chosen) if x.grad is not None}
    return kept | world.gradients()


QUESTIONS = (
    several_roots,
    several_passes,
    chosen_inputs,
    chosen_leaves,
    third_order,
    second_tries,
    fast_or_smart,
    on_owners,
    retained,
)


def ask(question, world, program, seed):
    values = run_program(world, program, world.inputs)
    return question(world, [x for x in values if x.requires_grad], random.Random(seed))


def apart(question, program, seed, schedule):
    rng = random.Random(seed)
    placement = {place: "w0" if place == "p0" else rng.choice(WORKERS) for place in PLACES}
    with (
        There(f"{seed} {schedule}", seed, placement) as world,
        Simulation(WORKERS, seed=schedule, faults=SLOW, on_start=attach_autograd) as simulation,
    ):

        def main():
            with autograd.context():
                return ask(question, world, program, seed)

        found = simulation.run("w0", main)
        simulation.settle(100)
        for name in WORKERS:
            assert handlers.leftovers(simulation.worker(name)) == handlers.CLEAN, name
    return found


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_is_found_has_the_bits_of_any_schedule_and_the_numbers_of_pytorch(question):
    for seed in range(amount(3, 1000)):
        program = random_program(random.Random(seed))
        found = apart(question, program, seed, seed)
        again = apart(question, program, seed, seed + 1)
        assert {name: g.tobytes() for name, g in again.items()} == {
            name: g.tobytes() for name, g in found.items()
        }
        expected = ask(question, Here(seed), program, seed)
        if any(np.abs(x).max(initial=0.0) > 1e6 for x in expected.values()):
            # At that size the third order of one and the other are far apart.
            continue
        for name in {*found, *expected}:
            # A leaf that only zeros reach may have an entry in one and not in the other.
            left, right = (d.get(name, np.zeros(())) for d in (found, expected))
            scale = max(1.0, np.abs(right).max(initial=0.0))
            np.testing.assert_allclose(left, right, rtol=1e-6, atol=1e-6 * scale, err_msg=str(name))
