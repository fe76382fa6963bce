"""Random programs whose values are torch tensors and telegrad's, in one graph, over workers.

A program runs in a world: *there*, on workers, or *here*, in one process and with PyTorch alone,
where going over from one kind to the other is a plain copy. Values have three elements, or none of
a dimension.
"""

import numpy as np
import torch
from tests.distributed import handlers

import telegrad as tg
from telegrad.distributed import autograd
from telegrad.rpc.current import current_worker
from telegrad.rpc.wire.functions import expose
from telegrad.torch import from_torch, to_torch

__all__ = ["PLACES", "Here", "There", "loss_of", "numbers", "random_program", "run_program"]

PLACES = ("p0", "p1", "p2", "p3")
KINDS = ("torch", "own")
RUNS = {}
"""The worlds of several workers, by name."""
HOW = ("now", "now", "later", "there")


def random_program(rng, depth=0, arguments=3):
    """(steps, which values it returns) of a program that starts with `arguments` values."""
    steps, size = [], arguments

    def pick():
        return rng.randrange(max(0, size - 5), size)

    for _ in range(rng.randint(2, 5) if depth else rng.randint(5, 9)):
        kind = rng.random()
        if kind < 0.15:
            steps.append(("parameter", rng.choice(KINDS)))
        elif kind < 0.65 or depth == 3:
            steps.append(("operation", rng.choice(sorted(OPERATIONS)), pick(), pick()))
        else:
            taken = [pick() for _ in range(rng.randint(1, 3))]
            program = random_program(rng, depth + 1, len(taken))
            writes = rng.random() < 0.2
            steps.append(("call", rng.choice(HOW), rng.choice(PLACES), taken, program, writes))
            size += len(program[1]) - 1
        size += 1
    return steps, [pick() for _ in range(rng.randint(1, 3))]


def run_program(world, program, values, place="p0"):
    """Runs the steps at a place; gives all values that were at hand."""
    values = list(values)
    for kind, *rest in program[0]:
        if kind == "parameter":
            values.append(world.parameters[place, rest[0]])
        elif kind == "operation":
            name, i, j = rest
            values.append(OPERATIONS[name](world, values[i], values[j]))
        else:
            how, there, taken, inner, writes = rest
            given = [values[i] for i in taken]
            values.extend(world.call(how, there, inner, given, writes))
    return values


def serve(world, place, program, values, writes):
    values = list(values)
    if writes and isinstance(values[0], torch.Tensor):
        # What arrived is this worker's own, to be written to.
        values[0].mul_(1.5)
    elif writes:
        first, written = values[0], values[0] * 1.5
        values = [written if x is first else x for x in values]
    found = run_program(world, program, values, place)
    return [found[i] for i in program[1]]


def as_torch(x):
    return x if isinstance(x, torch.Tensor) else to_torch(x)


def alike(x, y):
    """Both as the kind of the first."""
    if isinstance(x, torch.Tensor):
        return x, as_torch(y)
    return x, from_torch(y) if isinstance(y, torch.Tensor) else y


def over(world, x, y):
    if not world.is_mixed:
        return x * 1.0
    return from_torch(x) if isinstance(x, torch.Tensor) else to_torch(x)


def written(world, x, y):
    """A copy that is written to, whole and by a view."""
    z = as_torch(x).clone() * 1.0
    if z.ndim == 0:
        return z.mul_(0.5)
    z[1:].mul_(as_torch(y).sum() * 0.3)
    view = z[:2]
    view.add_(z[1:] * 0.5)
    return z


def seen(world, x, y):
    """A view of what is written to afterwards."""
    z = as_torch(x) * 1.0
    view = z.unsqueeze(0)
    z.mul_(as_torch(y).sum() * 0.4)
    return view.squeeze(0) if z.ndim == 0 else view[0].flip(0)


def pieces(world, x, y):
    x = as_torch(x)
    if x.ndim == 0:
        return x * 0.5
    first, second, third = (x * 0.7).unbind()
    return torch.stack([third * first, second, as_torch(y).sum() * 0.2])


def hooked(world, x, y):
    x, y = alike(x, y)
    z = x * y * 0.5
    if z.requires_grad:
        z.register_hook(lambda g: g * 0.5)
    return z


def unevenly_hooked(world, x, y):
    x, y = alike(x, y)
    z = x * 0.8
    if z.requires_grad:
        z.register_hook(lambda g: g * 1.1 + 0.25)
    return z + y.sum() * 0.1


class Bent(torch.autograd.Function):
    """Two results, with a derivative of its own."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y * 0.5, x + y

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        return g * y * 0.5 + h, g * x * 0.5 + h


def bent(world, x, y):
    x = as_torch(x)
    first, second = Bent.apply(x, as_torch(y).sum().expand(x.shape))
    return first * 0.5 + second.sin()


def checkpointed(world, x, y):
    x, y = as_torch(x), as_torch(y)
    return torch.utils.checkpoint.checkpoint(
        lambda x, y: (x * y.sum()).sin() * x, x, y, use_reentrant=False
    )


def calling_again(world, x, y):
    """A checkpoint of PyTorch's that makes a call, in the backward pass once more."""
    inner = [("parameter", "torch"), ("operation", "multiply", 0, 1), ("operation", "sin", 2, 2)]
    return torch.utils.checkpoint.checkpoint(
        lambda x: world.call("now", "p1", (inner, [3]), [x], False)[0] * x.sum(),
        as_torch(x),
        use_reentrant=False,
    )


