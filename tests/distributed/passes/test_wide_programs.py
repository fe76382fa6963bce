"""Random programs of many kinds, asked in many ways: what one process gives, on every schedule.

A *question* runs the program in a world, differentiates it in some way, and gives all it found, by
name. Bits are compared between schedules, and between placements where the call boundaries are the
same; with the plain program in one process, the numbers are.
"""

import functools
import random
import warnings
from itertools import count, islice

import numpy as np
import pytest
from tests.distributed import handlers
from tests.distributed.passes.test_faults import BAD, OPTIONS
from tests.distributed.passes.test_random_programs import SLOW, WORKERS
from tests.distributed.soak import amount
from tests.distributed.wide_programs import (
    ABANDONED,
    STEPS,
    is_complex,
    random_program,
    run_program,
    uses_references,
)
from tests.distributed.worlds import PLACES, SHAPES, Here, There, numbers

import telegrad as tg
from telegrad.autograd import forward_ad
from telegrad.distributed import autograd
from telegrad.distributed.worker_autograd import attach_autograd
from telegrad.errors import ContextError, GraphFreedError, PeerError
from telegrad.rpc.current import current_worker
from telegrad.testing.simulation import Faults, Simulation

ALONE = dict.fromkeys(PLACES, "w0")


def loss_of(values):
    return sum((tg.real(x * tg.conj(x)).sum() for x in values), tg.tensor(0.0))


def weighted(root, weight):
    return tg.full(root.shape, weight).astype(root.dtype)


# Questions: fn(world, values, rng). The values are those of the program that require grad.


def several_roots(world, values, rng):
    """Some of them more than once, with weights that are zero, negative or left out."""
    roots = [rng.choice(values) for _ in range(rng.randint(1, 4))]
    weights = [weighted(root, rng.choice((0.0, -1.5, 0.5))) for root in roots]
    for i, root in enumerate(roots):
        if root.ndim == 0 and not is_complex(root) and rng.random() < 0.5:
            weights[i] = None
    world.backward(roots, weights)
    return world.gradients()


def chosen_inputs(world, values, rng):
    """Values in the middle of the program and parameters of other workers; then once more."""
    inputs = [rng.choice(values) for _ in range(rng.randint(1, 3))]
    for _ in range(rng.randint(0, 3)):
        inputs.append(world.parameter(rng.choice(PLACES), rng.randrange(len(SHAPES))))
    create_graph = rng.random() < 0.5
    first = world.grad(loss_of(values[-2:]), inputs, create_graph=create_graph)
    found = {f"input {i}": numbers(g) for i, g in enumerate(first) if g is not None}
    further = [g for g in first if g is not None and g.requires_grad]
    if further:
        world.backward([loss_of(further)])
        found.update(world.gradients())
    return found


def chosen_leaves(world, values, rng):
    loss = loss_of(values[-2:])
    inputs = rng.sample(world.inputs, rng.randint(1, 3))
    world.backward([loss], inputs=inputs, retain_graph=True)
    world.backward([loss], inputs=inputs[:1])
    return world.gradients()


def third_order(world, values, rng):
    found, y = {}, loss_of(values[-2:])
    for order in range(2):
        gradients = world.grad(y, world.inputs, create_graph=True)
        found.update({(order, i): numbers(g) for i, g in enumerate(gradients) if g is not None})
        further = [g for g in gradients if g is not None and g.requires_grad]
        if not further:
            return found
        y = loss_of([tg.sin(g) for g in further])
    world.backward([y])
    found.update(world.gradients())
    return found


def several_passes(world, values, rng):
    """Passes that keep the graph, one of them recorded, add up."""
    for _ in range(3):
        world.backward([loss_of([rng.choice(values)])], retain_graph=True)
    if rng.random() < 0.5:
        world.backward([loss_of(values[-2:])], create_graph=True)
    world.backward([loss_of(values)])
    return world.gradients()


class Stumble(Exception):
    """What a hook raises."""


def second_tries(world, values, rng):
    """On workers some hooks raise at first: the graph was kept, and nothing else was."""
    failures = [rng.randrange(3) if isinstance(world, There) else 0]

    def stumble(gradient):
        if failures[0] > 0:
            failures[0] -= 1
            raise Stumble

    computed = [x for x in values if x.grad_fn is not None]
    for value in rng.sample(computed, min(2, len(computed))):
        value.register_hook(stumble)
    while True:
        try:
            world.backward([loss_of(values[-3:])], retain_graph=True)
        except Stumble:
            assert world.gradients() == {}
        else:
            return world.gradients()


