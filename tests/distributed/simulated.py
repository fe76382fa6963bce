"""Tests as programs on the first of several workers, in a simulation that must end clean."""

import contextvars
import functools
import inspect

from tests.distributed import handlers

from telegrad.distributed.worker_autograd import attach_autograd
from telegrad.rpc.wire.frames import HELLO
from telegrad.testing.simulation import Faults, Simulation

__all__ = ["IN_ORDER", "frames_sent", "on_workers"]

SLOW = Faults(shortest=0.0001, longest=0.02, lag=0.02)
IN_ORDER = Faults(shortest=0.0001, longest=0.02)
"""As connections are: what one worker sends to another arrives in order."""


def on_workers(*names, seed=0, faults=SLOW, options=None):
    """Runs a test on worker `names[0]`; afterwards nothing of autograd may be left on any worker.

    A test that takes a ``simulation`` gets it.
    """

    def decorate(test):
        given = inspect.signature(test)
        shown = [each for each in given.parameters.values() if each.name != "simulation"]

        @functools.wraps(test)
        def run(**arguments):
            with Simulation(
                names, seed=seed, faults=faults, options=options, on_start=attach_autograd
            ) as simulation:
                if "simulation" in given.parameters:
                    arguments["simulation"] = simulation
                program = functools.partial(test, **arguments)
                # In a copy of the thread's variables: the thread may serve others afterwards.
                simulation.run(names[0], lambda: contextvars.copy_context().run(program))
                simulation.settle(100)
                for name in names:
                    if simulation.hosts[name].is_alive:
                        left = handlers.leftovers(simulation.worker(name))
                        assert left == handlers.CLEAN, name

        run.__signature__ = given.replace(parameters=shown)
        return run

    return decorate


def frames_sent(simulation, since=0):
    """How many frames were sent after a place in the trace, but for greetings of connections."""
    words = [line.split() for line in simulation.trace[since:]]
    sent = [each[2] for each in words if each[3:] == ["sent"]]
    return sum(1 for each in sent if int(each.split(".")[0]) != HELLO)
