"""How a benchmark measures: a warm-up, then rounds; in each round every side has its turn.

The sides begin the rounds in turns, so that a noisy moment of the machine, and what one leaves in
the caches, falls on all of them. All get the same number of rounds and of calls in a round, since
a minimum over more of them would be lower. The garbage collector stays on, as users have it:
minima hide its larger rounds, medians show them.
"""

import gc
import time
from collections.abc import Callable, Mapping

__all__ = ["WARM_UP", "Samples", "Work", "sample", "sample_in_turns"]

Work = Callable[[], object]
Samples = dict[str, list[float]]
"""Seconds a call, one figure a round, for each side."""

WARM_UP = 3
"""Calls before the first that counts, at least; a whole round of them where that is more."""


def sample(run: Work, rounds: int, repeat: int = 1, *, warm_up: int = WARM_UP) -> list[float]:
    """The seconds a call took, for each of the rounds of `repeat` calls."""
    return sample_in_turns({"": run}, rounds, repeat, warm_up=warm_up)[""]


def sample_in_turns(
    sides: Mapping[str, Work], rounds: int, repeat: int = 1, *, warm_up: int = WARM_UP
) -> Samples:
    """The same for several sides of one process."""
    for run in sides.values():
        for _ in range(max(warm_up, repeat)):
            run()
    gc.collect()
    names = list(sides)
    found: Samples = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            found[name].append(_once(sides[name], repeat))
    return found


def _once(run: Work, repeat: int) -> float:
    begin = time.perf_counter()
    for _ in range(repeat):
        run()
    return (time.perf_counter() - begin) / repeat
