"""Runs PyTorch's own tests against telegrad: ``python tests/torch/pytorch_own -k backward``.

``--passing`` runs all that are said to pass; ``--quick``, as every `make test`, all of these but
the eight with process groups; no option at all runs all. ``--document`` writes what differs, and
why, into docs/coming-from-torch.md.
"""

import argparse
import gc
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
# The tests run in forked processes, where CUDA can't be used; none of those that count need it.
os.environ["CUDA_VISIBLE_DEVICES"] = ""

from groups import Group, Outcome, wait_for_any
from substitution import WITH_GROUPS, load, names_of
from table import Table, section_of

PAGE = Path(__file__).resolve().parents[3] / "docs" / "coming-from-torch.md"


def run(wanted: list[tuple[type, str]], jobs: int, deadline: float, show: bool) -> list[Outcome]:
    """Runs tests, so many at a time."""
    outcomes: list[Outcome] = []
    # Else the first collection in each process would go through, and so copy, all of PyTorch.
    gc.freeze()
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


def _is_wanted(test: str, chosen: argparse.Namespace, table: Table) -> bool:
    if chosen.k and not any(text in test for text in chosen.k):
        return False
    if (chosen.passing or chosen.quick) and test in table.differing:
        return False
    return not chosen.quick or test.partition(".")[0] not in WITH_GROUPS


def main() -> int:
    """Runs what the command line asks for; says whether all passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-k", action="append", default=[], metavar="TEXT", help="part of a name")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--passing", action="store_true")
    parser.add_argument("--document", action="store_true")
    parser.add_argument("--jobs", type=int, default=3, help="tests at a time")
    parser.add_argument("--deadline", type=float, default=60.0, help="seconds for a test")
    parser.add_argument("--json", type=Path, help="a file for the outcomes")
    parser.add_argument("-v", action="store_true", help="say why tests failed")
    chosen = parser.parse_args()
    table = Table()
    tests = {f"{c.__name__}.{name}": (c, name) for c in load().values() for name in names_of(c)}
    table.check(list(tests))
    if chosen.document:
        page = PAGE.read_text()
        PAGE.write_text(page.replace(section_of(page), table.document(list(tests))))
        return 0
    wanted = [tests[test] for test in tests if _is_wanted(test, chosen, table)]
    outcomes = run(wanted, chosen.jobs, chosen.deadline, chosen.v)
    if chosen.json:
        found = {
            "document": table.document(list(tests)),
            "passing": table.passing(list(tests)),
            "outcomes": [outcome._asdict() for outcome in outcomes],
        }
        chosen.json.write_text(json.dumps(found, indent=1))
    counts = dict.fromkeys(("passed", "failed", "skipped"), 0)
    for outcome in outcomes:
        counts[outcome.result] += 1
    print(", ".join(f"{count} {result}" for result, count in counts.items()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
