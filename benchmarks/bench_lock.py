"""One server under many trainers, with Python's lock and without it: `python -m benchmarks lock`.

The work is that of `load`, with telegrad's own tensors and with PyTorch's. It needs a free-threaded
Python, which runs with the lock where PYTHON_GIL is 1, server and trainers alike.
"""

import sysconfig

from benchmarks.alone import alone, in_turns
from benchmarks.bench_load import COUNTS, OURS, WORKS, measure_side
from benchmarks.measuring import Samples
from benchmarks.tables import Table

__all__ = ["measure"]

WITHOUT, WITH = "without the lock", "with the lock"


def measure(quick: bool) -> list[Table]:
    """Rates of calls and steps over all trainers: a table for each kind of tensors."""
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        print("skipped: this Python always has its lock; run it with python3.14t")
        return []
    return [_measure(library, name, quick) for library, name in zip(OURS, ("lock", "lock-torch"))]


def _measure(library: str, name: str, quick: bool) -> Table:
    turns, seconds = (1, 0.2) if quick else (3, 0.7)
    rates = Table(name, (WITHOUT,), (WITH,), unit="/s")
    counts = COUNTS[:2] if quick else COUNTS
    found: dict[int, dict[str, Samples]] = {
        count: in_turns(
            f"{library}, {count} trainers",
            [rates.sides] * turns,
            lambda side, count=count: alone(
                measure_side, library, count, seconds, PYTHON_GIL="01"[side == WITH]
            ),
        )
        for count in counts
    }
    print(f"\n{library}\n\n{rates.header()}", flush=True)
    for work in WORKS:
        for count in counts:
            samples = {side: each[f"rate: {work}"] for side, each in found[count].items()}
            rates.add(f"{work}, {count} trainer{'s' if count > 1 else ''}", samples)
    return rates
