"""Random programs over workers, and what they must give.

A program is a tree of steps: arithmetic on values at hand, parameters of the place where it runs,
and calls of further programs at other places, whose results may or may not be used. A *placement*
says which worker each place is on; with every place on one worker, each call is made to oneself,
and the call boundaries are kept. The plain run calls the programs as functions.
"""

import random
from collections import defaultdict

import numpy as np
from tests.distributed import handlers

import telegrad as tg
from telegrad.distributed import autograd
from telegrad.rpc.current import current_worker
from telegrad.rpc.references.rref import RRef
from telegrad.rpc.wire.functions import expose

PLACES = ("p0", "p1", "p2", "p3")
RUNS = {}
"""For each run, by name: its placement and its parameters by (place, index)."""


class Run:
    """One execution: where places are, and the parameters, the same for each run of a program."""

    def __init__(self, name, placement, seed):
        self.name = name
        self.placement = placement
        rng = np.random.default_rng(seed)
        self.parameters = {
            (place, i): tg.tensor(rng.standard_normal(3), requires_grad=True)
            for place in PLACES
            for i in range(2)
        }
        RUNS[name] = self


def random_program(rng, depth=0, arguments=2, length=(2, 5), reach=100):
    """Steps of a program that starts with `arguments` values; and which values it returns.

    `length`: how many steps. `reach`: how old the values may be that a step takes; with a short one
    more of a program has a part in what it returns.
    """
    steps, size = [], arguments

    def pick():
        return rng.randrange(max(0, size - reach), size)

    for _ in range(rng.randint(*length)):
        kind = rng.random()
        if kind < 0.3:
            steps.append(("parameter", rng.randrange(2)))
            size += 1
        elif kind < 0.65 or depth == 3:
            operation = rng.choice((*OPERATIONS, *OPERATIONS, *FURTHER))
            steps.append((operation, pick(), pick()))
            size += 1
        else:
            taken = [pick() for _ in range(rng.randint(1, 2))]
            program, returned = random_program(rng, depth + 1, len(taken), length, reach)
            place = rng.choice(PLACES)
            how = rng.choice(("now", "now", "later", "there"))
            steps.append(("call", place, taken, program, returned, how))
            size += len(returned)
    returned = [pick() for _ in range(rng.randint(1, 2))]
    return steps, returned


def execute(run, place, steps, returned, values, call):
    """Runs the steps; `call(place, steps, returned, values, how)` makes the calls."""
    values = list(values)
    pending = []
    for step in steps:
        name = step[0]
        if name == "parameter":
            values.append(run.parameters[place, step[1]])
        elif name == "call":
            _, there, taken, program, outputs, how = step
            given = [resolve(values, pending, i) for i in taken]
            answer = call(there, program, outputs, given, how)
            if how != "now":
                # A place for each result now; to read one is to wait for it.
                pending.append((len(values), answer, len(outputs)))
                values.extend([None] * len(outputs))
            else:
                values.extend(answer)
        else:
            x, y = (resolve(values, pending, i) for i in step[1:])
            values.append(OPERATIONS[name](x, y) if name in OPERATIONS else FURTHER[name](x, y))
    return [resolve(values, pending, i) for i in returned]


