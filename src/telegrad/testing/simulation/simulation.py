"""The loop of a simulation: events in the order of virtual time, everything else from one seed.

    simulation = Simulation(["a", "b"], seed=7, faults=Faults(breaks=0.01))
    with simulation:
        assert simulation.run("a", lambda: simulation.worker("a").rpc_sync("b", abs, (-1,))) == 1

Invariant: nothing here reads a clock, only `_random` is random, and events of the same time run in
the order in which they were entered. So the same seed gives the same trace.
"""

import heapq
import random
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from telegrad.errors import UsageError
from telegrad.rpc.calls.request import Request, current_request
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.options import Options
from telegrad.rpc.wire.frames import PING, PONG, Frame
from telegrad.rpc.worker import Worker
from telegrad.testing.simulation.endpoint import SimulatedEndpoint
from telegrad.testing.simulation.faults import CrashPoint, Faults
from telegrad.testing.simulation.host import SimulatedHost
from telegrad.testing.simulation.strand import SimulatedCrash, Strand

_HEARTBEATS = (PING, PONG)


class Simulation:
    """Workers, a network and a clock of their own, all from one seed.

    Arguments:
        names: The workers, in the order of their ids.
        seed: The seed of everything random.
        faults: How bad the network is.
        options: The options of every worker, or of each by its name.
        on_start: Called with each worker; ``attach_autograd`` of
            ``telegrad.distributed.worker_autograd`` gives it distributed autograd.

    Examples:
        >>> from telegrad.testing.simulation import Simulation
        >>> with Simulation(["a", "b"], seed=7) as simulation:
        ...     print(simulation.run("a", lambda: simulation.worker("a").rpc_sync("b", abs, (-3,))))
        3
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        seed: int,
        faults: Faults | None = None,
        options: Options | Mapping[str, Options] | None = None,
        on_start: Callable[[Worker], object] | None = None,
    ) -> None:
        self.seed = seed
        self.faults = faults or Faults()
        self.now = 0.0
        self.hosts: dict[str, SimulatedHost] = {}
        self.trace: list[str] = []
        self._random = random.Random(seed)
        self._events: list[tuple[float, int, SimulatedHost | None, str, Callable[[], object]]] = []
        self._entered = 0
        self._running: Strand | None = None
        self._turns: dict[Strand, int] = {}
        # The pairs that are cut off from each other, and what is held up between them.
        self._cuts: dict[frozenset[str], list[tuple[SimulatedHost, Callable[[], object]]]] = {}
        self._dead: list[SimulatedHost] = []
        self._lives = 0
        self._options = options if isinstance(options, Mapping) else dict.fromkeys(names, options)
        self._on_start = on_start
        self._ids = {name: number for number, name in enumerate(names)}
        for name in names:
            self._begin(name)

    def _begin(self, name: str) -> Worker:
        self._lives += 1
        host = SimulatedHost(self)
        info = WorkerInfo(name, self._ids[name], self._lives)
        worker = Worker(info, host, self._options.get(name))
        for other in self.hosts.values():
            if other.worker.name != name:
                worker.add_peer(other.worker.info, other.worker.address)
                if other.worker.peers.get(name) is None:
                    other.worker.add_peer(info, worker.address)
        self.hosts[name] = host
        if self._on_start is not None:
            self._on_start(worker)
        return worker

    def __enter__(self) -> "Simulation":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        if error is not None:
            error.add_note(f"in a simulation with seed={self.seed}")

    def worker(self, name: str) -> Worker:
        """Return a worker, in its present life."""
        return self.hosts[name].worker

    # Running.

    def run(self, name: str, program: Callable[[], Any], *, limit: float = 1e4) -> Any:
        """Run a program on a worker to its end and return its result, or raise its exception.

        Arguments:
            name: The worker.
            program: What runs on it, without arguments.
            limit: How many virtual seconds it may take.
        """
        return self.run_all({name: program}, limit=limit)[name]

    def run_all(
        self, programs: dict[str, Callable[[], Any]], *, limit: float = 1e4
    ) -> dict[str, Any]:
        """Run programs on several workers at once; the result of a crashed worker is None."""
        results: dict[str, Any] = {}
        # The present lives: a worker that crashes may be restarted before the end.
        hosts = [self.hosts[name] for name in programs]
        strands = [
            self.start(host, self._storing(results, name, program))
            for host, (name, program) in zip(hosts, programs.items())
        ]
        end = self.now + limit
        while not all(strand.is_done for strand in strands):
            if not self._step(end):
                waiting = [strand.name for strand in strands if not strand.is_done]
                raise TimeoutError(
                    f"{waiting} did not end by virtual time {end}; seed={self.seed}, the last "
                    f"events:\n" + "\n".join(self.trace[-20:])
                )
        for host, strand in zip(hosts, strands):
            if strand.error is not None and host.is_alive:
                raise strand.error
        return {name: results.get(name) for name in programs}

    @staticmethod
    def _storing(
        results: dict[str, Any], name: str, program: Callable[[], Any]
    ) -> Callable[[], None]:
        def store() -> None:
            results[name] = program()

        return store

    def settle(self, seconds: float) -> None:
        """Let virtual time pass."""
        end = self.now + seconds
        while self._step(end):
            pass
        self.now = max(self.now, end)

    def _step(self, end: float) -> bool:
        """Run the next event; False if there is none before `end`."""
        if not self._events or self._events[0][0] > end:
            return False
        when, entered, host, what, action = heapq.heappop(self._events)
        if host is not None and host.paused_until > when:
            heapq.heappush(self._events, (host.paused_until, entered, host, what, action))
            return True
        self.now = when
        try:
            action()
        except SimulatedCrash:
            # A worker reached its crash point in the loop itself, not on a strand.
            pass
        return True

    def at(
        self, when: float, host: SimulatedHost | None, what: str, action: Callable[[], object]
    ) -> None:
        """Enter an event; if its worker is paused then, it waits."""
        self._entered += 1
        # A worker that was paused may ask for a time in the past; time never goes back.
        when = max(when, self.now)
        heapq.heappush(self._events, (when, self._entered, host, what, action))

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass, in a program or a handler."""
        strand = self.current_strand()
        turn = self.next_turn(strand)
        self.at(self.now + seconds, None, "wake", lambda: self.resume(strand, turn))
        strand.pause()

    # Strands.

    def start(self, host: SimulatedHost, task: Callable[[], object], lag: float = 0.0) -> Strand:
        """Run the task on a strand of the worker, a little later."""

        def in_request() -> object:
            current_request.set(Request(host.worker, None, 0, False))
            return task()

        strand = Strand(host.worker.name, in_request)
        host.strands[strand] = None
        self.at(self.now + lag, host, "start", lambda: self._resume(host, strand))
        return strand

    def _resume(self, host: SimulatedHost, strand: Strand) -> None:
        if not host.is_alive and not host.worker.closed:
            strand.kill()
            return
        before, self._running = self._running, strand
        strand.resume()
        self._running = before
        if strand.is_done:
            host.strands.pop(strand, None)
            self._turns.pop(strand, None)

    def current_strand(self) -> Strand:
        """Return the strand that has the baton."""
        if self._running is None:
            raise UsageError("waiting is for programs and handlers: use Simulation.run")
        return self._running

    def next_turn(self, strand: Strand) -> int:
        """Return the number of the strand's next pause, by which a late wake-up is known."""
        turn = self._turns[strand] = self._turns.get(strand, 0) + 1
        return turn

    def wake(self, host: SimulatedHost, strand: Strand, turn: int) -> None:
        """Let a paused strand go on, as the next event."""
        self.at(self.now, host, "wake", lambda: self.resume(strand, turn))

    def resume(self, strand: Strand, turn: int) -> None:
        """Let the strand go on if it is still in that pause."""
        if strand.is_done or self._turns.get(strand) != turn:
            return
        self._turns[strand] = turn + 1
        self._resume(self.host_of(strand), strand)

    def host_of(self, strand: Strand) -> SimulatedHost:
        """Return the host that the strand runs on, alive or not."""
        for host in [*self.hosts.values(), *self._dead]:
            if strand in host.strands:
                return host
        raise UsageError(f"the strand of {strand.name} has ended")

    # The network.

    def post(self, endpoint: SimulatedEndpoint, frame: Frame) -> None:
        """Send a frame."""
        breaks = self.faults.breaks
        if breaks and not endpoint.is_broken and self._random.random() < breaks:
            self._note(f"{endpoint} breaks at {frame.kind}.{frame.ident}")
            for end in (endpoint, endpoint.other):
                end.is_broken = True
                self.hang_up(end)
        if endpoint.is_broken:
            return
        if frame.kind not in _HEARTBEATS:
            self._note(f"{endpoint} {frame.kind}.{frame.ident} sent")
        self._pass_on(endpoint, "frame", lambda: self._deliver(endpoint, frame))

    def _pass_on(
        self, endpoint: SimulatedEndpoint, what: str, action: Callable[[], object]
    ) -> None:
        """Have something reach the other end, after what was sent before it."""
        there = endpoint.other.host
        when = self.now + self._random.uniform(self.faults.shortest, self.faults.longest)
        endpoint.last_arrival = max(when, endpoint.last_arrival)

        def arrive() -> None:
            held = self._cuts.get(frozenset((endpoint.host.worker.name, there.worker.name)))
            if held is None:
                action()
            else:
                held.append((there, action))

        self.at(endpoint.last_arrival, there, what, arrive)

    def _deliver(self, endpoint: SimulatedEndpoint, frame: Frame) -> None:
        there = endpoint.other
        if there.closed or not there.host.is_alive:
            return
        if frame.kind not in _HEARTBEATS:
            self._note(f"{endpoint} {frame.kind}.{frame.ident} arrives")
        # A copy, since handlers may write into what they get.
        buffers = [memoryview(bytearray(buffer)) for buffer in frame.buffers]
        copy = Frame(frame.kind, frame.flags, frame.ident, frame.parent, frame.header, buffers)
        there.inbox.arrive(copy)

    def handle(self, endpoint: SimulatedEndpoint, frame: Frame) -> None:
        """Have a worker handle a frame that it has read."""
        endpoint.signs += 1
        host = endpoint.host
        task = host.worker.receive(endpoint, frame)
        if task is not None:
            lag = self._random.uniform(0.0, self.faults.lag) if self.faults.lag else 0.0
            self.start(host, lambda: self._execute(host, task), lag)

    @staticmethod
    def _execute(host: SimulatedHost, task: Callable[[], object]) -> None:
        host.reach("during execution")
        task()

    def hang_up(self, endpoint: SimulatedEndpoint) -> None:
        """Close one end: the other notices, unless the network between them is cut."""
        there = endpoint.other

        def notice() -> None:
            if not there.closed and there.host.is_alive:
                self._note(f"{there} broken")
                error = ConnectionResetError("the connection was closed")
                there.host.worker.endpoint_lost(there, error)

        self._pass_on(endpoint, "hang up", notice)

    def cut(self, one: str, other: str) -> None:
        """Cut the network between two workers: nothing passes, and nobody is told."""
        self._note(f"cut {one} {other}")
        self._cuts.setdefault(frozenset((one, other)), [])

    def heal(self, one: str, other: str) -> None:
        """Heal a cut: what was sent since arrives now, as when a kernel sends it again."""
        self._note(f"heal {one} {other}")
        for host, action in self._cuts.pop(frozenset((one, other)), ()):
            self.at(self.now, host, "late", action)

    def is_cut(self, one: SimulatedHost, other: SimulatedHost) -> bool:
        """Say whether nothing passes between the two."""
        return bool(self._cuts) and frozenset((one.worker.name, other.worker.name)) in self._cuts

    # Processes.

    def pause(self, name: str, seconds: float) -> None:
        """Stop a worker's process for a while, as SIGSTOP does."""
        self._note(f"pause {name}")
        self.hosts[name].paused_until = self.now + seconds

    def crash_at(self, name: str, point: CrashPoint, occurrence: int = 1) -> None:
        """Have a worker crash when it reaches a point.

        Arguments:
            name: The worker.
            point: The point.
            occurrence: How many times from now it has to get there: 1 is the next time.
        """
        self.hosts[name].crash_at(point, occurrence)

    def crash(self, name: str) -> None:
        """Have a worker crash now; the kernel closes its connections."""
        host = self.hosts[name]
        if not host.is_alive:
            return
        self._note(f"crash {name}")
        host.is_alive = False
        self._dead.append(host)
        for endpoint in host.worker.peers.endpoints():
            endpoint.close()
        for strand in list(host.strands):
            if strand is not self._running:
                self.at(self.now, None, "kill", strand.kill)

    def restart(self, name: str) -> Worker:
        """Restart a crashed worker, with the same name and id and another incarnation."""
        if self.hosts[name].is_alive:
            raise UsageError(f"{name} is alive: crash it first")
        self._note(f"restart {name}")
        return self._begin(name)

    def close(self) -> None:
        """Unwind all strands that still wait."""
        for host in [*self.hosts.values(), *self._dead]:
            host.is_alive = False
            for strand in list(host.strands):
                strand.kill()
            host.strands.clear()
        self._events.clear()

    def _note(self, what: str) -> None:
        self.trace.append(f"{self.now:.9f} {what}")
