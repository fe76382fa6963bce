"""Random programs of many kinds, asked in further ways than those of ``test_wide_programs.py``.

Passes that would rather be told of calls that were not used, that a reference starts on its owner,
that begin as plain ``loss.backward()``, whose hooks wait too long, that run at the same time on
threads of one user, and that whoever asked for them gave up; over nine workers, and over workers
that stop, die or lose sight of each other.
"""

import random
import re
from functools import partial

import pytest
from tests.distributed.passes.test_faults import BAD, OPTIONS
from tests.distributed.passes.test_wide_programs import (
    QUESTIONS,
    WORKERS,
    apart,
    ask,
    loss_of,
    random_placement,
    same_bits,
    same_numbers,
    several_passes,
    telling,
)
from tests.distributed.soak import amount
from tests.distributed.wide_programs import (
    ABANDONED,
    STEPS,
    TOGETHER,
    go_on_for_long,
    random_program,
)
from tests.distributed.worlds import MANY_PLACES, PLACES, Here, There, numbers

import telegrad as tg
from telegrad.distributed import autograd
from telegrad.distributed.current import autograd_of
from telegrad.errors import CallTimeout, GradientError, ProtocolViolation
from telegrad.rpc.current import current_worker
from telegrad.rpc.wire.functions import expose

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
ALL_KINDS = (*STEPS, *ABANDONED, *TOGETHER)


def fast_or_smart(world, values, rng):
    """Told of calls that were not used, if any, and then not: all told of were not used."""
    loss = loss_of(values[-3:])
    if isinstance(world, Here):
        world.backward([loss])
        return world.gradients()
    try:
        world.backward([loss], retain_graph=True, mode="fast")
    except GradientError as error:
        told = {int(number) for number in re.findall(r"message (\d+) from", str(error))}
        assert world.gradients() == {}
        world.backward([loss])
        assert told <= set(unused_everywhere(world))
        assert told
        return world.gradients()
    fast = world.gradients()
    world.backward([loss])
    same_bits(world.gradients(), {name: g + g for name, g in fast.items()})
    return fast


def unused_everywhere(world):
    """The messages that a pass which kept no graph did not come to."""
    workers, asked = set(world.placement.values()), (world.context_id,)
    return [n for name in workers for n in current_worker().rpc_sync(name, unused_here, asked)]


@expose
def unused_here(context_id):
    return list(autograd_of(current_worker()).contexts.get(context_id).sends)


def on_owners(world, values, rng):
    """Passes that references to losses start, where those are."""
    for _ in range(2):
        used = rng.sample(values, min(2, len(values)))
        reference = world.remote(rng.choice(PLACES), loss_at, used)
        for _ in range(2):
            world.backward_of(reference)
            # Waits for the end of the pass everywhere: the next one may be another worker's.
            found = world.gradients()
    return found


def loss_at(world, place, values):
    return loss_of(values) + (world.parameters[place, 1] ** 2).sum()


def plainly(world, values, rng):
    """``loss.backward()``: the context gets all gradients, and ``.grad`` those of its worker."""
    loss = loss_of(values[-3:])
    middle = rng.choice(values)
    (slope,) = tg.autograd.grad(loss, [middle], retain_graph=True, allow_unused=True)
    loss.backward(create_graph=rng.random() < 0.5, retain_graph=True)
    found = world.gradients()
    if not found:
        # It came to nothing of another worker, and so was a pass of this process alone.
        return {}
    if isinstance(world, There):
        leaves = {**dict(enumerate(world.inputs)), **world.parameters}
        here = {name: numbers(x.grad) for name, x in leaves.items() if x.grad is not None}
        same_bits(here, {name: g for name, g in found.items() if world.is_here(name)})
    loss.backward(inputs=world.inputs[:1])
    found = world.gradients()
    return found if slope is None else {**found, "slope": numbers(slope)}


def too_late(world, values, rng):
    """Hooks whose calls take too long, once or twice: the pass can be tried again."""
    left = [rng.randint(1, 2) if isinstance(world, There) else 0]
    place = rng.choice(PLACES[1:])

    def ask_in_time(gradient):
        if left[0] > 0:
            left[0] -= 1
            world.call_within(0.05, place, go_on_for_long, gradient, gradient)

    computed = [x for x in values if x.grad_fn is not None]
    for value in rng.sample(computed, min(2, len(computed))):
        value.register_hook(ask_in_time)
    loss, create_graph = loss_of(values[-3:]), rng.random() < 0.3
    while True:
        try:
            world.backward([loss], retain_graph=True, create_graph=create_graph)
        except CallTimeout:
            assert world.gradients() == {}
        else:
            return world.gradients()


def at_the_same_time(world, values, rng):
    """Passes of one context on threads of one user."""
    losses = [loss_of(rng.choices(values, k=2)) for _ in range(4)]
    middle = rng.choice(values)
    create_graph = rng.random() < 0.5
    *_, (slope,) = world.together(
        *(
            lambda loss=loss: world.backward([loss], retain_graph=True, create_graph=create_graph)
            for loss in losses
        ),
        lambda: world.grad(losses[0], [middle], retain_graph=True),
    )
    found = world.gradients()
    return found if slope is None else {**found, "slope": numbers(slope)}