class Weighed(tg.autograd.Function):
    """x y², with a derivative of its own."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y * y, 2.0 * g * x * y


def written(x, y):
    """A value that is written to in place, and a view of it from before."""
    z = x * 1.0
    first = z[:1]
    z *= y
    z[1] = y[2] * first[0]
    return z


def hooked(x, y):
    """A value whose hook gives it another gradient."""
    z = x * y
    z.register_hook(lambda g: 0.5 * g)
    return z


OPERATIONS = {
    "multiply": tg.multiply,
    "add": tg.add,
    "subtract": tg.subtract,
    "sin": lambda x, y: tg.sin(x),
    "square": lambda x, y: tg.square(x),
}
FURTHER = {
    "rolled": lambda x, y: tg.concat([x[1:], y.reshape((3, 1))[0]]),
    "written": written,
    "hooked": hooked,
    "own": Weighed.apply,
    "again": lambda x, y: tg.autograd.checkpoint(lambda x, y: tg.sin(x) * y, x, y),
}


def resolve(values, pending, index):
    if values[index] is None:
        for start, answer, size in pending:
            if start <= index < start + size:
                value = fetched(answer) if isinstance(answer, RRef) else answer.wait()
                values[start : start + size] = value
    return values[index]


def fetched(reference):
    """The value of a reference, by a call: on the owner to_here would be none, but the value."""
    if not reference.is_owner():
        return reference.to_here()
    return current_worker().rpc_sync(reference.owner(), RRef.local_value, (reference,))


@expose
def serve(run_name, place, steps, returned, values):
    """The handler: a program at a place of this worker."""
    run = RUNS[run_name]
    worker = current_worker()
    assert run.placement[place] == worker.name
    return execute(run, place, steps, returned, values, caller(run, worker))


def caller(run, worker):
    def call(place, steps, returned, values, how):
        args = (run.name, place, steps, returned, values)
        to = run.placement[place]
        if how == "later":
            return worker.rpc_async(to, serve, args)
        if how == "there":
            return worker.remote(to, serve, args)
        return worker.rpc_sync(to, serve, args)

    return call


def plain_caller(run):
    class Done:
        def __init__(self, value):
            self.value = value

        def wait(self):
            return self.value

    def call(place, steps, returned, values, how):
        answer = execute(run, place, steps, returned, values, call)
        return answer if how == "now" else Done(answer)

    return call


def loss_of(outputs):
    total = outputs[0].sum()
    for output in outputs[1:]:
        total = total + (output * output).sum()
    return total


def start_values(seed):
    rng = np.random.default_rng(seed + 1)
    return [tg.tensor(rng.standard_normal(3), requires_grad=True) for _ in range(2)]


def plain_gradients(seed, program, chosen=None):
    """The same program as one function of one process, differentiated locally.

    `chosen`: with respect to those of its start values alone.
    """
    steps, returned = program
    run = Run(f"plain {seed}", dict.fromkeys(PLACES, "here"), seed)
    inputs = start_values(seed)
    outputs = execute(run, "p0", steps, returned, inputs, plain_caller(run))
    leaves = {**dict(enumerate(inputs)), **run.parameters}
    loss = loss_of(outputs)
    if not loss.requires_grad:
        return {}
    if chosen is not None:
        found = tg.autograd.grad(loss, [inputs[i] for i in chosen], allow_unused=True)
        return {i: g.numpy() for i, g in zip(chosen, found) if g is not None}
    loss.backward()
    return {name: leaf.grad.numpy() for name, leaf in leaves.items() if leaf.grad is not None}


def distributed_gradients(
    simulation, root, run, seed, program, passes=1, mode="smart", chosen=None
):
    """Runs the program from `root` over the run's placement; gradients of all leaves, by name.

    `chosen`: which of the start values the pass is for; None for all leaves.
    """
    steps, returned = program
    worker = simulation.worker(root)
    inputs = start_values(seed)
    found = {}

    def main():
        with autograd.context() as context_id:
            outputs = execute(run, "p0", steps, returned, inputs, caller(run, worker))
            loss = loss_of(outputs)
            if not loss.requires_grad:
                return
            wanted = None if chosen is None else [inputs[i] for i in chosen]
            for i in range(passes):
                autograd.backward(context_id, [loss], i + 1 < passes, mode=mode, inputs=wanted)
            here = autograd.get_gradients(context_id)
            found.update({i: here[x].numpy() for i, x in enumerate(inputs) if x in here})
            by_worker = defaultdict(list)
            for name in run.parameters:
                by_worker[run.placement[name[0]]].append(name)
            for name, places in by_worker.items():
                args = (run.name, context_id, places)
                found.update(worker.rpc_sync(name, collect, args))

    simulation.run(root, main)
    return found


def collect(run_name, context_id, names):
    """The gradients of this worker's parameters in a context."""
    parameters = RUNS[run_name].parameters
    if not handlers.has_context(context_id):
        return {}
    gradients = autograd.get_gradients(context_id)
    return {
        name: np.array(gradients[parameters[name]].numpy())
        for name in map(tuple, names)
        if parameters[name] in gradients
    }


def random_placement(rng, workers):
    placement = {place: rng.choice(workers) for place in PLACES}
    placement["p0"] = workers[0]
    return placement


def program_of(seed):
    return random_program(random.Random(seed))
