"""Runs PyTorch's own tests against telegrad: ``python tests/interop/pytorch_own -k backward``.

Options: ``-k`` part of a test's name (or several, any of which), ``--jobs`` tests at a time,
``--deadline`` seconds a test, ``--json`` a file for the outcomes, ``-v`` why tests failed.
"""

import argparse
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from groups import Group, Outcome, wait_for_any
from substitution import load, names_of


def run(wanted: list[tuple[type, str]], jobs: int, deadline: float, show: bool) -> list[Outcome]:
    """Runs tests, so many at a time."""
    outcomes: list[Outcome] = []
    waiting = list(reversed(wanted))
    running: list[Group] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(Group(*waiting.pop(), deadline))
            wait_for_any(running)
            for group in list(running):
                outcome = group.outcome()
                if outcome is not None:
                    running.remove(group)
                    outcomes.append(outcome)
                    _tell(outcome, show)
    finally:
        for group in running:
            group.end()
    return outcomes


def _tell(outcome: Outcome, show: bool) -> None:
    print(f"{outcome.result:8}{outcome.seconds:6.1f} s  {outcome.test}", flush=True)
    if show and outcome.result == "failed":
        print(outcome.reason, flush=True)


def main() -> int:
    """Runs what the command line asks for; says whether all passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-k", action="append", default=[], metavar="TEXT")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--deadline", type=float, default=60.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("-v", action="store_true")
    chosen = parser.parse_args()
    wanted = [
        (cls, name)
        for cls in load().values()
        for name in names_of(cls)
        if not chosen.k or any(text in f"{cls.__name__}.{name}" for text in chosen.k)
    ]
    outcomes = run(wanted, chosen.jobs, chosen.deadline, chosen.v)
    if chosen.json:
        chosen.json.write_text(json.dumps([outcome._asdict() for outcome in outcomes], indent=1))
    counts = dict.fromkeys(("passed", "failed", "skipped"), 0)
    for outcome in outcomes:
        counts[outcome.result] += 1
    print(", ".join(f"{count} {result}" for result, count in counts.items()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
