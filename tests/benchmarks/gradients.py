"""What the programs of bench_distributed give, for a test that compares the sides."""

from typing import Any

from benchmarks.bench_distributed import WORLDS
from benchmarks.libraries import SIDES, cluster, library
from benchmarks.measuring import Samples


def numbers(gradient: Any) -> list[float]:
    """What tells one gradient from another."""
    return [float(gradient.size if isinstance(gradient.size, int) else gradient.numel())] + [
        float(each) for each in (gradient.sum(), gradient.reshape(-1)[-1])
    ]


def gradients(side: str, *worlds: int) -> Samples:
    """Of each program that leaves gradients with the caller, its second run; nothing for others."""
    found: Samples = {}
    with cluster(SIDES[side], [f"w{i}" for i in range(max(worlds))]):
        lib = library(SIDES[side].library)
        for work, item in (each for world in worlds for each in WORLDS[world].items()):
            if item.is_long:
                continue
            run = item.program(lib)
            run()
            given = run()
            maps = [] if given is None else given if isinstance(given, list) else [given]
            found[work] = [n for each in maps for g in each.values() for n in numbers(g)]
    return found
