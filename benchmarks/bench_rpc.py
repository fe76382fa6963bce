"""Remote calls, telegrad's and PyTorch's, between two processes: `python -m benchmarks rpc`.

telegrad's arrays are NumPy's, PyTorch's are its tensors, and a column of telegrad has those too;
double precision everywhere. Each side has the machine to itself.
"""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.alone import alone, in_turns, watched
from benchmarks.libraries import SIDES, Library, cluster, library
from benchmarks.measuring import Samples, Work, sample
from benchmarks.rpc_work import add, be_busy, bounce, echo, noop, take
from benchmarks.tables import Table

__all__ = ["measure", "measure_side"]

OURS = ("telegrad", "telegrad, torch tensors", "telegrad, no spin")
SIZES = {
    "64 KB": (1 << 16, 20),
    "1 MB": (1 << 20, 20),
    "16 MB": (1 << 24, 2),
    "64 MB": (1 << 26, 1),
}
"""How many bytes, and how many calls a round."""
GOALS = {
    "call without arguments": 12,
    "Python add of two 3 × 3 arrays": 15,
    "echo of 1 MB": 6,
    "echo of 16 MB": 2.5,
    "echo of 64 MB": 5,
}
BUSY = "call while the server runs Python (medians)"
BUSY_EQUALLY = "the same, both servers switching each 0.5 ms (medians)"
# Now and then the scheduler keeps the busy thread out for a whole round: a minimum would be that.
BY_MEDIANS = (BUSY, BUSY_EQUALLY)
# What telegrad's workers set; Python's default, 5 ms, is what PyTorch's have.
SWITCH_INTERVAL = 0.0005


def works(lib: Library) -> Iterator[tuple[str, tuple[Work, int]]]:
    """What is measured, with the calls a round."""
    call, call_async = lib.rpc.rpc_sync, lib.rpc.rpc_async
    make: Callable[[Any], Any] = np.array if lib.key == "telegrad" else lib.make
    x, y = make(np.arange(9.0).reshape(3, 3)), make(np.ones((3, 3)))

    def in_flight() -> None:
        for future in [call_async("server", add, (x, y)) for _ in range(100)]:
            future.wait()

    def many() -> None:
        for _ in range(25):
            call("server", noop)

    def four_threads() -> None:
        threads = [threading.Thread(target=many) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    yield "call without arguments", (lambda: call("server", noop), 50)
    yield "Python add of two 3 × 3 arrays", (lambda: call("server", add, (x, y)), 50)
    operator = _builtin_add(lib)
    yield "the same, PyTorch's built-in add", (lambda: call("server", operator, (x, y)), 50)
    yield "call that takes 0.5 ms", (lambda: call("server", take, (0.0005,)), 20)
    yield "100 adds in flight", (in_flight, 1)
    yield "100 calls from 4 threads", (four_threads, 1)
    for depth in (2, 5, 9, 17):
        path = (lib.key, "server", "main", depth)
        yield f"nested to depth {depth}", (partial(call, "server", bounce, path), 5)
    for name, (size, repeat) in SIZES.items():
        array = make(np.arange(size // 8, dtype=np.float64))
        back = call("server", echo, (array,))
        if not np.array_equal(back, array) or np.may_share_memory(back, array):
            raise AssertionError(f"expected an equal array of its own back from the echo of {name}")
        del back
        yield f"echo of {name}", (partial(call, "server", echo, (array,)), repeat)


def _builtin_add(lib: Library) -> Any:
    """PyTorch runs its own operators on the server without Python; others have the function."""
    if lib.key != "torch":
        return add
    import torch

    return torch.add


def measure_side(side: str, rounds: int) -> Samples:
    """The seconds of each round of each work, on one side."""
    found: Samples = {}
    with cluster(SIDES[side], ["server"]):
        lib = library(SIDES[side].library)
        for name, (run, repeat) in watched(works(lib)):
            found[name] = sample(run, rounds, repeat)
        for name, interval in ((BUSY, None), (BUSY_EQUALLY, SWITCH_INTERVAL)):
            lib.rpc.rpc_sync("server", be_busy, (True, interval))
            found[name] = sample(lambda: lib.rpc.rpc_sync("server", noop), rounds, 10)
            lib.rpc.rpc_sync("server", be_busy, (False,))
    return found


def measure(quick: bool) -> list[Table]:
    """All of it, as one table."""
    # Many short turns: a machine that is slow for a minute is so for all sides.
    turns, rounds = (1, 2) if quick else (5, 6)
    table = Table("rpc", OURS)
    found = in_turns(
        "two processes", [table.sides] * turns, lambda side: alone(measure_side, side, rounds)
    )
    print(table.header(), flush=True)
    for work in found[OURS[0]]:
        samples = {side: found[side][work] for side in table.sides}
        by = "medians" if work in BY_MEDIANS else "minima"
        table.add(work, samples, goal=GOALS.get(work), by=by)
    return [table]
