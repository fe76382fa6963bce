"""Random programs of many kinds of steps.

Beside what ``programs.py`` has: values of several shapes and dtypes, tensors in containers and
objects, references that are handed on to a third worker, calls that fail, calls in hooks, in rules,
in checkpoints and under ``no_grad``. A program runs in a world (``worlds.py``), which makes the
calls.
"""

import numpy as np
from tests.distributed.dresses import DRESSES, undress
from tests.distributed.worlds import PLACES, RUNS, SHAPES

import telegrad as tg
from telegrad.autograd import Function, checkpoint
from telegrad.rpc.current import current_worker

__all__ = [
    "ABANDONED",
    "STEPS",
    "TOGETHER",
    "is_complex",
    "random_program",
    "run_program",
    "uses_references",
]

HOW = ("now", "now", "later", "there", "handed on", "held", "by proxy", "fails")
REFERENCES = ("there", "handed on", "held", "by proxy")


def random_program(rng, kinds, depth=0, arguments=3, places=PLACES):
    """(steps, which values it returns) of a program that starts with `arguments` values.

    `kinds`: which of `STEPS`, `ABANDONED` and `TOGETHER` it may have.
    """
    steps, size = [], arguments

    def pick():
        # Rather a new one: more of the program then has a part in what it returns.
        return rng.randrange(max(0, size - 4), size)

    for _ in range(rng.randint(3, 5) if depth else rng.randint(5, 8)):
        kind, i, j = rng.random(), pick(), pick()
        if kind < 0.2:
            steps.append(("parameter", rng.randrange(len(SHAPES))))
        elif kind < 0.5:
            steps.append(("operation", rng.choice(sorted(OPERATIONS)), i, j))
        elif kind < 0.65 or depth == 3:
            steps.append(("own", rng.choice(sorted(kinds)), i, j, rng.choice(places)))
        else:
            taken = [pick() for _ in range(rng.randint(1, 3))]
            program = random_program(rng, kinds, depth + 1, len(taken), places)
            how, dress = rng.choice(HOW), rng.choice(sorted(DRESSES))
            at = rng.choice(places), rng.choice(places)
            steps.append(("call", how, dress, at, taken, program))
            size += len(program[1]) - 1
        size += 1
    return steps, [pick() for _ in range(rng.randint(1, 3))]


def uses_references(program):
    """Whether it does: on its owner a reference gives the value itself, and makes no boundary."""
    calls = [step for step in program[0] if step[0] == "call"]
    return any(step[1] in REFERENCES or uses_references(step[5]) for step in calls)


def run_program(world, program, values, place="p0"):
    """Runs the steps at a place; gives all values that were at hand."""
    values = list(values)

    def at(i):
        if isinstance(values[i], Pending):
            first = values.index(values[i])
            found = values[i].get()
            values[first : first + len(found)] = found
        return values[i]

    for kind, *rest in program[0]:
        if kind == "parameter":
            values.append(world.parameters[place, rest[0]])
        elif kind == "operation":
            name, i, j = rest
            values.append(OPERATIONS[name](at(i), at(j)))
        elif kind == "own":
            name, i, j, there = rest
            values.append({**STEPS, **ABANDONED, **TOGETHER}[name](world, there, at(i), at(j)))
        else:
            how, dress, places, taken, inner = rest
            given = [at(i) for i in taken]
            values.extend(call(world, how, DRESSES[dress](given), places, inner))
    return [at(i) for i in range(len(values))]


class Pending:
    """In the place of results that nobody has asked for yet."""

    def __init__(self, get):
        self.get = get


