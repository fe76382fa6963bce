"""All benchmarks, one after the other: ``make bench``, or some: ``python -m benchmarks local rpc``.

Every one is a module ``bench_<name>`` with a function ``measure(quick)`` that gives its tables.
They print rows as they are measured and are written, as Markdown and JSON, under build/benchmarks;
what was wanted and what was reached comes last, and is written too where all were run.
"""

import argparse
import importlib
import os
import time
from pathlib import Path

from benchmarks.goals import Goal, summary
from benchmarks.tables import RESULTS

_QUIET = 0.5
"""Up to this load nothing else of weight runs."""


def main() -> None:
    here = Path(__file__).parent
    known = sorted(path.stem.removeprefix("bench_") for path in here.glob("bench_*.py"))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(known)}; else all")
    parser.add_argument("--quick", action="store_true", help="few rounds, to see that all works")
    options = parser.parse_args()
    for name in options.names:
        if name not in known:
            parser.error(f"expected benchmarks among {', '.join(known)}, got {name!r}")
    # Figures of few rounds must not take the place of real ones.
    folder = RESULTS / "quick" if options.quick else RESULTS
    load, cores = os.getloadavg()[0], os.cpu_count()
    busy = f"The load was {load:.1f} on {cores} cores before it began: figures of a busy machine."
    goals: list[Goal] = []
    for name in options.names or known:
        print(f"\n## {name}\n", flush=True)
        began = time.perf_counter()
        tables = importlib.import_module(f"benchmarks.bench_{name}").measure(options.quick)
        written = [str(table.save(folder)) for table in tables]
        if written:
            seconds = time.perf_counter() - began
            print(f"\nwritten: {', '.join(written)}; {seconds:.0f} s", flush=True)
        goals += [goal for table in tables for goal in table.goals]
    # A short piece of work finds a quiet moment where a long one does not, so the sides suffer
    # unequally, and more rounds would not help.
    text = summary(goals) + (f"\n\n{busy}" if load > _QUIET else "")
    if not options.names:
        (folder / "goals.md").write_text(f"{text}\n")
    print(f"\n## Goals\n\n{text}")


if __name__ == "__main__":
    main()
