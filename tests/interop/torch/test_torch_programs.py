"""Random programs of all kinds of torch tensors: what PyTorch gives, on every schedule."""

import random

import pytest
import torch
from tests.distributed import handlers
from tests.distributed.simulated import SLOW
from tests.distributed.soak import amount
from tests.interop.torch.torch_programs import (
    PLACES,
    Here,
    There,
    has_history,
    loss_of,
    random_program,
    run_program,
)

from telegrad.distributed import autograd
from telegrad.distributed.worker_autograd import attach_autograd
from telegrad.testing.simulation import Simulation

WORKERS = ("w0", "w1", "w2")
# PyTorch's own ``backward`` warns of a recorded pass.
pytestmark = pytest.mark.filterwarnings("ignore:Using backward:UserWarning")


# Questions: fn(world, values, rng). The values are those of the program with a history.


def several_roots(world, values, rng):
    roots = rng.choices(values, k=rng.randint(1, 4))
    weights = [torch.full(x.shape, rng.choice((0.5, -1.0)), dtype=x.dtype) for x in roots]
    world.backward(roots, weights)
    return world.gradients()


def several_passes(world, values, rng):
    for _ in range(2):
        is_recorded = rng.random() < 0.3
        loss = loss_of(rng.choices(values, k=2))
        world.backward([loss], retain_graph=True, create_graph=is_recorded)
    world.backward([loss_of(values[-3:])])
    return world.gradients()


def third_order(world, values, rng):
    inputs, further, found = rng.choices(values, k=rng.randint(1, 3)), values[-3:], {}
    for order in range(2):
        gradients = world.grad(loss_of(further), inputs, create_graph=order > 0)
        found.update({(order, i): g for i, g in enumerate(gradients) if g is not None})
        further = [g for g in gradients if g is not None and g.requires_grad and not g.is_sparse]
        if not further:
            return found
    world.backward([loss_of(further)])
    return found | world.gradients()


def second_tries(world, values, rng):
    """On workers some hooks raise at first: the graph was kept, and nothing else was."""
    failures = [rng.randrange(3) if isinstance(world, There) else 0]

    def stumble(gradient):
        if failures[0]:
            failures[0] -= 1
            raise LookupError

    computed = [x for x in values if x.grad_fn is not None]
    for value in rng.sample(computed, min(2, len(computed))):
        value.register_hook(stumble)
    loss = loss_of(values[-3:])
    while True:
        try:
            world.backward([loss], retain_graph=True)
        except LookupError:
            assert world.gradients() == {}
        else:
            return world.gradients()


def retained(world, values, rng):
    # Without hooks: what those make of zeros is retained as well.
    computed = [x for x in values if x.grad_fn is not None and not x._backward_hooks]
    chosen = rng.sample(computed, min(3, len(computed)))
    for value in chosen:
        value.retain_grad()
    world.backward([loss_of(values[-3:])])
    return {i: x.grad for i, x in enumerate(chosen, 10) if x.grad is not None} | world.gradients()


def ask(question, world, program, seed):
    values = run_program(world, program, world.inputs)
    found = question(world, [x for x in values if has_history(x)], random.Random(seed))
    return {name: (g.to_dense() if g.is_sparse else g).detach() for name, g in found.items()}


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


@pytest.mark.parametrize(
    "question", [several_roots, several_passes, third_order, second_tries, retained]
)
def test_what_is_found_has_the_bits_of_any_schedule_and_the_numbers_of_pytorch(question):
    for seed in range(amount(20, 1000)):
        program = random_program(random.Random(seed))
        found = apart(question, program, seed, seed)
        again = apart(question, program, seed, seed + 1)
        torch.testing.assert_close(again, found, rtol=0, atol=0, equal_nan=True)
        expected = ask(question, Here(seed), program, seed)
        for name in {*found, *expected}:
            # A leaf that only zeros reach may have an entry in one and not in the other.
            some = expected.get(name, found.get(name))
            left, right = (d.get(name, torch.zeros_like(some)) for d in (found, expected))
            # bfloat16 has three digits.
            scale = max(1.0, float(right.abs().max())) if right.numel() else 1.0
            torch.testing.assert_close(left, right, rtol=0, atol=0.03 * scale, msg=str(name))
