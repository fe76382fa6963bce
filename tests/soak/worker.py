"""A worker of a campaign: ``python -m tests.soak.worker``, with the environment of `init_rpc`.

It serves until its standard input ends. What operations call on it is here as well.
"""

import collections
import faulthandler
import gc
import os
import random
import signal
import socket
import sys
import threading
import warnings

import numpy as np
import psutil
from tests.distributed import functions, handlers, programs, wide_programs, worlds

from telegrad.distributed import rpc
from telegrad.errors import TelegradError
from telegrad.rpc.current import current_worker

__all__ = ["LOSSES", "OPTIONS", "close_connections", "join", "prepare", "run_name", "state"]

LOST_AFTER = 3.0
OPTIONS = {"lost_after": LOST_AFTER, "rpc_timeout": 10.0, "join_timeout": 30.0}
_MOST_RUNS = 300
LOSSES: collections.Counter[str] = collections.Counter()
"""How often this worker has lost each of the others."""
UNHANDLED: list[str] = []
"""Exceptions that ended a thread, or that nothing could raise, as text."""


def run_name(number: int, seed: int, placement: dict[str, str]) -> str:
    """Return a name from which every worker can make its part of a run."""
    return f"{number} {seed} {' '.join(f'{place}={on}' for place, on in placement.items())}"


class Runs(dict):
    """Runs by name; a worker makes its part when first asked. The oldest are forgotten."""

    def __init__(self, make) -> None:
        super().__init__()
        self._make = make
        self._lock = threading.Lock()

    def __missing__(self, name: str):
        with self._lock:  # Calls that come together share the parameters.
            if name not in self:
                _, seed, *places = name.split()
                made = self._make(name, dict(place.split("=") for place in places), int(seed))
                self[name] = made
                if len(self) > _MOST_RUNS:
                    del self[next(iter(self))]
            return self.get(name)


def prepare() -> None:
    """Make this process ready: large numbers are all right, and no exception goes unseen."""
    warnings.simplefilter("ignore", RuntimeWarning)
    np.seterr(all="ignore")
    programs.RUNS = Runs(programs.Run)
    worlds.RUNS = Runs(lambda name, placement, seed: worlds.There(name, seed, placement))
    wide_programs.RUNS = worlds.RUNS
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    threading.excepthook = lambda args: UNHANDLED.append(f"{args.thread}: {args.exc_value!r}")
    sys.unraisablehook = lambda args: UNHANDLED.append(f"{args.object}: {args.exc_value!r}")


def state() -> dict:
    """Return what this worker holds, for a cluster at rest."""
    # An exception and a frame that caught it may hold each other, and a reference with them.
    gc.collect()
    threads, descriptors, segments = functions.resources()
    # Those of the simulations that say what an operation must give stay, and rest.
    strands = sum(each.name == "telegrad-strand" for each in threading.enumerate())
    return {
        "pid": os.getpid(),
        "autograd": handlers.leftovers(),
        "references": functions.counts(),
        "threads": threads - strands,
        "descriptors": descriptors,
        "segments": segments,
        "resident": psutil.Process().memory_info().rss >> 20,
        "unhandled": UNHANDLED[:10],
    }


def close_connections(seed: int) -> int:
    """End some of this worker's connections under its feet; return how many."""
    rng, closed = random.Random(seed), 0
    for endpoint in current_worker().peers.endpoints():
        if rng.random() < 0.5:
            try:
                duplicate = os.dup(endpoint.connection.fileno())
                with socket.socket(fileno=duplicate) as its:
                    its.shutdown(socket.SHUT_RDWR)
                closed += 1
            except OSError:
                pass  # It ended by itself.
    return closed


def join() -> None:
    """Become a worker, as the environment says, that counts whom it loses."""
    options = rpc.Options(
        **OPTIONS,
        unix_sockets=os.environ["TELEGRAD_SOAK_UNIX"] == "1",
        host=os.environ.get("TELEGRAD_SOAK_HOST"),
    )
    rpc.init_rpc(options=options).on_worker_lost(lambda who, error: LOSSES.update([who.name]))


def main() -> int:
    prepare()
    try:
        join()
    except TelegradError as error:
        print(f"could not join: {error!r}", file=sys.stderr)
        return 3
    print("joined", flush=True)
    sys.stdin.read()
    rpc.shutdown()
    return 0


if __name__ == "__main__":
    # Handlers go by the name of this module, which must not be here twice.
    from tests.soak import worker

    sys.exit(worker.main())