def tangents_of(name, value, outer, inner):
    """A value, its tangents at both levels, and the mixed one."""
    found = {name: numbers(value)}
    for level in (outer, inner):
        tangent = forward_ad.unpack_dual(value, level=level).tangent
        if tangent is not None:
            found[name, level] = numbers(tangent)
            mixed = forward_ad.unpack_dual(tangent, level=outer).tangent
            if level == inner and mixed is not None:
                found[name, "mixed"] = numbers(mixed)
    return found


def forward_twice_and_over_reverse(world, program, rng):
    """Two levels through the calls, and through the gradients of the result."""
    found, create_graph = {}, rng.random() < 0.5
    with forward_ad.dual_level() as outer, forward_ad.dual_level() as inner:
        duals = [
            forward_ad.make_dual(x, weighted(x, 0.3 + i), level=outer)
            for i, x in enumerate(world.inputs)
        ]
        duals[0] = forward_ad.make_dual(duals[0], weighted(duals[0], 1.0), level=inner)
        duals[2] = forward_ad.make_dual(duals[2], weighted(duals[2], 0.2), level=inner)
        values = run_program(world, program, duals)
        for i, value in enumerate(values):
            found.update(tangents_of(f"value {i}", value, outer, inner))
        loss = loss_of([x for x in values if x.requires_grad][-2:])
        for i, g in enumerate(world.grad(loss, duals, create_graph=create_graph)):
            if g is not None:
                found.update(tangents_of(f"gradient {i}", g, outer, inner))
    return found


QUESTIONS = (
    several_roots,
    chosen_inputs,
    chosen_leaves,
    third_order,
    several_passes,
    second_tries,
    forward_twice_and_over_reverse,
)


def ask(question, world, program, seed):
    rng = random.Random(seed)
    if question is forward_twice_and_over_reverse:
        return question(world, program, rng)
    values = run_program(world, program, world.inputs)
    return question(world, [x for x in values if x.requires_grad], rng)


# Running them.


@functools.cache
def telling(size, kinds=tuple(STEPS)):
    """Seeds of programs that parameters of at least three places have a part in."""

    def is_telling(seed):
        program = random_program(random.Random(seed), kinds)
        gradients = ask(several_passes, Here(seed), program, seed)
        return len({name[0] for name in gradients if isinstance(name, tuple)}) > 2

    return list(islice(filter(is_telling, count()), size))


def random_placement(seed):
    rng = random.Random(seed)
    return {place: "w0" if place == "p0" else rng.choice(WORKERS) for place in PLACES}


def assert_clean(simulation, seconds=100):
    simulation.settle(seconds)
    for name in simulation.hosts:
        if simulation.hosts[name].is_alive:
            assert handlers.leftovers(simulation.worker(name)) == handlers.CLEAN, name


def apart(
    question,
    program,
    seed,
    placement,
    schedule,
    faults=SLOW,
    options=None,
    disturb=None,
    workers=WORKERS,
):
    """What is found on workers; or the typed error, if the question ended in one."""
    simulation = Simulation(
        workers, seed=schedule, faults=faults, options=options, on_start=attach_autograd
    )
    with There(f"{seed} {schedule}", seed, placement) as world, simulation:
        if disturb is not None:
            disturb(simulation)

        def main():
            with autograd.context():
                return ask(question, world, program, seed)

        try:
            found = simulation.run("w0", main)
        except (PeerError, ContextError) as error:
            if options is None:
                raise
            found = error
        assert_clean(simulation)
    return found


def same_bits(left, right):
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert value.dtype == right[name].dtype, name
        assert value.shape == right[name].shape, name
        assert value.tobytes() == right[name].tobytes(), name


def same_numbers(found, expected):
    if any(np.abs(x).max(initial=0.0) > 1e5 for x in expected.values()):
        # At that size the third order of one and the other are far apart.
        return
    for name in {*found, *expected}:
        # A leaf that only zeros reach may have an entry in one and not in the other.
        left, right = (d.get(name, np.zeros(())) for d in (found, expected))
        scale = max(1.0, np.abs(right).max(initial=0.0))
        # Some of the values are of single precision.
        np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-3 * scale, err_msg=str(name))


