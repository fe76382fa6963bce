"""What the workers of the training tests run; importable, so that it goes by name."""

import os
import signal
import threading
import weakref

import numpy as np

import telegrad as tg
from telegrad import nn
from telegrad.distributed import autograd, rpc
from telegrad.distributed.current import autograd_of
from telegrad.profiler import profile

MEETING = threading.Barrier(2)
HALFWAY, GO_ON = threading.Event(), threading.Event()
WATCHED = []


def weights(values, dtype=tg.float64):
    """A parameter on this worker, referenced from anywhere."""
    return rpc.RRef(nn.Parameter(tg.tensor(np.array(values), dtype=dtype)))


def weigh(reference, x):
    return reference.local_value() * x


def freeze(reference, is_frozen=True):
    reference.local_value().requires_grad_(not is_frozen)


def watch(reference):
    """Has `is_watched_alive` tell of the value that is referred to."""
    WATCHED[:] = [weakref.ref(reference.local_value())]


def is_watched_alive():
    (watched,) = WATCHED
    return watched() is not None


def total(reference):
    return reference.local_value().sum()


def value(reference):
    return reference.local_value().detach().numpy().copy()


def forget(context_id):
    """Releases a context here alone, as if word of its end had come here first."""
    autograd_of(rpc.current_worker()).contexts.drop(context_id)


def is_uniform(reference):
    """Whether all numbers of a parameter are equal, as one update after another leaves them."""
    array = reference.local_value().detach().numpy()
    return bool(array.min() == array.max())


def gradient(reference, context_id):
    found = autograd.get_gradients(context_id)
    return found[reference.local_value()].numpy().copy()


def poison(reference, context_id, factor):
    """Changes a parameter's gradient in a context."""
    gradients = autograd_of(rpc.current_worker()).contexts.get(context_id).gradients
    parameter = reference.local_value()
    gradients[parameter] = gradients[parameter] * factor


def a_number():
    return rpc.RRef(3)


def a_computed_tensor():
    return rpc.RRef(nn.Parameter(tg.ones(2)) * 2)


def kill_yourself():
    os.kill(os.getpid(), signal.SIGKILL)


def has_observer():
    return rpc.current_worker().observer is not None


def profile_nothing():
    with profile():
        pass


def profile_and_hold():
    """Starts a profile that nobody ends."""
    profile().__enter__()


def gradient_in_grad(reference, numbers):
    """Gives a parameter a .grad of its own."""
    reference.local_value().grad = tg.tensor(np.array(numbers), dtype=tg.float64)


def grad_of(reference):
    return reference.local_value().grad.tolist()


class Meeting(tg.optim.SGD):
    """Steps only if another worker's optimiser steps at the same time."""

    def step(self, closure=None, *, gradients=None):
        rpc.rpc_sync("main", meet)
        return super().step(closure, gradients=gradients)


def meet():
    """Returns when somebody else is here too."""
    MEETING.wait(30)


class InHalves(tg.optim.SGD):
    """Rests in the middle of an update until it is told to go on."""

    def update(self, value, gradient, state, group):
        half = len(value) // 2
        value[:half] -= gradient[:half]
        rpc.rpc_sync("main", rest)
        value[half:] -= gradient[half:]


def rest():
    HALFWAY.set()
    assert GO_ON.wait(30)


class Picky(tg.optim.SGD):
    """Can be built on no worker but `only`."""

    def __init__(self, params, only):
        me = rpc.get_worker_info().name
        if me != only:
            raise LookupError(f"nothing to be had on {me}")
        super().__init__(params, lr=0.1)


class Stubborn(tg.optim.SGD):
    """Takes no state."""

    def load_state_dict(self, state_dict):
        raise LookupError("no state today")


class Foreign:
    """An optimiser of another library: knows parameters and their .grad, nothing else."""

    def __init__(self, params, rate):
        self.params, self.rate = params, rate

    def step(self):
        for p in self.params:
            if p.grad is not None:
                with tg.no_grad():
                    p.copy_(p - self.rate * p.grad)


class Doubling(nn.Module):
    """A module with a parameter, a buffer of state and an option."""

    def __init__(self, size, *, scale=2.0):
        super().__init__()
        self.weight = nn.Parameter(tg.ones(size))
        self.dropout = nn.Dropout(0.5)
        self.scale = scale

    def forward(self, x, *, shift=0.0):
        return self.dropout(x * self.weight) * self.scale + shift


class Unbuildable(nn.Module):
    def __init__(self):
        raise ZeroDivisionError("no such module today")
