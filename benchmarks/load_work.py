"""What bench_load runs on trainers and calls on the server; the same for every library."""

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.distributed_work import SIZE, stage
from benchmarks.libraries import library
from benchmarks.rpc_work import add, noop

__all__ = ["SERVER", "load", "resident", "warm_up", "work_of"]

SERVER = "server"
SLOW = 0.005
"""Seconds that the slow handler takes."""


def slow() -> None:
    """Take long, without the interpreter's lock."""
    time.sleep(SLOW)


def resident() -> float:
    """Return how many MB of memory this process has."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


def work_of(key: str, what: str) -> Callable[[], object]:
    """One call of a trainer, or one step."""
    lib = library(key)
    call = lib.rpc.rpc_sync
    if what == "no-op":
        return lambda: call(SERVER, noop)
    if what == "slow":
        return lambda: call(SERVER, slow)
    if what == "add":
        make: Callable[[Any], Any] = np.array if key == "telegrad" else lib.make
        x, y = make(np.arange(9.0).reshape(3, 3)), make(np.ones((3, 3)))
        return lambda: call(SERVER, add, (x, y))
    batch = lib.tensor(np.ones((32, SIZE)), requires_grad=False)

    def step() -> None:
        with lib.autograd.context() as context_id:
            y = call(SERVER, stage, (key, [], batch))
            lib.autograd.backward(context_id, [y.sum()])

    return step


def warm_up(key: str, what: str, count: int) -> None:
    """Let a trainer do its work a few times."""
    run = work_of(key, what)
    for _ in range(count):
        run()


def load(key: str, what: str, begin: float, end: float) -> list[float]:
    """Do the work again and again between two times of the clock; return the seconds of each."""
    run, clock = work_of(key, what), time.perf_counter
    time.sleep(max(0.0, begin - time.time()))
    before = clock()
    last = before + end - max(begin, time.time())
    found = []
    while before < last:
        run()
        now = clock()
        found.append(now - before)
        before = now
    return found
