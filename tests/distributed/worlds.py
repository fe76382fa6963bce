"""Where a program runs: *here*, in one process whose calls are plain ones, or *there*, on workers.

Both have places with parameters, the same for the same seed, make calls between them, and run
passes. `There` puts each place on a worker as a placement says.
"""

import contextvars
from contextlib import suppress
from functools import partial

import numpy as np
from tests.distributed import handlers
from tests.distributed.dresses import crossed

import telegrad as tg
from telegrad.distributed import autograd
from telegrad.errors import CallTimeout
from telegrad.rpc.calls.future import Future
from telegrad.rpc.current import current_worker
from telegrad.rpc.wire.functions import expose

__all__ = ["MANY_PLACES", "PLACES", "SHAPES", "Here", "There", "numbers"]

PLACES = ("p0", "p1", "p2", "p3")
MANY_PLACES = tuple(f"p{i}" for i in range(9))
SHAPES = ((3,), (), (2, 1))
RUNS = {}
"""The worlds of several workers, by name: a handler finds the one it runs for."""


def numbers(tensor):
    return np.array(tensor.detach().numpy())


def _parameters_of(seed):
    rng = np.random.default_rng(seed)
    return {
        (place, i): tg.tensor(rng.uniform(0.5, 1.2, shape), requires_grad=True)
        for place in MANY_PLACES
        for i, shape in enumerate(SHAPES)
    }


def _start_values(seed):
    rng = np.random.default_rng(seed + 1)
    shapes = ((3,), (2, 3), ())
    return [tg.tensor(rng.uniform(-1, 1, shape), requires_grad=True) for shape in shapes]


class Here:
    """One process."""

    def __init__(self, seed):
        self.parameters = _parameters_of(seed)
        self.inputs = _start_values(seed)

    def call(self, place, fn, *args, **named):
        args, named = crossed((args, named))
        return crossed(fn(self, place, *args, **named))

    def call_later(self, place, fn, *args):
        return _Done(self.call(place, fn, *args))

    def remote(self, place, fn, *args):
        return _Done(fn(self, place, *crossed(args)))

    def use_holder(self, reference, place, *args):
        return crossed(reference.value.use(self, place, *crossed(args)))

    def ask_holder(self, reference, place, *args):
        return self.use_holder(reference, place, *args)

    def insist(self, place, fn, *args):
        return self.call(place, fn, *args)

    def together(self, *tasks):
        return [task() for task in tasks]

    def give_up(self, place, fn, *args):
        """A call that nobody gets an answer of changes nothing."""

    forget = give_up

    def parameter(self, place, i):
        """What stands for a parameter among the inputs of `grad`."""
        return self.parameters[place, i]

    def backward(self, roots, weights=None, **options):
        tg.autograd.backward(roots, weights, **options)

    def grad(self, outputs, inputs, **options):
        return tg.autograd.grad(outputs, inputs, allow_unused=True, **options)

    def backward_of(self, reference):
        reference.value.backward(retain_graph=True)

    def gradients(self):
        """Of all start values and parameters that have one, by name."""
        leaves = {**dict(enumerate(self.inputs)), **self.parameters}
        return {name: numbers(x.grad) for name, x in leaves.items() if x.grad is not None}


class _Done:
    def __init__(self, value):
        self.value = value

    def wait(self):
        return self.value

    def to_here(self):
        return crossed(self.value)


class There:
    """Workers, in a context that is open; `shared` is a world whose parameters this one has too."""

    def __init__(self, name, seed, placement, shared=None):
        self.name = name
        self.placement = placement
        self.parameters = _parameters_of(seed) if shared is None else shared.parameters
        self.inputs = _start_values(seed)

    def __enter__(self):
        RUNS[self.name] = self
        return self

    def __exit__(self, *_):
        del RUNS[self.name]

    def _asked(self, place, fn, args, named=None):
        return self.placement[place], run_at, (self.name, place, fn, args), named

    def call(self, place, fn, *args, **named):
        return current_worker().rpc_sync(*self._asked(place, fn, args, named))

    def call_later(self, place, fn, *args):
        return current_worker().rpc_async(*self._asked(place, fn, args))

    def remote(self, place, fn, *args):
        return current_worker().remote(*self._asked(place, fn, args))

    def use_holder(self, reference, place, *args):
        asked = (self.name, reference, place, args)
        return current_worker().rpc_sync(reference.owner(), run_holder, asked)

    def ask_holder(self, reference, place, *args):
        """The same by a proxy, whose methods run on the owner."""
        return reference.rpc_async().use_for(self.name, place, *args).wait()

    def call_within(self, seconds, place, fn, *args):
        return current_worker().rpc_sync(*self._asked(place, fn, args), timeout=seconds)

    def insist(self, place, fn, *args):
        """A call that is made again, with more time, where it took longer than it might."""
        try:
            return self.call_within(0.03, place, fn, *args)
        except CallTimeout:
            return self.call(place, fn, *args)

    def together(self, *tasks):
        """What each task gives, on threads of this worker that share its context."""
        host = current_worker().host
        futures = [Future() for _ in tasks]
        for future, task in zip(futures, tasks):
            run = partial(contextvars.copy_context().run, _settle, future, task)
            host.simulation.start(host, run)
        return [future.wait() for future in futures]

    def give_up(self, place, fn, *args):
        """A call that takes longer than its caller waits."""
        with suppress(CallTimeout):
            self.call_within(0.25, place, fn, *args)

    def forget(self, place, fn, *args):
        """A call that is not waited for: a pass may come while it runs."""
        current_worker().rpc_async(*self._asked(place, fn, args))

    def parameter(self, place, i):
        return self.remote(place, own_parameter, i)

    def is_here(self, name):
        """Whether a start value or a parameter is this worker's."""
        return isinstance(name, int) or self.placement[name[0]] == current_worker().name

    @property
    def context_id(self):
        return autograd._current_context()._context_id()

    def backward(self, roots, weights=None, **options):
        autograd.backward(self.context_id, roots, grad_tensors=weights, **options)

    def grad(self, outputs, inputs, **options):
        return autograd.grad(self.context_id, outputs, inputs, allow_unused=True, **options)

    def backward_of(self, reference):
        reference.backward(self.context_id, retain_graph=True)

    def gradients(self):
        here = autograd.get_gradients(self.context_id)
        found = {i: numbers(here[x]) for i, x in enumerate(self.inputs) if x in here}
        for worker in sorted(set(self.placement.values())):
            asked = (self.name, self.context_id)
            found.update(current_worker().rpc_sync(worker, gradients_at, asked))
        return found


def _settle(future, task):
    try:
        future.set_result(task())
    except Exception as error:
        future.set_exception(error)


@expose
def run_at(run, place, fn, args, **named):
    """The handler of all calls: a function at a place of this worker."""
    world = RUNS[run]
    assert world.placement[place] == current_worker().name
    return fn(world, place, *args, **named)


@expose
def run_holder(run, reference, place, args):
    return reference.local_value().use(RUNS[run], place, *args)


def own_parameter(world, place, i):
    return world.parameters[place, i]


@expose
def gradients_at(run, context_id):
    """Those of the parameters of this worker's places."""
    if not handlers.has_context(context_id):
        return {}
    world, name = RUNS[run], current_worker().name
    found = autograd.get_gradients(context_id)
    return {
        key: numbers(found[x])
        for key, x in world.parameters.items()
        if world.placement.get(key[0]) == name and x in found
    }
