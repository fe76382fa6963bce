"""One cluster under attack: ``python -m tests.soak.stage`` is one of its workers.

Threads make operations and others faults, for a minute at a time; then both pause, and what must
hold at rest is checked.
"""

import argparse
import faulthandler
import os
import random
import sys
import threading
import time
from pathlib import Path

from tests.distributed.passes.test_random_programs import WORKERS
from tests.soak.campaign import TRANSPORTS
from tests.soak.checks import Checks, no_other_bits, same_bits
from tests.soak.cluster import ME, Cluster
from tests.soak.faults import Faults
from tests.soak.journal import Journal
from tests.soak.operations import GATHERED, KINDS, TYPED, HalfPublished, expected_of, perform

from telegrad.distributed import rpc

__all__ = ["Stage"]

LIMIT = 120.0
"""Seconds in which an operation must have ended. One that is not stuck takes less even if each of
its calls runs into its deadline, or this process is frozen for a while."""
_ROUND = 60.0
_OPERATORS, _STRIKERS = 4, 2


class Stage:
    """One cluster over one transport."""

    def __init__(self, cluster: Cluster, journal: Journal, transport: str, seed: str) -> None:
        self._cluster = cluster
        self._journal = journal
        self._checks = Checks(cluster, journal, transport)
        self._seed = seed
        self._goes_on = threading.Event()
        self._ended = False
        self._number = 0
        self._lock = threading.Lock()
        self._in_flight: dict[int, tuple[float, str]] = {}
        self._striking: set[str] = set()
        self._exact = 0

    def run(self, seconds: float) -> None:
        """Attack for that long, with a check after each minute; stop at something that hangs."""
        threads = [self._start(self._operate, number) for number in range(_OPERATORS)]
        lock: threading.Lock = threading.Lock()
        for number in range(_STRIKERS):
            faults = Faults(
                self._cluster, self._journal, f"{self._seed} {number}", self._striking, lock
            )
            threads.append(self._start(self._strike, faults))
        left = seconds
        while left > 0:
            length = min(left, _ROUND)
            self._goes_on.set()
            self._watch(length)
            self._goes_on.clear()
            self._come_to_rest()
            self._checks.at_rest()
            left -= length
            self._say(seconds - left)
        self._ended = True
        self._goes_on.set()
        for thread in threads:
            thread.join()

    def _start(self, work, *args) -> threading.Thread:
        thread = threading.Thread(target=work, args=args, daemon=True)
        thread.start()
        return thread

    def _say(self, seconds: float) -> None:
        print(
            f"  {seconds / 60:5.1f} min  {self._number:6d} operations, {self._exact} of them exact,"
            f" {self._journal.violations} violations",
            flush=True,
        )

    # Operations.

    def _operate(self, number: int) -> None:
        rng = random.Random(f"{self._seed} operations {number}")
        while True:
            self._goes_on.wait()
            if self._ended:
                return
            with self._lock:
                self._number += 1
                count = self._number
            kind = rng.choice(list(KINDS))
            root, seed = rng.choice((ME, ME, *WORKERS)), rng.randrange(1 << 20)
            start = time.monotonic()
            self._in_flight[number] = (start, f"{kind} {seed} from {root}")
            outcome = self._judge(kind, count, seed, root)
            del self._in_flight[number]
            took = round(time.monotonic() - start, 4)
            self._journal.write(
                "operation", kind=kind, seed=seed, root=root, outcome=outcome, seconds=took
            )

    def _judge(self, kind: str, number: int, seed: int, root: str) -> str:
        """Run an operation; return how it ended, e.g. "exact" or a typed error's name."""
        what = {"kind": kind, "seed": seed, "root": root}
        try:
            asked = (kind, number, seed, root)
            if root == ME:
                found, lost = perform(*asked)
            else:
                found, lost = rpc.rpc_sync(root, perform, asked, timeout=LIMIT / 2)
        except HalfPublished as error:
            self._journal.write("half", **what, text=str(error))
            return "half"
        except TYPED as error:
            return type(error).__name__
        except Exception as error:
            notes = getattr(error, "__notes__", [])
            self._journal.write("untyped", **what, text=repr(error), notes=notes)
            return "untyped"
        expected = expected_of(kind, seed)
        if same_bits(found, expected):
            self._exact += 1
            return "exact"
        if lost and kind in GATHERED and no_other_bits(found, expected):
            # One that was lost after the pass, and met again, has its gradients no more.
            return "forgotten"
        self._journal.write("wrong", **what, found=repr(found), lost=lost)
        return "wrong"

    # Faults and time.

    def _strike(self, faults: Faults) -> None:
        while True:
            self._goes_on.wait()
            if self._ended:
                return
            time.sleep(faults.pause())
            if self._goes_on.is_set():
                faults.strike()

    def _watch(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.5)
            self._look_for_hangs()

    def _look_for_hangs(self) -> None:
        now = time.monotonic()
        for start, what in list(self._in_flight.values()):
            if now - start > LIMIT:
                self._journal.write("hang", operation=what, seconds=now - start)
                faulthandler.dump_traceback(all_threads=True)
                self._cluster.dump_threads()
                time.sleep(2)  # For the others to write where their threads are.
                os._exit(1)

    def _come_to_rest(self) -> None:
        while self._in_flight or self._striking:
            time.sleep(0.05)
            self._look_for_hangs()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.stage", description=__doc__)
    parser.add_argument("--transport", choices=TRANSPORTS, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--seed", required=True)
    parser.add_argument("--directory", type=Path, required=True)
    given = parser.parse_args()
    given.directory.mkdir(parents=True, mode=0o700)
    journal = Journal(given.directory.parent / "journal.jsonl")
    cluster = Cluster(given.transport, given.directory)
    Stage(cluster, journal, given.transport, given.seed).run(given.seconds)
    for text in cluster.close():
        journal.write("leak", process=text)
    return 1 if journal.violations else 0


if __name__ == "__main__":
    # Operations go by the names of modules, and this must not be here twice.
    from tests.soak import stage

    sys.exit(stage.main())
