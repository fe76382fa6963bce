"""Distributed autograd, telegrad's and PyTorch's: `python -m benchmarks distributed`.

The same programs, processes and dtypes (single precision). telegrad comes with its own tensors and
with PyTorch's; a second table has both with `spin` off. The third says how time grows, as time for
one unit: where it does not rise along the rows, growth is no worse than linear. Each side has the
machine to itself, so what the hardware imposes (sixteen busy processes share its cores) shows in
PyTorch's column too.
"""

import time
from functools import partial
from typing import NamedTuple

from benchmarks.alone import alone, in_turns, watched
from benchmarks.distributed_programs import (
    Program,
    contexts_at_once,
    hops,
    large,
    parallel_calls,
    pipeline,
    server_steps,
    transformer,
    whole_step,
)
from benchmarks.goals import Goal
from benchmarks.libraries import SIDES, cluster, library
from benchmarks.measuring import Samples, sample
from benchmarks.tables import Row, Table

__all__ = ["WORLDS", "Item", "measure", "measure_side"]

PEER = "PyTorch"
OURS = ("telegrad", "telegrad, torch tensors")
NO_SPIN = tuple(f"{side}, no spin" for side in OURS)
GROWTH = (*OURS, NO_SPIN[0])


class Item(NamedTuple):
    """One row: a program, the calls a round, and the goals."""

    program: Program
    repeat: int = 1
    goal: float | None = None
    """How many times as fast as the peer with our tensors."""
    torch_goal: float | None = None
    """How many times with PyTorch's."""
    is_long: bool = False
    """Takes so long that few rounds must do, after a short warm-up: a smaller one was before."""


WORLDS: dict[int, dict[str, Item]] = {
    1: {
        "context, call, backward, gradients, release": Item(whole_step, 20, 8, 6),
        **{f"{n} parallel calls": Item(parallel_calls(n)) for n in (1, 10)},
        "100 parallel calls": Item(parallel_calls(100), goal=12),
        "1000 parallel calls": Item(parallel_calls(1000), is_long=True),
        **{f"{n} contexts at once": Item(contexts_at_once(n)) for n in (1, 4, 16)},
        "activations of 16 MB": Item(large, torch_goal=1),
    },
    2: {
        **{f"{n} hops": Item(hops(n), 3) for n in (2, 5, 9, 17)},
        "transformer in two stages": Item(transformer(1), torch_goal=1),
        "the same, 4 micro-batches": Item(transformer(4)),
        "a call to each of 2 workers": Item(parallel_calls(2, 2), 3),
    },
    5: {
        "4 trainers, 10 steps each, one server": Item(server_steps(10)),
        "4 stages, 4 micro-batches": Item(pipeline, 2),
        "a call to each of 4 workers": Item(parallel_calls(4, 4), 3),
    },
    16: {
        "a call to each of 16 workers": Item(parallel_calls(16, 16), 3),
    },
}
"""By how many workers there are beside the caller: no more than the work needs."""

COMPARED = (
    "context, call, backward, gradients, release",
    *(f"{n} hops" for n in (2, 5, 9, 17)),
    "100 parallel calls",
    "4 trainers, 10 steps each, one server",
    "4 stages, 4 micro-batches",
    "activations of 16 MB",
    "transformer in two stages",
    "the same, 4 micro-batches",
)
"""Each with a backward pass."""

GROWING: dict[str, dict[int, str]] = {
    "hop": {n: f"{n} hops" for n in (2, 5, 9, 17)},
    "call": {n: f"{n} parallel calls" for n in (1, 10, 100, 1000)},
    "context": {n: f"{n} contexts at once" for n in (1, 4, 16)},
    "worker": {
        1: "1 parallel calls",
        **{n: f"a call to each of {n} workers" for n in (2, 4, 16)},
    },
}
"""By what is counted: the row of each count."""


def measure_side(side: str, workers: int, rounds: int, settling: float = 0.0) -> Samples:
    """The seconds of each round of each row of a world, on one side.

    The first row runs for so many seconds before anything counts: processes that have just started
    may share one core for a second before the system moves one of them to the other.
    """
    found: Samples = {}
    with cluster(SIDES[side], [f"w{i}" for i in range(workers)]):
        lib = library(SIDES[side].library)
        first = next(iter(WORLDS[workers].values())).program(lib)
        end = time.perf_counter() + settling
        while time.perf_counter() < end:
            first()
        for work, item in watched(WORLDS[workers].items()):
            run = item.program(lib)
            if item.is_long:
                found[work] = sample(run, min(rounds, 3), warm_up=1)
            else:
                found[work] = sample(run, rounds, item.repeat)
    return found


def measure(quick: bool) -> list[Table]:
    """All of it, as three tables."""
    found: dict[str, Samples] = {side: {} for side in (*OURS, *NO_SPIN, PEER)}
    for workers in WORLDS:
        # To start many workers takes longer than to measure them: few turns, or one.
        turns = 1 if quick else {1: 4, max(WORLDS): 3}.get(workers, 1)
        rounds = 2 if quick else 20 // turns
        sides = (*GROWTH, PEER) if workers == max(WORLDS) else tuple(found)
        measured = partial(_measured, workers, rounds, 0.0 if quick else 2.0)
        for side, samples in in_turns(f"{workers} beside main", [sides] * turns, measured).items():
            found[side].update(samples)
    return [
        _compared("distributed", OURS, found),
        _compared("distributed-no-spin", NO_SPIN, found),
        _growth(found),
    ]


def _measured(workers: int, rounds: int, settling: float, side: str) -> Samples:
    return alone(measure_side, side, workers, rounds, settling)


def _compared(name: str, ours: tuple[str, ...], found: dict[str, Samples]) -> Table:
    table = Table(name, ours, (PEER,))
    items = {work: item for world in WORLDS.values() for work, item in world.items()}
    print(f"\n{table.header()}", flush=True)
    for work in COMPARED:
        goals = zip(table.ratios, (items[work].goal, items[work].torch_goal))
        # The goals are for what users get without choosing options.
        wanted = {title: goal for title, goal in goals if goal is not None and ours == OURS}
        table.add(work, {side: found[side][work] for side in table.sides}, goal=wanted)
    return table


def _growth(found: dict[str, Samples]) -> Table:
    """Time for one unit; the goal is that the last of a kind is no higher than the first."""
    table = Table("distributed-growth", GROWTH, (PEER,))
    print(f"\n{table.header()}", flush=True)
    for unit, works in GROWING.items():
        rows = []
        for count, work in works.items():
            samples = {side: found[side][work] for side in table.sides}
            rows.append(table.add(f"time for one {unit}, of {count}", samples, units=count))
        first, last = rows[0], rows[-1]
        for side in OURS:
            what = f"time for one {unit}, of {last.units} / of {first.units}: {side}"
            what += f" ({PEER}: {_rise(first, last, PEER):.2f}×)"
            table.goals.append(Goal(what, 1.0, _rise(first, last, side), at_most=True))
    return table


def _rise(first: Row, last: Row, side: str) -> float:
    """How many times as long a unit takes in the last row as in the first."""
    return (last.minima[side] / last.units) / (first.minima[side] / first.units)
