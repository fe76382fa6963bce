"""One server under many trainers, a process each: `python -m benchmarks load`.

Each trainer works without pause, all at once: a call without arguments, an add of two 3 × 3 arrays,
a step (a context, ``tanh(x @ W)`` of 32 × 64 on the server, backward). There are as many trainers
as the processors allow, three for each at most.
"""

import os
import time
from typing import Any

import numpy as np

from benchmarks.alone import alone, in_turns
from benchmarks.goals import Goal
from benchmarks.libraries import SIDES, cluster, library
from benchmarks.load_work import SERVER, load, resident, warm_up
from benchmarks.measuring import Samples
from benchmarks.tables import Table

__all__ = ["measure", "measure_side"]

OURS = ("telegrad", "telegrad, torch tensors")
CORES = os.cpu_count() or 1
COUNTS = [n for n in (1, 2, 4, 6, 8, 14) if n <= 3 * CORES and (n != 6 or CORES < 4)]
"""How many trainers there are."""
WORKS = ("no-op", "add", "step")
GOALS = {"add": (6.0, 5.0), "step": (2.5, 2.0)} if CORES > 2 else {"add": (6, 4), "step": (4, 2)}
"""How many times PyTorch's rate each of our sides is to have where trainers are most."""
KEPT = 0.95
"""How much of the best rate of fewer trainers most trainers are to have, at least."""
_LEAD_TIME = 0.2  # Seconds until all trainers have been told when to begin.


def _trainers(count: int) -> list[str]:
    return [f"t{number}" for number in range(count)]


def _at_once(lib: Any, works: list[str], seconds: float) -> list[list[float]]:
    """Let each trainer do its work for that long, all at once; return the seconds of each call."""
    names = _trainers(len(works))
    for call in [
        lib.rpc.rpc_async(name, warm_up, (lib.key, what, 20)) for name, what in zip(names, works)
    ]:
        call.wait()
    begin = time.time() + _LEAD_TIME
    calls = [
        lib.rpc.rpc_async(name, load, (lib.key, what, begin, begin + seconds))
        for name, what in zip(names, works)
    ]
    return [call.wait() for call in calls]


def measure_side(side: str, count: int, seconds: float) -> Samples:
    """Figures of one side under `count` trainers, by what they are of."""
    found: Samples = {}
    with cluster(SIDES[side], [SERVER, *_trainers(count)]):
        lib = library(SIDES[side].library)
        for what in WORKS:
            took = _at_once(lib, [what] * count, seconds)
            counts = [len(each) for each in took]
            found[f"rate: {what}"] = [seconds / sum(counts)]
            found[f"fairness: {what}"] = [min(counts) / max(counts)]
            for name, percent in (("half", 50), ("99 %", 99)):
                found[f"{name}: {what}"] = [float(np.percentile(took[0], percent))]
        if count > 1:
            took = _at_once(lib, ["slow"] + ["add"] * (count - 1), seconds)
            found["half: add beside a trainer whose calls take 5 ms"] = [
                float(np.percentile(took[1], 50))
            ]
            found["99 %: add beside a trainer whose calls take 5 ms"] = [
                float(np.percentile(took[1], 99))
            ]
        found["memory"] = [lib.rpc.rpc_sync(SERVER, resident)]
    return found


def measure(quick: bool) -> list[Table]:
    """Rates, times of one trainer among others, fairness, and memory."""
    turns, seconds = (1, 0.2) if quick else (2, 0.7)
    counts = COUNTS[:2] if quick else COUNTS
    rates = Table("load", OURS, unit="/s")
    found: dict[int, dict[str, Samples]] = {
        count: in_turns(
            f"{count} trainers",
            [rates.sides] * turns,
            lambda side, count=count: alone(measure_side, side, count, seconds),
        )
        for count in counts
    }
    tables = [
        (rates, "rate: "),
        (Table("load-half", OURS), "half: "),
        (Table("load-99", OURS), "99 %: "),
        (Table("load-fairness", rates.sides, (), "slowest ÷ fastest trainer"), "fairness: "),
        (Table("load-memory", OURS, unit="MB"), "memory"),
    ]
    for table, prefix in tables:
        print(f"\n{table.header()}", flush=True)
        for work in (each for each in found[counts[-1]][OURS[0]] if each.startswith(prefix)):
            for count in counts:
                samples = {s: each[work] for s, each in found[count].items() if work in each}
                if not samples:
                    continue
                name = work.removeprefix(prefix) or "memory of the server"
                said = f"{name}, {count} trainer{'s' if count > 1 else ''}"
                goal = GOALS.get(name) if table is rates and count == COUNTS[-1] else None
                table.add(said, samples, goal=dict(zip(table.ratios, goal)) if goal else None)
    rates.goals += _kept(found, counts)
    return [table for table, _ in tables]


def _kept(found: dict[int, dict[str, Samples]], counts: list[int]) -> list[Goal]:
    """How much of the best rate of fewer trainers there is where they are most."""
    goals = []
    for side in OURS:
        for what in WORKS:
            took = [min(found[count][side][f"rate: {what}"]) for count in counts]
            kept = min(took[:-1]) / took[-1]
            said = f"{what}, {side}: rate of {counts[-1]} trainers ÷ best of fewer"
            goals.append(Goal(said, KEPT, kept))
    return goals