@pytest.fixture(autouse=True)
def _large_numbers_are_all_right():
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_is_found_has_the_bits_of_any_schedule_and_the_numbers_of_one_process(question):
    for seed in telling(amount(6, 1000)):
        program, placement = random_program(random.Random(seed), STEPS), random_placement(seed)
        found = apart(question, program, seed, placement, seed)
        same_bits(apart(question, program, seed, placement, seed + 1), found)
        # A reference's owner has the value itself: elsewhere it is one call more.
        if not uses_references(program) and question is not chosen_inputs:
            same_bits(apart(question, program, seed, ALONE, 0), found)
        same_numbers(found, ask(question, Here(seed), program, seed))


def test_calls_that_were_given_up_or_forgotten_change_nothing_while_they_go_on():
    for seed in telling(amount(10, 1000), (*STEPS, *ABANDONED)):
        question = random.Random(seed).choice(QUESTIONS)
        program = random_program(random.Random(seed), (*STEPS, *ABANDONED))
        found = apart(question, program, seed, random_placement(seed), seed)
        same_numbers(found, ask(question, Here(seed), program, seed))


def freed_or_not(world, values, rng):
    """Passes over parts of the graph, until one of them meets what another freed."""
    found = {}
    for number in range(4):
        root, keep = rng.choice(values), rng.random() < 0.5
        try:
            world.backward([root], [weighted(root, 1.0)], retain_graph=keep)
        except GraphFreedError:
            if isinstance(world, There):
                # All or nothing, on all workers.
                same_bits(world.gradients(), {k: g for k, g in found.items() if k != "passes"})
            break
        found = world.gradients() | {"passes": np.array(number + 1)}
    return found


def test_passes_over_parts_of_a_graph_are_exact_until_one_meets_what_was_freed():
    for seed in telling(amount(10, 1000)):
        program = random_program(random.Random(seed), STEPS)
        placement = random_placement(seed)
        found = apart(freed_or_not, program, seed, placement, seed)
        same_bits(apart(freed_or_not, program, seed, placement, seed + 1), found)
        expected = ask(freed_or_not, Here(seed), program, seed)
        # What has no saved values runs again in one process; what was sent is freed all the same.
        assert found.get("passes", 0) <= expected.get("passes", 0)
        if found.get("passes") == expected.get("passes"):
            same_numbers(found, expected)


TOGETHER = {}


def run_one(name):
    return TOGETHER[name]()


def all_at_once(program, seed, placement, questions):
    """Each question in a context of its own, all at the same time, over the same parameters."""
    found = {}
    with (
        There(f"{seed} first", seed, placement) as first,
        Simulation(WORKERS, seed=seed, faults=SLOW, on_start=attach_autograd) as simulation,
    ):

        def main(number):
            name = f"{seed} {number}"
            with There(name, seed, placement, shared=first) as world, autograd.context():
                found[number] = ask(questions[number], world, program, seed)

        def start_all():
            worker = current_worker()
            TOGETHER.update({i: lambda i=i: main(i) for i in range(len(questions))})
            for call in [worker.rpc_async("w0", run_one, (i,)) for i in TOGETHER]:
                call.wait()

        try:
            simulation.run("w0", start_all)
        finally:
            TOGETHER.clear()
        assert_clean(simulation)
    return found


def test_questions_in_contexts_at_the_same_time_have_the_bits_of_one_after_the_other():
    for seed in telling(amount(3, 1000)):
        questions = random.Random(seed).sample(QUESTIONS, 4)
        program, placement = random_program(random.Random(seed), STEPS), random_placement(seed)
        found = all_at_once(program, seed, placement, questions)
        for number, question in enumerate(questions):
            same_bits(found[number], apart(question, program, seed, placement, seed))


def crash_at_random(seed):
    rng = random.Random(seed)
    point = rng.choice(("before send", "during execution", "before answer"))
    occurrence = rng.randrange(1, 20)
    return lambda simulation: simulation.crash_at("w1", point, occurrence)


@pytest.mark.parametrize("kind", ["a bad network", "a crash"])
def test_under_faults_all_that_was_asked_is_exact_or_a_typed_error(kind):
    exact = 0
    for seed in telling(amount(10, 1000)):
        question = random.Random(seed).choice(QUESTIONS)
        program, placement = random_program(random.Random(seed), STEPS), random_placement(seed)
        faults, disturb = (
            (BAD, None) if kind == "a bad network" else (Faults(), crash_at_random(seed))
        )
        outcome = apart(question, program, seed, placement, seed, faults, OPTIONS, disturb)
        if not isinstance(outcome, Exception):
            same_bits(apart(question, program, seed, placement, seed), outcome)
            exact += 1
    assert exact >= 3
