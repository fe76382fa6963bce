"""What must hold when a cluster is at rest: everyone is there, and nothing is left behind."""

import os
import time

import psutil
from tests.distributed import functions, handlers
from tests.distributed.passes.test_random_programs import WORKERS
from tests.soak import operations
from tests.soak.cluster import OTHERS, Cluster
from tests.soak.journal import Journal
from tests.soak.worker import state

from telegrad.distributed import rpc
from telegrad.errors import TelegradError

__all__ = ["Checks", "no_other_bits", "same_bits"]

_PATIENCE = 30.0
NO_REFERENCES = {"owned": 0, "held": 0, "given": 0}
GROWTH = {"threads": 6, "descriptors": 24, "resident": 96}
"""By how much a process may have more at rest than when it first was; the last in MiB. A link or
two to each peer, and segments that lie ready, come and go."""


def same_bits(found: dict, expected: dict) -> bool:
    """Say whether two sets of named arrays are equal to the bit."""
    return found.keys() == expected.keys() and no_other_bits(found, expected)


def no_other_bits(found: dict, expected: dict) -> bool:
    """Say whether what was found is expected, to the bit; some of it may be missing."""
    return found.keys() <= expected.keys() and all(
        value.dtype == expected[name].dtype
        and value.shape == expected[name].shape
        and value.tobytes() == expected[name].tobytes()
        for name, value in found.items()
    )


class Checks:
    """Checks of one stage; remembers what each process had when it was first at rest."""

    def __init__(self, cluster: Cluster, journal: Journal, transport: str) -> None:
        self._cluster = cluster
        self._journal = journal
        self._transport = transport
        self._first: dict[int, dict] = {}

    def at_rest(self) -> None:
        """Check all; what does not hold goes to the journal."""
        for name in OTHERS:
            code = self._cluster.processes[name].poll()
            if code is not None:
                self._journal.write("crash", worker=name, code=code)
                self._cluster.restart(name)
            elif not self._cluster.wait_for(name):
                self._journal.write("gone", worker=name, why="it does not answer at rest")
                return
        if not self._everyone_works():
            return
        states = self._settled()
        for name, its in states.items():
            self._look_at(name, its)
        self._look_for_processes()
        self._journal.write("check", transport=self._transport, states=states)

    def _everyone_works(self) -> bool:
        """Without faults every operation succeeds: links that were lost are opened anew."""
        error: Exception | None = None
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            try:
                for name in WORKERS:
                    rpc.rpc_sync(name, functions.meet, (list(WORKERS),))
                    found = rpc.rpc_sync(name, operations.delegated, (0, 1, name))
                    if not same_bits(found, operations.expected_of("delegated", 1)):
                        self._journal.write("wrong", kind="delegated", root=name, at="rest")
                return True
            except TelegradError as failure:
                # A loss that was under way may still be noticed.
                error = failure
        notes = getattr(error, "__notes__", [])
        self._journal.write("gone", why=f"at rest operations fail: {error!r}", notes=notes)
        return False

    def _settled(self) -> dict[str, dict]:
        """Return the state of all when nothing is left, or time is over."""
        end = time.monotonic() + _PATIENCE
        while True:
            states = {name: rpc.rpc_sync(name, state) for name in WORKERS}
            if time.monotonic() > end or all(self._is_clean(its) for its in states.values()):
                return states
            time.sleep(0.2)

    def _is_clean(self, its: dict) -> bool:
        return (
            its["autograd"] == handlers.CLEAN
            and its["references"] == NO_REFERENCES
            and not its["segments"]
            and not self._grown(its)
        )

    def _grown(self, its: dict) -> dict[str, tuple[int, int]]:
        first = self._first.get(its["pid"], its)
        return {
            what: (first[what], its[what])
            for what, most in GROWTH.items()
            if its[what] > first[what] + most
        }

    def _look_at(self, name: str, its: dict) -> None:
        for text in its["unhandled"]:
            self._journal.write("unhandled", worker=name, text=text)
        if not self._is_clean(its):
            self._journal.write("leak", worker=name, grown=self._grown(its), state=its)
        self._first.setdefault(its["pid"], its)

    def _look_for_processes(self) -> None:
        known = {process.pid for process in self._cluster.processes.values()}
        for child in psutil.Process(os.getpid()).children(recursive=True):
            if child.pid not in known:
                self._journal.write("leak", process=child.pid, status=child.status())
