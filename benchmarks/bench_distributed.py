"""Distributed autograd, telegrad's and PyTorch's: `python -m benchmarks distributed`.

The same programs, processes and dtypes (single precision). telegrad comes with its own tensors and
with PyTorch's; a second table has both with `spin` off, since PyTorch's transport has nothing
like it. The third says how time grows, as time for one unit: where it does not rise along the rows,
growth is no worse than linear. Each side has the machine to itself, so what the hardware imposes
(sixteen busy processes share its cores) shows in PyTorch's column too.
"""

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
from benchmarks.tables import Table

__all__ = ["measure", "measure_side"]

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


SMALL: dict[str, Item] = {
    "context, call, backward, gradients, release": Item(whole_step, 20, 8, 6),
    **{f"{n} hops and a backward pass": Item(hops(n), 3) for n in (2, 5, 9, 17)},
    "100 parallel calls and a backward pass": Item(parallel_calls(100), 1, 12),
    "4 trainers, 10 steps each, one server": Item(server_steps(10)),
    "4 stages, 4 micro-batches": Item(pipeline, 2),
    "activations of 16 MB": Item(large, torch_goal=1),
    "transformer in two stages": Item(transformer, torch_goal=1),
    **{f"{n} parallel calls": Item(parallel_calls(n)) for n in (1, 10)},
    "1000 parallel calls": Item(parallel_calls(1000), is_long=True),
    **{f"{n} contexts at once": Item(contexts_at_once(n)) for n in (1, 4, 16)},
}
"""With five workers beside the caller."""

LARGE: dict[str, Item] = {f"{n} workers": Item(parallel_calls(n, n), 3) for n in (1, 2, 4, 8, 16)}
"""With sixteen: a call to each of some of them, at once, and one backward pass."""

WORLDS = {5: SMALL, 16: LARGE}

MAIN = list(SMALL)[: list(SMALL).index("transformer in two stages") + 1]

GROWING: dict[str, dict[int, str]] = {
    "hop": {n: f"{n} hops and a backward pass" for n in (2, 5, 9, 17)},
    "call": {
        **{n: f"{n} parallel calls" for n in (1, 10)},
        100: "100 parallel calls and a backward pass",
        1000: "1000 parallel calls",
    },
    "context": {n: f"{n} contexts at once" for n in (1, 4, 16)},
    "worker": {n: f"{n} workers" for n in (1, 2, 4, 8, 16)},
}
"""By what is counted: the row of each count."""


def measure_side(side: str, workers: int, rounds: int) -> Samples:
    """The seconds of each round of each row of a world, on one side."""
    found: Samples = {}
    with cluster(SIDES[side], [f"w{i}" for i in range(workers)]):
        lib = library(SIDES[side].library)
        for work, item in watched(WORLDS[workers].items()):
            run = item.program(lib)
            if item.is_long:
                found[work] = sample(run, min(rounds, 3), warm_up=1)
            else:
                found[work] = sample(run, rounds, item.repeat)
    return found


def measure(quick: bool) -> list[Table]:
    """All of it, as three tables."""
    rounds = 2 if quick else 10
    sides = (*OURS, *NO_SPIN, PEER)
    found = in_turns(sides, 1 if quick else 2, lambda side: alone(measure_side, side, 5, rounds))
    tables = [
        _compared("distributed", OURS, found),
        _compared("distributed-no-spin", NO_SPIN, found),
    ]
    sides = (*GROWTH, PEER)
    more = in_turns(sides, 1, lambda side: alone(measure_side, side, 16, 2 * rounds))
    for side in sides:
        found[side].update(more[side])
    return [*tables, _growth(found)]


def _compared(name: str, ours: tuple[str, ...], found: dict[str, Samples]) -> Table:
    table = Table(name, ours, (PEER,))
    print(f"\n{table.header()}", flush=True)
    for work in MAIN:
        goals = zip(table.ratios, (SMALL[work].goal, SMALL[work].torch_goal))
        # The goals are for what users get without choosing options.
        wanted = {title: goal for title, goal in goals if goal is not None and ours == OURS}
        table.add(work, {side: found[side][work] for side in table.sides}, goal=wanted)
    return table


def _growth(found: dict[str, Samples]) -> Table:
    """Time for one unit; the goal is that the last of a kind is no higher than the first."""
    table = Table("distributed-growth", GROWTH, (PEER,))
    print(f"\n{table.header()}", flush=True)
    for unit, works in GROWING.items():
        rows = {
            count: table.add(
                f"time for one {unit}, of {count}",
                {side: found[side][work] for side in table.sides},
                units=count,
            )
            for count, work in works.items()
        }
        first, last = rows[min(rows)], rows[max(rows)]
        rise = {
            side: last.minima[side] / last.units / (first.minima[side] / first.units)
            for side in table.sides
        }
        for side in OURS:
            what = f"time for one {unit}, of {last.units} / of {first.units}: {side}"
            what += f" ({PEER}: {rise[PEER]:.2f}×)"
            table.goals.append(Goal(what, 1.0, rise[side], at_most=True))
    return table
