"""Functions that simulated workers call on each other; importable, so that they go by name."""

import threading

from telegrad.rpc.calls.future import Future
from telegrad.rpc.calls.incoming import async_execution
from telegrad.rpc.current import current_worker
from telegrad.rpc.wire.functions import expose

RUNS: dict[str, int] = {}
KEPT: dict[str, object] = {}


def who():
    return current_worker().name


def made_elsewhere(where, value):
    return current_worker().remote(where, int, (value,))


def count(key):
    RUNS[key] = RUNS.get(key, 0) + 1
    return RUNS[key]


def bounce(other, depth):
    worker = current_worker()
    if depth == 0:
        return 0
    return 1 + worker.rpc_sync(other, bounce, (worker.name, depth - 1))


def fail(text):
    raise KeyError(text)


def keep(key, value):
    KEPT[key] = value


def drop(key):
    KEPT.pop(key, None)


def pass_on(to, key, reference):
    current_worker().rpc_sync(to, keep, (key, reference))


def fetch(reference):
    return reference.to_here()


def make(value):
    return current_worker().make_rref(value)


@async_execution
def later(to):
    return current_worker().rpc_async(to, who).then(lambda future: f"via {future.value()}")


@async_execution
def not_a_future():
    return 3


def never():
    Future().wait()


class Counter:
    def __init__(self, value):
        self.value = value

    def add(self, more):
        self.value += more
        return self.value

    @async_execution
    def add_from(self, to):
        return current_worker().rpc_async(to, who).then(lambda done: self.add(done.value()))

    @async_execution
    def add_nothing(self):
        return self.value


def add_to(reference, more):
    return reference.rpc_sync().add(more)


def fetch_first(tree):
    return tree["deep"][0]


def fail_with(_):
    raise KeyError("with")


@expose
def shown(items):
    return len(items)


GATE: "list[Future[str]]" = [Future()]
"""One for each test, shut at first (conftest.py): who comes after it was opened need not wait."""


def wait_for_gate():
    return GATE[0].wait()


BARRIER = threading.Barrier(20)


def meet():
    BARRIER.wait(20)
    return "met"


def open_gate():
    GATE[0].set_result("open")


def fetch_kept(key):
    return KEPT[key].to_here()
