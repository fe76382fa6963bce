"""What the workers of the autograd tests run; importable, so that it goes by name.

Parameters belong to a worker: several workers may live in one process.
"""

import os
import signal
import threading
import weakref

import numpy as np

import telegrad as tg
from telegrad.distributed import autograd, rpc
from telegrad.distributed.current import autograd_of

_PARAMETERS = weakref.WeakKeyDictionary()
_MAKING = threading.Lock()
GATE = threading.Event()


def parameter(name="w", value=(2.0, 3.0)):
    """This worker's parameter of that name, made when first asked for."""
    with _MAKING:  # calls that come together share it
        held = _PARAMETERS.setdefault(rpc.current_worker(), {})
        if name not in held:
            held[name] = tg.tensor(np.array(value), requires_grad=True)
        return held[name]


def gradient(context_id, name="w"):
    """The gradient of this worker's parameter in a context, as numbers; None if it has none."""
    found = autograd.get_gradients(context_id).get(parameter(name))
    return None if found is None else found.numpy().tolist()


def has_context(context_id):
    """Whether this worker has a context."""
    return autograd_of(rpc.current_worker()).contexts.find(context_id) is not None


def leftovers(worker=None):
    """What distributed autograd still holds on a worker, this one if none is given."""
    here = autograd_of(worker or rpc.current_worker())
    contexts = here.contexts.all()
    return {
        "contexts": len(contexts),
        "sends": sum(len(each.sends) for each in contexts),
        "recvs": sum(len(each.recvs) for each in contexts),
        "passes": sum(len(each.passes) for each in contexts),
        "levels": len(here.levels),
    }


CLEAN = {"contexts": 0, "sends": 0, "recvs": 0, "passes": 0, "levels": 0}


# Computing.


def noisy(x):
    return x * tg.rand(x.shape, dtype=x.dtype)


def scale(x, name="w"):
    return x * parameter(name)


def scale_twice(x):
    """Two results, of which a caller may use one."""
    return x * parameter("w"), x * parameter("v", (5.0, 7.0))


def square(x):
    return x * x


def same(x):
    return x


def fetch(name="w"):
    return parameter(name)


def through(names, x):
    """Scales here, then goes on at the next worker of the list, if there is one."""
    y = x * parameter()
    return rpc.rpc_sync(names[0], through, (names[1:], y)) if names else y


def bounce(other, depth, x):
    """Goes to and fro between two workers, a multiplication on each."""
    me = rpc.get_worker_info().name
    y = x * parameter()
    return y if depth == 0 else rpc.rpc_sync(other, bounce, (me, depth - 1, y))


def ignore_another(x, other):
    """Asks `other` twice with the same value, and uses the first answer only."""
    h = x * parameter()
    used = rpc.rpc_sync(other, scale, (h,))
    rpc.rpc_sync(other, scale, (h,))
    return used


def ignore_a_chain(x, other):
    """Ignores an answer that was computed from another ignored one."""
    h = x * parameter()
    first = rpc.rpc_sync(other, scale, (h,))
    rpc.rpc_sync(other, scale, (first,))
    return h


class Model:
    """Something with tensors inside."""

    def __init__(self, value=(2.0, 3.0)):
        self.weight = tg.tensor(np.array(value), requires_grad=True)

    def forward(self, x):
        return x * self.weight

    def gradient(self, context_id):
        return autograd.get_gradients(context_id)[self.weight].numpy().tolist()


# Failing.


class Unlucky(Exception):
    """A type that no library has."""


def fail(x=None):
    raise Unlucky("no luck today")


def _fail_in_hook(gradient):
    raise Unlucky("no luck in the hook")


def with_failing_hook(x):
    y = x * parameter()
    y.register_hook(_fail_in_hook)
    return y


def with_hook_that_waits(x):
    """A value whose backward pass goes on when the gate of its process is opened."""
    y = x * parameter()
    y.register_hook(wait_at_the_gate)
    return y


def wait_at_the_gate(gradient):
    if not GATE.wait(60):
        raise TimeoutError("nobody opened the gate")


class Thrice(tg.autograd.Function):
    """A rule that fails as often as it is told to."""

    failures = 0

    @staticmethod
    def forward(ctx, x):
        return x * 3.0

    @staticmethod
    def backward(ctx, g):
        if Thrice.failures > 0:
            Thrice.failures -= 1
            raise ZeroDivisionError("a rule that fails")
        return g * 3.0


def with_nan_in_backward(x):
    return tg.sqrt(x * 0.0) * 0.0


def with_failing_rule(x, failures=1):
    Thrice.failures = failures
    return Thrice.apply(x * parameter())


def with_signal_in_backward(x, number):
    """A value whose worker gets a signal while its backward pass runs."""

    def signalled(g):
        os.kill(os.getpid(), number)
        # A process stops a little after the signal: this thread must not answer until then.
        GATE.wait(60)

    y = x * parameter()
    y.register_hook(signalled)
    return y


def kill_yourself(x=None):
    os.kill(os.getpid(), signal.SIGKILL)


# Contexts.


def current_context_id():
    return autograd._current_context()._context_id()


def open_and_hold(names, x):
    """Opens a context that reaches the others, and never leaves it."""
    with autograd.context():
        through(names, x)
        GATE.wait()


def open_gate():
    """Lets those who wait at the gate go on; whether anybody had to wait until now."""
    was_shut = not GATE.is_set()
    GATE.set()
    return was_shut


def train(server, steps, seed):
    """Many contexts, one after the other; how many of the gradients were not exact."""
    wrong = 0
    values, w = np.array([float(seed + 1), 2.0]), np.array([2.0, 3.0])
    x = tg.tensor(values, requires_grad=True)
    for _ in range(steps):
        with autograd.context() as context_id:
            y = rpc.rpc_sync(server, scale, (x,))
            autograd.backward(context_id, [(y * y).sum()])
            mine = autograd.get_gradients(context_id)[x].numpy()
            theirs = rpc.rpc_sync(server, gradient, (context_id,))
            wrong += mine.tolist() != (2 * values * w * w).tolist()
            wrong += theirs != (2 * values * values * w).tolist()
    return wrong


# Forward mode.


def tangent_of(x):
    """The tangent that arrived, as a value."""
    return tg.autograd.forward_ad.unpack_dual(x).tangent


def weigh_and_sum(x):
    """A scalar function with a parameter of this worker: sum of w·x³."""
    return (x * x * x * parameter()).sum()


def open_and_leave():
    with autograd.context() as context_id:
        return context_id