def call(world, how, packed, places, inner):
    there, third = places
    if how == "now":
        return undress(world.call(there, serve, inner, packed))
    if how == "later":
        future = world.call_later(there, serve, inner, packed)
        return [Pending(lambda: undress(future.wait()))] * len(inner[1])
    if how == "there":
        reference = world.remote(there, serve, inner, packed)
        # New values: the owner gets its own, a parameter among them, and others a copy.
        fetch = lambda: [x * 1.0 for x in undress(reference.to_here())]
        return [Pending(fetch)] * len(inner[1])
    if how == "held":
        reference = world.remote(there, Holder.make, packed)
        return undress(world.use_holder(reference, there, inner))
    if how == "by proxy":
        reference = world.remote(there, Holder.make, packed)
        return undress(world.ask_holder(reference, there, inner))
    if how == "handed on":
        reference = world.remote(there, serve, inner, packed)
        mine = undress(reference.to_here())
        theirs = world.call(third, fetch_and_halve, reference)
        again = world.call(there, fetch_and_halve, reference)
        return [x + y + z for x, y, z in zip(mine, theirs, again)]
    try:
        world.call(there, compute_and_fail, inner, packed)
    except Unlucky:
        return [undress(packed)[0] * 1.5] * len(inner[1])
    raise AssertionError("a call that should have failed did not")


# What runs at places: each is given its world and place.


class Unlucky(Exception):
    """What a handler raises."""


def serve(world, place, program, packed):
    values = run_program(world, program, undress(packed), place)
    return DRESSES["dict"]([values[i] for i in program[1]])


def fetch_and_halve(world, place, reference):
    """Uses the value of a reference, which may be this worker's own."""
    return [0.5 * x for x in undress(reference.to_here())]


def compute_and_fail(world, place, program, packed):
    serve(world, place, program, packed)
    raise Unlucky("after all that")


class Holder:
    """An object on some worker, with tensors that came with a call."""

    def __init__(self, packed):
        self.packed = packed

    @staticmethod
    def make(world, place, packed):
        return Holder(packed)

    def use(self, world, place, program):
        return serve(world, place, program, self.packed)

    def use_for(self, run, place, program):
        return self.use(RUNS[run], place, program)


def weigh(world, place, x):
    """Keeps the shape and dtype of what comes, as a gradient must."""
    w = world.parameters[place, 0].sum() * 0.4
    return (x * w).astype(x.dtype)


def use_many(world, place, x, i, mask, empty):
    y = tg.where(mask, x, x * i.astype(x.dtype))
    return y, i + 1, tg.logical_not(mask), empty * 2.0, x.sum() * 0.5


def add_up(world, place, nested, again):
    x, rest = nested
    total = x * rest["a"] * 0.5 + rest["b"][0] + rest["b"][1] * again * 0.5
    return total, total


def bounce(world, place, x, y, rest):
    x = x * world.parameters[place, 1] + y * 0.5
    return world.call(rest[0], bounce, x, y, rest[1:]) if rest else x


def slope_at(world, place, x, y):
    """A derivative that the program itself takes, through calls, and goes on with."""
    x = x * world.parameters[place, 1]
    z = world.call("p2", bounce, x, y, ["p3", place])
    (slope,) = tg.autograd.grad(tg.sin(tg.real(z)).sum(), x, create_graph=True)
    return slope * 0.3 + x


def checkpoint_and_call_back(world, place, x, y):
    z = world.parameters[place, 0].sum() * 0.3
    return checkpoint(lambda x, y: world.call("p0", weigh, x * z) * y, x, y)


def go_on_for_long(world, place, x, y):
    """Makes calls of its own, some of them after its caller has given up."""
    z = world.call("p1", weigh, x)
    current_worker().host.simulation.sleep(0.3)
    later = world.call_later("p3", weigh, z * y)
    world.call("p1", bounce, z, y, ["p2", "p3"])
    return later.wait()


# The kinds of steps.


def hooked(world, place, x, y):
    """A value whose hook has another worker change its gradient."""
    z = x * y * 0.5
    if z.requires_grad:
        z.register_hook(lambda g: world.call(place, weigh, g))
    return z


class Distant(Function):
    """A function whose value and derivatives are computed on another worker."""

    @staticmethod
    def forward(ctx, x, world, place):
        ctx.world, ctx.place = world, place
        return world.call(place, weigh, x)

    @staticmethod
    def backward(ctx, g):
        return ctx.world.call(ctx.place, weigh, g), None, None

    @staticmethod
    def jvp(ctx, t, *_):
        return ctx.world.call(ctx.place, weigh, t)


