"""The host of a worker in a simulation: virtual time, strands, simulated connections."""

import collections
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from telegrad.errors import WorkerLost
from telegrad.rpc.calls.call import Call
from telegrad.rpc.calls.future import Future, Quick
from telegrad.rpc.endpoint import Endpoint
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.worker import Worker
from telegrad.testing.simulation.endpoint import SimulatedEndpoint
from telegrad.testing.simulation.faults import CrashPoint
from telegrad.testing.simulation.strand import SimulatedCrash, Strand

if TYPE_CHECKING:
    from telegrad.testing.simulation.simulation import Simulation


class SimulatedHost:
    """One worker's part of the simulation. Its process is stopped until `paused_until`."""

    def __init__(self, simulation: "Simulation") -> None:
        self.simulation = simulation
        self.worker: Worker
        self.is_alive = True
        self.paused_until = -math.inf
        self.memory: Callable[[int], memoryview] = lambda nbytes: memoryview(bytearray(nbytes))
        self.strands: dict[Strand, None] = {}
        self._timers_at = math.inf
        self._crashes: dict[CrashPoint, int] = {}
        self._reached: collections.Counter[CrashPoint] = collections.Counter()

    def begin(self, worker: Worker) -> str:
        """Start carrying the worker; return its address."""
        self.worker = worker
        worker.budget.on_release = self._make_room
        return f"simulated://{worker.name}" if worker.options.listen else ""

    def now(self) -> float:
        """Return the virtual time."""
        return self.simulation.now

    def dial(self, peer: WorkerInfo, address: str, timeout: float) -> Endpoint:
        """Connect to a worker, if it is alive and can be reached."""
        self.check_alive()
        other = self.simulation.hosts.get(peer.name)
        if other is None or not other.is_alive or self.simulation.is_cut(self, other):
            raise WorkerLost(
                f"no worker could be reached at {address}, where {peer.name} should be"
            )
        lost_after = self.worker.options.lost_after
        here = SimulatedEndpoint(self, other.worker.info, lost_after)
        there = SimulatedEndpoint(other, self.worker.info, other.worker.options.lost_after)
        here.other, there.other = there, here
        other.worker.accepted(there)
        return here

    def start(self, task: Callable[[], object]) -> bool:
        """Run the task on a strand of its own, a little later."""
        self.simulation.start(self, task)
        return True

    def serve(self, path: Endpoint, task: Callable[[], object]) -> None:
        """Run a request like any other task: there may be any number of strands."""
        self.start(task)

    def wait(self, future: Future[Any], timeout: float | None) -> None:
        """Let other strands run until the future is settled or the virtual time is over."""
        end = math.inf if timeout is None else self.now() + timeout
        while not future._done:
            deadline = future.deadline if isinstance(future, Call) else math.inf
            self._sleep_until(future, min(end, deadline))
            if isinstance(future, Call) and self.now() >= deadline:
                self.worker.outgoing.expire_call(future)
            if self.now() >= end:
                return

    def _sleep_until(self, future: Future[Any], end: float) -> None:
        strand = self.simulation.current_strand()
        turn = self.simulation.next_turn(strand)
        future.add_done_callback(Quick(lambda _: self.simulation.wake(self, strand, turn)))
        if future._done:
            return
        if end < math.inf:
            self.simulation.at(end, self, "wake", lambda: self.simulation.resume(strand, turn))
        strand.pause()

    def rouse(self, deadline: float) -> None:
        """Run the worker's timers no later than the deadline."""
        deadline = max(deadline, self.now())
        if deadline < self._timers_at and self.is_alive:
            self._timers_at = deadline
            self.simulation.at(deadline, self, "timers", self._run_timers)

    def _run_timers(self) -> None:
        if self._timers_at > self.now():
            return
        self._timers_at = math.inf
        if not self.is_alive or self.worker.closed:
            return
        if self.worker.next_timer() <= self.now():
            self.worker.run_timers(self.now())
        due = self.worker.next_timer()
        if due < math.inf:
            self.rouse(due)

    def _make_room(self) -> None:
        """As the next event, read what has waited for room."""

        def read() -> None:
            for endpoint in self.worker.peers.endpoints():
                if isinstance(endpoint, SimulatedEndpoint):
                    endpoint.inbox.read()

        self.simulation.at(self.now(), self, "room", read)

    def ended(self, endpoint: Endpoint) -> None:
        """Hang up."""
        if isinstance(endpoint, SimulatedEndpoint):
            self.simulation.hang_up(endpoint)

    def tidy(self) -> None:
        """Do nothing: nothing is open."""

    def close(self, timeout: float) -> None:
        """End: from now on, nothing of the worker runs."""
        self.is_alive = False

    # Crashing.

    def crash_at(self, point: CrashPoint, occurrence: int) -> None:
        """Crash when the point is reached for the n-th time from now."""
        self._crashes[point] = self._reached[point] + occurrence

    def reach(self, point: CrashPoint) -> None:
        """Crash here, if that was asked for."""
        self._reached[point] += 1
        if self._crashes.get(point) == self._reached[point]:
            self.simulation.crash(self.worker.name)
            raise SimulatedCrash(f"{self.worker.name} {point}")

    def check_alive(self) -> None:
        """Raise SimulatedCrash on a dead worker's strands."""
        if not self.is_alive and not self.worker.closed:
            raise SimulatedCrash(self.worker.name)