@pytest.mark.parametrize("question", [fast_or_smart, on_owners, plainly, too_late])
def test_what_is_found_has_the_bits_of_any_schedule_and_the_numbers_of_one_process(question):
    for seed in telling(amount(4, 1000)):
        program, placement = random_program(random.Random(seed), STEPS), random_placement(seed)
        found = apart(question, program, seed, placement, seed)
        same_bits(apart(question, program, seed, placement, seed + 1), found)
        if found:
            same_numbers(found, ask(question, Here(seed), program, seed))


@pytest.mark.parametrize("question", [several_passes, at_the_same_time])
def test_threads_that_share_a_context_give_the_numbers_of_one(question):
    for seed in telling(amount(4, 1000), ALL_KINDS):
        program = random_program(random.Random(seed), ALL_KINDS)
        found = apart(question, program, seed, random_placement(seed), seed)
        same_numbers(found, ask(question, Here(seed), program, seed))


@pytest.mark.parametrize("question", [several_passes, fast_or_smart, on_owners])
def test_nine_workers_give_the_numbers_of_one_process(question):
    workers = [f"w{i}" for i in range(9)]
    placement = dict(zip(MANY_PLACES, workers))
    for seed in range(amount(2, 1000)):
        program = random_program(random.Random(seed), STEPS, places=MANY_PLACES)
        found = apart(question, program, seed, placement, seed, workers=workers)
        same_numbers(found, ask(question, Here(seed), program, seed))


def disturb_at_random(seed):
    """Workers that stop for a while, or die, and cuts between two of them, that last or not."""

    def disturb(simulation):
        rng = random.Random(seed)
        for _ in range(rng.randint(1, 3)):
            one, other = rng.sample(WORKERS, 2)
            when, seconds = rng.uniform(0.0, 2.0), rng.choice((0.5, 5.0, 15.0))
            action = rng.choice(
                (
                    partial(simulation.pause, one, seconds),
                    partial(simulation.cut, one, other),
                    partial(simulation.crash, other if one == "w0" else one),
                )
            )
            simulation.at(when, None, "disturb", action)
            simulation.at(when + seconds, None, "heal", partial(simulation.heal, one, other))

    return disturb


def test_through_stops_cuts_and_deaths_all_that_was_asked_is_exact_or_a_typed_error():
    exact = 0
    for seed in telling(amount(10, 1000), ALL_KINDS):
        question = random.Random(seed).choice((*QUESTIONS, fast_or_smart, on_owners, too_late))
        program, placement = random_program(random.Random(seed), ALL_KINDS), random_placement(seed)
        disturb = disturb_at_random(seed)
        try:
            outcome = apart(question, program, seed, placement, seed, BAD, OPTIONS, disturb)
        except GradientError as error:
            # The asking for a value that is kept there timed out, but the value was used.
            outcome = error
        if isinstance(outcome, Exception):
            assert not isinstance(outcome, ProtocolViolation)
            continue
        same_numbers(outcome, ask(question, Here(seed), program, seed))
        exact += 1
    assert exact >= 2


def first_given_up(world, values, rng):
    """A pass that another worker runs, of which the asker hears no more; then one of its own."""
    first, second = (loss_of(rng.choices(values, k=2)) for _ in range(2))
    place, patience = rng.choice(PLACES), rng.choice((0.02, 0.05, 0.1, 0.2))
    if isinstance(world, Here):
        world.backward([second], retain_graph=True)
        found = {("second", name): g for name, g in world.gradients().items()}
        world.backward([first])
        return found | {("both", name): g for name, g in world.gradients().items()}
    try:
        world.call_within(patience, place, backward_at, first)
    except CallTimeout:
        which = "either"
    else:
        which = "both"
    world.backward([second], retain_graph=True)
    # Until the other one has ended, too.
    current_worker().host.simulation.sleep(2.0)
    return {(which, name): g for name, g in world.gradients().items()}


def backward_at(world, place, loss):
    autograd.backward(world.context_id, [loss], retain_graph=True)


def test_a_pass_that_was_given_up_counts_everywhere_or_nowhere():
    for seed in telling(amount(6, 1000)):
        program = random_program(random.Random(seed), STEPS)
        found = apart(first_given_up, program, seed, random_placement(seed), seed)
        expected = ask(first_given_up, Here(seed), program, seed)
        which = {key[0] for key in found}
        assert any(
            close(found, expected, one) for one in ("second", "both") if which <= {"either", one}
        )


def close(found, expected, which):
    found = {name: g for (_, name), g in found.items()}
    expected = {name: g for (one, name), g in expected.items() if one == which}
    try:
        same_numbers(found, expected)
    except AssertionError:
        return False
    return True
