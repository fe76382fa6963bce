"""What the workers of the tests with torch tensors run; importable, so that it goes by name.

Parameters belong to a worker: several workers may live in one process.
"""

import weakref

import torch

import telegrad as tg
from telegrad.distributed import autograd, rpc
from telegrad.torch import from_torch, to_torch

_PARAMETERS = weakref.WeakKeyDictionary()


def _held():
    return _PARAMETERS.setdefault(rpc.current_worker(), {})


def parameter(name="w", value=(2.0, 3.0)):
    """This worker's torch parameter of that name, made when first asked for."""
    held = _held()
    if name not in held:
        held[name] = torch.tensor(value, dtype=torch.float64, requires_grad=True)
    return held[name]


def own_parameter(name="t", value=(5.0, 7.0)):
    """The same of telegrad's own kind."""
    held = _held()
    if name not in held:
        held[name] = tg.tensor(list(value), dtype=tg.float64, requires_grad=True)
    return held[name]


def gradients(context_id):
    """The gradients of all parameters of this worker in a context, as numbers."""
    found = autograd.get_gradients(context_id)
    held = list(_held().items())
    return {name: found[p].tolist() for name, p in held if p in found}


def untouched():
    """Whether no parameter of this worker has a ``.grad``."""
    return all(p.grad is None for p in _held().values() if p.is_leaf)


def same(x):
    return x


def scale(x):
    return x * parameter()


def scale_own(x):
    return x * own_parameter()


def scale_both(x, y):
    """A torch tensor and one of telegrad's, both scaled by parameters of their kinds."""
    return x * parameter(), y * own_parameter()


def scale_over(x):
    """Over to telegrad's graph and back, on this worker."""
    return to_torch(from_torch(x * parameter()) * own_parameter())


def forward_to(names, x):
    y = x * parameter()
    return rpc.rpc_sync(names[0], forward_to, (names[1:], y)) if names else y


def add_in_place(x):
    x += 1
    return x * parameter()


def add_to_parameter():
    with torch.no_grad():
        parameter().add_(1)


def hang_on_parameter():
    parameter().register_hook(lambda gradient: gradient)


def run_step(kind, x, y):
    """One step of a random program."""
    w = parameter()
    if kind == 0:
        return torch.sin(x * w) + y
    if kind == 1:
        return x * y * 0.5
    if kind == 2:
        return (x + y).tanh() * w
    if kind == 3:
        return to_torch(from_torch(x) * own_parameter()) * 0.1 + y
    return x.exp() * 0.1 + (y * w).cos()


class Model(torch.nn.Module):
    """Two layers in double precision."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.first = torch.nn.Linear(3, 4, dtype=torch.float64)
        self.second = torch.nn.Linear(4, 1, dtype=torch.float64)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


def scale_by_shared(x):
    """By a value that is computed once, so that many passes go through its one node."""
    held = _held()
    if "shared" not in held:
        held["shared"] = parameter().exp()
    return x * held["shared"]


def long_chain(x, length):
    for _ in range(length):
        x = x * 1.0
    return x * parameter()


def step_while_passing():
    """Has an optimiser step this worker's parameter as soon as its gradient is complete."""
    optimizer = torch.optim.SGD([parameter()], lr=0.1)

    def step(_):
        optimizer.step()
        optimizer.zero_grad()

    parameter().register_post_accumulate_grad_hook(step)


def square_of(reference):
    """Of the value of a reference to this worker."""
    return reference.local_value().square()


def scale_after_freeing(x):
    """Gives a value away whose graph a pass of PyTorch's own has freed."""
    middle = parameter().exp()
    middle.sum().backward()
    parameter().grad = None
    return x * middle


def scale_by_copy(x):
    return x * parameter().clone()