def constants(world, place, x, y):
    """Integers, booleans and an empty tensor beside those that have a gradient."""
    i = tg.asarray(np.array(3))
    mask = tg.asarray(np.arange(x.size).reshape(x.shape) % 2 == 0)
    empty = tg.reshape(x, (-1,))[:0]
    z, i, mask, empty, total = world.call(place, use_many, x, i, mask, empty)
    return tg.where(mask, z, z * i.astype(z.dtype)) * 0.3 + empty.sum() + total


def island(world, place, x, y):
    """A call under no_grad: its result is a constant."""
    with tg.no_grad():
        z = world.call(place, weigh, x)
    assert not z.requires_grad
    return z * y + x.detach()


def twice(world, place, x, y):
    """The same tensor in several places of a message."""
    a, b = world.call(place, add_up, [x, {"a": x, "b": (x, y)}], again=y)
    return a + b


def fan_out(world, place, x, y):
    futures = [world.call_later(PLACES[k % 4], weigh, x * (k + 1.0)) for k in range(8)]
    return sum((future.wait() for future in futures[::-1]), y) * 0.1


def dropped(world, place, x, y):
    """Results that nobody uses."""
    world.call(place, weigh, x)
    world.call(place, weigh, world.call(place, weigh, y))
    return x * 1.0


def checkpointed(world, place, x, y):
    return checkpoint(lambda x, y: world.call(place, weigh, x) * y * 0.5, x, y)


def checkpointed_in_depth(world, place, x, y):
    """Checkpoints in checkpoints, here and on the worker that is called, which calls back."""

    def inner(x, y):
        return tg.sin(tg.real(world.call(place, checkpoint_and_call_back, x, y))) * x

    def outer(x, y):
        z = checkpoint(inner, x, y) * y
        if z.requires_grad:
            z.register_hook(lambda g: g * 0.5)
        return tg.cos(tg.real(z)) * 0.5

    return checkpoint(outer, x, y)


def given_up(world, place, x, y):
    world.give_up(place, go_on_for_long, x, y)
    return x * y * 0.5


def forgotten(world, place, x, y):
    world.forget(place, go_on_for_long, x, y)
    return x * y * 0.5


def together(world, place, x, y):
    """Threads of this worker that share its context: their calls have no order."""
    tasks = (
        lambda: world.call(place, bounce, x, y, ["p1", "p2"]),
        lambda: world.call(place, weigh, world.call("p1", weigh, x)),
        lambda: checkpointed(world, "p2", x, y),
        lambda: fan_out(world, place, y, x),
    )
    return sum(world.together(*tasks), y) * 0.2


def insisted(world, place, x, y):
    return world.insist(place, bounce, x, y, [place, "p1"])


STEPS = {
    "hooked": hooked,
    "distant": lambda world, place, x, y: Distant.apply(x, world, place) + y,
    "checkpointed": checkpointed,
    "checkpointed in depth": checkpointed_in_depth,
    "constants": constants,
    "island": island,
    "twice": twice,
    "back and forth": lambda world, place, x, y: world.call(place, bounce, x, y, [place, "p1"] * 4),
    "fan out": fan_out,
    "slope": lambda world, place, x, y: world.call(place, slope_at, x, y),
    "dropped": dropped,
}
ABANDONED = {"given up": given_up, "forgotten": forgotten, "insisted": insisted}
"""Calls that go on while their caller does something else: what they record depends on the moment,
though not what comes of it."""

TOGETHER = {"together": together}
"""What has no defined order: the numbers are those of one process, up to rounding."""

OPERATIONS = {
    "multiply": lambda x, y: x * y * 0.5,
    "add": lambda x, y: (x + y) * 0.5,
    "sin": lambda x, y: tg.sin(tg.real(x)),
    "square": lambda x, y: x * x * 0.3,
    "reverse": lambda x, y: x[..., ::-1] if x.ndim else x,
    "total": lambda x, y: x.sum() * 0.2,
    "narrow": lambda x, y: x.astype(tg.complex64 if is_complex(x) else tg.float32),
    "turn": lambda x, y: x.astype(tg.complex128) * (0.6 + 0.8j),
    "real": lambda x, y: tg.real(x),
    "wide": lambda x, y: tg.broadcast_to(x, (2, 3)) * 1.0,
}


def is_complex(x):
    return x.dtype in (tg.complex64, tg.complex128)