def island(world, x, y):
    x, y = alike(x, y)
    with torch.no_grad(), tg.no_grad():
        z = x * 2.0
    return z * x * 0.2 + y.sum() * 0.1


def add(world, x, y):
    x, y = alike(x, y)
    return (x + y) * 0.5


def multiply(world, x, y):
    x, y = alike(x, y)
    return x * y * 0.5


def sin(world, x, y):
    return torch.sin(x) if isinstance(x, torch.Tensor) else tg.sin(x)


OPERATIONS = {
    "add": add,
    "multiply": multiply,
    "sin": sin,
    "square": lambda world, x, y: x * x * 0.3,
    "total": lambda world, x, y: x.sum() * 0.3,
    "over": over,
    "over again": over,
    "written": written,
    "seen": seen,
    "pieces": pieces,
    "hooked": hooked,
    "unevenly hooked": unevenly_hooked,
    "bent": bent,
    "checkpointed": checkpointed,
    "calling again": calling_again,
    "island": island,
}


def numbers(x):
    return np.array(x.detach().numpy())


def loss_of(world, values, kind="torch"):
    """A scalar of the given kind."""
    total = sum((as_torch(x) ** 2).sum() for x in values)
    return from_torch(total) if kind == "own" and world.is_mixed else total


def renewed(values):
    """New tensors, one for each: as after a journey."""
    new = {id(x): x * 1.0 for x in values}
    return [new[id(x)] for x in values]


def _tensors(seed, mixed):
    rng = np.random.default_rng(seed)

    def make(kind, shape=(3,)):
        array = rng.uniform(0.3, 1.2, shape)
        if kind == "own" and mixed:
            return tg.tensor(array, requires_grad=True)
        return torch.tensor(array, requires_grad=True)

    parameters = {(place, kind): make(kind) for place in PLACES for kind in KINDS}
    for kind in KINDS:
        parameters["p1", kind].register_hook(lambda g: g * 0.9)
        parameters["p2", kind].register_hook(lambda g: g * 1.2 + 0.1)
    return parameters, [make("torch"), make("own"), make("torch", ())]


class Here:
    """One process, PyTorch alone."""

    is_mixed = False

    def __init__(self, seed):
        self.parameters, self.inputs = _tensors(seed, False)

    def call(self, how, place, program, values, writes):
        return renewed(serve(self, place, program, renewed(values), writes))

    def parameter(self, place, kind):
        """What stands for a parameter among the inputs of `grad`."""
        return self.parameters[place, kind]

    def backward(self, roots, weights=None, **options):
        torch.autograd.backward(roots, weights, **options)

    def grad(self, loss, inputs, **options):
        # One at a time: asked for several, PyTorch leaves out hooks of those on the way.
        return [
            torch.autograd.grad(loss, x, allow_unused=True, retain_graph=True, **options)[0]
            for x in inputs
        ]

    def backward_of(self, place, kind, values):
        self.backward([loss_of(self, values, kind)], retain_graph=True)

    def gradients(self):
        leaves = {**dict(enumerate(self.inputs)), **self.parameters}
        return {name: numbers(x.grad) for name, x in leaves.items() if x.grad is not None}


class There:
    """Workers, in a context that is open; `placement` says which each place is on."""

    is_mixed = True

    def __init__(self, name, seed, placement):
        self.name, self.placement = name, placement
        self.parameters, self.inputs = _tensors(seed, True)

    def __enter__(self):
        RUNS[self.name] = self
        return self

    def __exit__(self, *_):
        del RUNS[self.name]

    def call(self, how, place, program, values, writes):
        worker, to = current_worker(), self.placement[place]
        args = (self.name, place, program, values, writes)
        if how == "now":
            return worker.rpc_sync(to, serve_at, args)
        if how == "later":
            return worker.rpc_async(to, serve_at, args).wait()
        # New values: the owner gets its own.
        return renewed(worker.remote(to, serve_at, args).to_here())

    def parameter(self, place, kind):
        asked = (self.name, place, kind)
        return current_worker().remote(self.placement[place], parameter_at, asked)

    @property
    def context_id(self):
        return autograd._current_context()._context_id()

    def backward(self, roots, weights=None, **options):
        autograd.backward(self.context_id, roots, grad_tensors=weights, **options)

    def grad(self, loss, inputs, **options):
        options.setdefault("retain_graph", True)
        return autograd.grad(self.context_id, loss, inputs, allow_unused=True, **options)

    def backward_of(self, place, kind, values):
        """A pass that the reference to a loss starts, on the worker where that is."""
        args = (self.name, kind, values)
        reference = current_worker().remote(self.placement[place], loss_at, args)
        reference.backward(self.context_id, retain_graph=True)

    def gradients(self):
        here = autograd.get_gradients(self.context_id)
        found = {i: numbers(here[x]) for i, x in enumerate(self.inputs) if x in here}
        for worker in sorted(set(self.placement.values())):
            asked = (self.name, self.context_id)
            found.update(current_worker().rpc_sync(worker, gradients_at, asked))
        return found


@expose
def serve_at(run, place, program, values, writes):
    return serve(RUNS[run], place, program, values, writes)


@expose
def parameter_at(run, place, kind):
    return RUNS[run].parameters[place, kind]


@expose
def loss_at(run, kind, values):
    return loss_of(RUNS[run], values, kind)


@expose
def gradients_at(run, context_id):
    if not handlers.has_context(context_id):
        return {}
    world, name = RUNS[run], current_worker().name
    found = autograd.get_gradients(context_id)
    return {
        key: numbers(found[x])
        for key, x in world.parameters.items()
        if world.placement[key[0]] == name and x in found
    }
