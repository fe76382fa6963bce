"""Random programs over workers of torch tensors of many dtypes, layouts and kinds.

As in ``mixed_programs``, a program runs in a world: *there*, on workers, or *here*, with PyTorch
alone. Parameters are strided, transposed, complex, bfloat16, 0-d or a table with sparse gradients;
values go out as views, expanded, lazily conjugated or negated, several times, or unused; calls are
made under ``no_grad``, in checkpoints and in hooks, and hooks run passes of their own.
"""

import torch
from tests.distributed import handlers

from telegrad.distributed import autograd
from telegrad.rpc.current import current_worker
from telegrad.rpc.wire.functions import expose

__all__ = ["PLACES", "Here", "There", "has_history", "loss_of", "random_program", "run_program"]

PLACES = ("p0", "p1", "p2")
RUNS = {}
"""The worlds of several workers, by name."""
NAMES = ("w", "t", "c", "h", "table", "dot")


def random_program(rng, depth=0, arguments=4, is_apart=None):
    """(steps, which values it returns) of a program that starts with `arguments` values.

    If it `is_apart`, each value is used once as far as possible, so that messages meet seldom.
    """
    is_apart = rng.random() < 0.5 if is_apart is None else is_apart
    steps, size, unused = [], 0, []

    def add(count):
        nonlocal size
        unused.extend(range(size, size + count))
        size += count

    def pick():
        if is_apart and unused:
            return unused.pop(rng.randrange(len(unused)))
        return rng.randrange(max(is_apart * arguments, size - 6), size)

    def compute(name, *operands):
        steps.append(("operation", name, *operands))
        add(2 if name in PAIRS else 1)

    add(arguments)
    if is_apart:
        for i in range(arguments):
            # What is sent as it came, or a leaf itself, is an end that messages have in common.
            compute("scaled", i, i)
        del unused[:arguments]
    for _ in range(rng.randint(1, 4) if depth else rng.randint(3, 9)):
        kind = rng.random()
        if kind < 0.2:
            steps.append(("parameter", rng.choice(NAMES)))
            add(1)
            if is_apart:
                compute("scaled", unused.pop(), 0)
        elif kind < 0.25:
            steps.append(("look up",))
            add(1)
        elif kind < 0.6 or depth == 3:
            compute(rng.choice(sorted(OPERATIONS)), pick(), pick())
        else:
            taken = [pick() for _ in range(rng.randint(1, 4))]
            program = random_program(rng, depth + 1, len(taken), is_apart)
            steps.append(("call", rng.choice(PLACES), taken, program, rng.random() < 0.2))
            add(len(program[1]))
    return steps, [pick() for _ in range(rng.randint(1, 4))]


def run_program(world, program, values, place="p0"):
    """Run the steps at a place; return all values that were at hand."""
    values = list(values)
    for kind, *rest in program[0]:
        if kind == "parameter":
            values.append(world.parameters[place, rest[0]])
        elif kind == "look up":
            table = world.parameters[place, "table"]
            found = torch.nn.functional.embedding(torch.tensor([0, 2, 2]), table, sparse=True)
            values.append(found)
        elif kind == "operation":
            name, i, j = rest
            found = OPERATIONS[name](world, values[i], values[j])
            values.extend(found if name in PAIRS else (found,))
        else:
            there, taken, inner, silent = rest
            with torch.set_grad_enabled(not silent):
                values.extend(world.call(there, inner, [values[i] for i in taken]))
    return values


def serve(world, place, program, values):
    found = run_program(world, program, values, place)
    return [found[i] for i in program[1]]


def fit(y, x):
    """The sum of y in x's dtype."""
    total = y.sum()
    if total.is_complex() and not x.is_complex():
        total = total.real + total.imag * 0.5
    return total.to(x.dtype)


def hook(scale, shift=0.0):
    """Return a hook; PyTorch shows hooks None where no gradient came."""
    return lambda g: None if g is None else g * scale + shift


class Same(torch.autograd.Function):
    """Hands one gradient to both inputs."""

    @staticmethod
    def forward(ctx, x, y):
        return x + y

    @staticmethod
    def backward(ctx, g):
        return g, g


class Absent(torch.autograd.Function):
    """Hands no gradient to its second input."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        return x * 2, y * 3

    @staticmethod
    def backward(ctx, g, h):
        return (None if g is None else g * 2), None


def written(world, x, y):
    z = x * 0.5
    if z.ndim:
        z[:1].mul_(fit(y, x) * 0.1 + 1)
        view = z.flatten()
        view.add_(0.25)
        return z, view
    return z.add_(fit(y, x) * 0.1), x * 2


def two_views(world, x, y):
    z = x * 0.7
    return z.reshape(-1), z.reshape(-1)[:2]


def hooked(world, x, y):
    z = x * 0.9
    if z.requires_grad:
        z.register_hook(hook(0.5, 0.1))
    return z


def checkpointed(world, x, y):
    return torch.utils.checkpoint.checkpoint(
        lambda a, b: (a * fit(b, a)).sin() * 0.5, x, y, use_reentrant=False
    )


def called_again(world, x, y):
    inner = [("parameter", "w"), ("operation", "sin", 0, 1)], [2]
    return torch.utils.checkpoint.checkpoint(
        lambda a: world.call("p1", inner, [a])[0] * 0.5, x, use_reentrant=False
    )


def island(world, x, y):
    with torch.no_grad():
        z = x * 2.0
    return z * x * 0.1, z


def inner_pass(world, x, y):
    """A hook that runs a pass of its own."""
    z = x * 0.5
    if z.requires_grad:
        a = torch.ones(3, dtype=torch.float64, requires_grad=True)
        program = [("parameter", "t"), ("operation", "product", 0, 1)], [2]
        inner = world.call("p2", program, [a * 1.0])[0].sum()

        def scale(g):
            (slope,) = world.grad(inner, [a])
            return None if g is None else g * (1 + slope.sum().to(g.dtype) * 0.01)

        z.register_hook(scale)
    return z


OPERATIONS = {
    "add": lambda w, x, y: x + fit(y, x) * 0.3,
    "product": lambda w, x, y: x * (fit(y, x) * 0.2 + 0.5),
    "elementwise": lambda w, x, y: x * y * 0.5 if x.shape == y.shape else x * x * 0.3,
    "sin": lambda w, x, y: x.sin(),
    "single": lambda w, x, y: x.to(torch.complex64 if x.is_complex() else torch.float32),
    "double": lambda w, x, y: x.to(torch.complex128 if x.is_complex() else torch.float64),
    "half": lambda w, x, y: x if x.is_complex() else x.to(torch.bfloat16),
    "complex": lambda w, x, y: (
        x if x.is_complex() or x.dtype is torch.bfloat16 else torch.complex(x, x * 0.5)
    ),
    "conjugate": lambda w, x, y: x.conj(),
    "imaginary": lambda w, x, y: x.conj().imag if x.is_complex() else -x,
    "real": lambda w, x, y: torch.view_as_real(x.resolve_conj()) if x.is_complex() else x.real,
    "expand": lambda w, x, y: x.unsqueeze(0).expand(2, *x.shape) if x.ndim < 3 else x,
    "total": lambda w, x, y: x.sum() * 0.3,
    "transpose": lambda w, x, y: x.t() if x.ndim == 2 else x.flip(0) if x.ndim else x * 1,
    "part": lambda w, x, y: x[..., :2] if x.ndim else x,
    "every other": lambda w, x, y: x.view(-1)[::2] if x.is_contiguous() else x,
    "none": lambda w, x, y: x.reshape(-1)[:0],
    "detach": lambda w, x, y: x.detach() * x,
    "written": written,
    "two views": two_views,
    "hooked": hooked,
    "checkpointed": checkpointed,
    "called again": called_again,
    "island": island,
    "inner pass": inner_pass,
    "same": lambda w, x, y: Same.apply(x, y) if x.shape == y.shape and x.dtype == y.dtype else x,
    "absent": lambda w, x, y: Absent.apply(x, y),
    "unbind": lambda w, x, y: x.unbind()[:2] if x.ndim and len(x) > 1 else (x * 1, x * 2),
    "scaled": lambda w, x, y: x * 1.5,
}
PAIRS = {"absent", "island", "two views", "unbind", "written"}
"""The operations with two results."""


def loss_of(values):
    total = torch.zeros((), dtype=torch.float64)
    for x in values:
        if x.dtype.is_floating_point or x.is_complex():
            total = total + (x * x.conj()).real.sum().double()
    return total


def tensors(seed):
    rng = torch.Generator().manual_seed(seed)

    def make(*shape, dtype=torch.float64):
        return (torch.rand(shape, dtype=torch.float64, generator=rng) + 0.3).to(dtype)

    parameters = {}
    for place in PLACES:
        parameters |= {
            (place, "w"): make(3).requires_grad_(),
            (place, "t"): make(3, 2).t().requires_grad_(),
            (place, "c"): torch.complex(make(3), make(3)).requires_grad_(),
            (place, "h"): make(3, dtype=torch.bfloat16).requires_grad_(),
            (place, "table"): make(4, 3).requires_grad_(),
            (place, "dot"): make(dtype=torch.float32).requires_grad_(),
        }

    parameters["p1", "w"].register_hook(hook(0.9))
    parameters["p2", "w"].register_hook(hook(1.1, 0.1))
    parameters["p1", "t"].register_post_accumulate_grad_hook(lambda leaf: None)
    inputs = [
        make(3).requires_grad_(),
        make(2, 3).requires_grad_(),
        torch.complex(make(2), make(2)).requires_grad_(),
        make(3),
    ]
    return parameters, inputs


def has_history(x):
    """Not so a view that was made in no-grad mode of what requires grad."""
    if not x.requires_grad or x.grad_fn is not None or not x._is_view():
        return x.requires_grad
    with torch.enable_grad():
        return x.view_as(x).grad_fn.next_functions[0][0] is not None


def renewed(values):
    """New tensors, one for each: as after a journey."""
    is_recorded = torch.is_grad_enabled()
    new = {id(x): (x if is_recorded else x.detach()).clone() for x in values}
    return [new[id(x)] for x in values]


class Here:
    """One process, PyTorch alone."""

    def __init__(self, seed):
        self.parameters, self.inputs = tensors(seed)

    def call(self, place, program, values):
        given = renewed(values)
        with torch.enable_grad():
            found = serve(self, place, program, given)
        return renewed(found)

    def backward(self, roots, weights=None, **options):
        torch.autograd.backward(roots, weights, **options)

    def grad(self, loss, inputs, **options):
        return [
            torch.autograd.grad(loss, x, allow_unused=True, retain_graph=True, **options)[0]
            for x in inputs
        ]

    def gradients(self):
        leaves = {**dict(enumerate(self.inputs)), **self.parameters}
        return {name: x.grad for name, x in leaves.items() if x.grad is not None}


class There:
    def __init__(self, name, seed, placement):
        self.name, self.placement = name, placement
        self.parameters, self.inputs = tensors(seed)

    def __enter__(self):
        RUNS[self.name] = self
        return self

    def __exit__(self, *_):
        del RUNS[self.name]

    def call(self, place, program, values):
        return current_worker().rpc_sync(
            self.placement[place], serve_at, (self.name, place, program, values)
        )

    @property
    def context_id(self):
        return autograd._current_context()._context_id()

    def backward(self, roots, weights=None, **options):
        autograd.backward(self.context_id, roots, grad_tensors=weights, **options)

    def grad(self, loss, inputs, **options):
        options.setdefault("retain_graph", True)
        return list(autograd.grad(self.context_id, loss, inputs, allow_unused=True, **options))

    def gradients(self):
        here = autograd.get_gradients(self.context_id)
        found = {i: here[x] for i, x in enumerate(self.inputs) if x in here}
        for worker in sorted(set(self.placement.values())):
            found.update(
                current_worker().rpc_sync(worker, gradients_at, (self.name, self.context_id))
            )
        return found


@expose
def serve_at(run, place, program, values):
    return serve(RUNS[run], place, program, values)


@expose
def gradients_at(run, context_id):
    """Return those of this worker's parameters; each is laid as PyTorch does, in its own memory."""
    if not handlers.has_context(context_id):
        return {}
    world, name = RUNS[run], current_worker().name
    found = autograd.get_gradients(context_id)
    mine = {key: x for key, x in world.parameters.items() if world.placement[key[0]] == name}
    assert all(x.grad is None for x in mine.values())
    tensors = [g._values() if g.is_sparse else g for g in (*found.values(), *mine.values())]
    memories = [each.untyped_storage().data_ptr() for each in tensors if each.numel()]
    assert len({*memories}) == len(memories)
    for key, x in mine.items():
        g = found.get(x)
        assert g is None or (g.dtype is x.dtype and (g.is_sparse or g.stride() == x.stride())), key
    return {key: found[x].detach() for key, x in mine.items() if x in found}
