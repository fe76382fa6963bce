"""The real host of a worker: listeners, links, threads, the clock."""

import _thread
import collections
import errno
import logging
import math
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from telegrad.errors import (
    AuthenticationFailed,
    NotInitialized,
    PeerError,
    ProtocolViolation,
    WorkerLost,
)
from telegrad.rpc.calls.call import Call
from telegrad.rpc.calls.future import Future, wake
from telegrad.rpc.driver.admission import Room
from telegrad.rpc.driver.frame_reader import plain_memory
from telegrad.rpc.driver.handlers import Handlers, serving
from telegrad.rpc.driver.lead import Lead, is_locked
from telegrad.rpc.driver.link import Link
from telegrad.rpc.driver.monitor import Monitor
from telegrad.rpc.driver.pool import Pool
from telegrad.rpc.driver.served_link import ServedLink
from telegrad.rpc.endpoint import Endpoint
from telegrad.rpc.interruption import busy, check_not_busy
from telegrad.rpc.names import UNKNOWN_ID, WorkerInfo
from telegrad.rpc.options import Options
from telegrad.rpc.security.audit import audit
from telegrad.rpc.transport import Connection, Identity, Listener, connect, listen
from telegrad.rpc.transport.address import is_near, parse_addresses
from telegrad.rpc.transport.segments import SEGMENTS, SegmentMap, SegmentPool

if TYPE_CHECKING:
    from telegrad.rpc.worker import Worker

_log = logging.getLogger("telegrad.rpc")
_PROCESSORS: Final = os.cpu_count() or 1
# Seconds between two checks for revoked certificates.
_LOOK: Final = 1.0
# Errors when this process runs out of memory or descriptors.
_LACKING: Final = (errno.ENOMEM, errno.EMFILE, errno.ENFILE)


def _turns(lead: Lead) -> int:
    return len(lead.turn)


class SocketHost:
    """Sockets and threads of one worker. `address` is where it listens."""

    def __init__(self, identity: Identity, address: str, options: Options) -> None:
        self.now = time.monotonic
        self.identity = identity
        self.options = options
        self.worker: Worker
        self.room: Room
        self._wanted_address = address
        self._listeners: list[Listener] = []
        self._lock = threading.RLock()
        # Links that have ended and may still be used by a thread. Appended to without the lock.
        self._ended: collections.deque[Link] = collections.deque()
        self._looks_again = 0.0
        """When to look for revoked certificates next."""
        self._sleepers: dict[_thread.LockType, None] = {}
        self._closed = False
        # How many workers were known when `_spare` was last computed.
        self._counted = 0
        self._spare = _PROCESSORS
        self.memory: Callable[[int], memoryview] = plain_memory
        self._pool = Pool(identity.name)
        self.late = self._pool.late
        # The most threads that lead, each with links of its own: where the interpreter's lock lets
        # one run at a time, more would only pass it to and fro. The handlers' bound includes the
        # requests that these threads run.
        processors = 1 if is_locked() else os.cpu_count() or 1
        self._most_leads = min(processors, -(-options.handlers // 2))
        self.leads = [Lead(self)]
        self.handlers = Handlers(
            self.start,
            options.handlers,
            lambda: sum(map(_turns, self.leads)),
            options.handlers_of_peer,
        )
        self.monitor = Monitor(self)
        pooled = SEGMENTS and options.segments
        self.segment_pool = SegmentPool(options.segment_pool) if pooled else None
        self.segment_map = SegmentMap()

    def begin(self, worker: "Worker") -> str:
        """Run the worker from now on; return the address where others reach it."""
        self.worker = worker
        patience = self.options.lost_after / 2
        self.room = Room(worker.budget, patience, self.start, self.options.strict)
        try:
            for each in parse_addresses(self._wanted_address) if self.options.listen else ():
                self._listeners.append(
                    listen(each.text, identity=self.identity, on_connection=self._accept)
                )
        except BaseException:
            self._stop_listening()
            raise
        self.monitor.start()
        return ",".join(listener.address for listener in self._listeners)

    def _stop_listening(self) -> None:
        for listener in self._listeners:
            listener.close()

    def start(self, task: Callable[[], object]) -> bool:
        """Run the task on another thread; return False if this worker's threads have ended."""
        return self._pool.start(task)

    def serve(self, path: Endpoint, task: Callable[[], object]) -> None:
        """Run a request on another thread, when it is its turn."""
        self.handlers.submit(path, task)

    def spare_processors(self) -> int:
        """Return how many processors are left beside one for each worker of this machine.

        Below 0 where they are too few.
        """
        peers = self.worker.peers.by_name
        if len(peers) != self._counted:
            self._counted = len(peers)
            here = [peer for peer in [*peers.values()] if is_near(peer.address)]
            self._spare = _PROCESSORS - len(here)
        return self._spare

    def dial(self, peer: WorkerInfo, address: str, timeout: float) -> Endpoint:
        """Open the path for this worker's requests to a peer."""
        timeout = min(timeout, self.options.lost_after)
        end = self.now() + timeout
        try:
            connection = connect(address, identity=self.identity, expect=peer.name, timeout=timeout)
        except AuthenticationFailed as error:
            if self.now() < end:
                raise
            # The kernel accepted, but the peer sent nothing: its process is stopped, or too busy.
            raise WorkerLost(
                f"worker {peer.name!r} was lost: it did not answer at {address} for {timeout:.1f} s"
            ) from error
        except ProtocolViolation as error:
            raise WorkerLost(f"worker {peer.name!r} was lost: {error}") from error
        info = WorkerInfo(peer.name, peer.id, connection.peer_incarnation)
        if self.options.listen:
            link = self._adopt(Link(self, connection, info))
        else:
            # The peer can't dial this worker: its requests come over the same connection.
            link = ServedLink(self, connection, info, self._lead_of_next())
            self._adopt(link)
            link.lead.add(link)
        self._tell_joined(connection, "dialled")
        return link

    def _accept(self, connection: Connection) -> None:
        info = WorkerInfo(connection.peer_name, UNKNOWN_ID, connection.peer_incarnation)
        link = ServedLink(self, connection, info, self._lead_of_next())
        try:
            self._adopt(link)
        except WorkerLost:
            # The peer came while this worker was leaving; the closed connection tells it so.
            return
        self.worker.accepted(link)
        if not link.closed:
            self._tell_joined(connection, "accepted")
            link.lead.add(link)

    def _lead_of_next(self) -> Lead:
        """Return the lead for the next served link: the one with fewest links, or a new one."""
        with self._lock:
            lead = min(self.leads, key=len)
            if len(lead) and len(self.leads) < self._most_leads and not self._closed:
                lead = Lead(self)
                self.leads.append(lead)
                self.monitor.add(lead)
            return lead

    def _tell_joined(self, connection: Connection, side: str) -> None:
        audit(
            "joined",
            self.identity.name,
            peer=connection.peer_name,
            incarnation=connection.peer_incarnation,
            source=connection.address,
            side=side,
        )

    def _adopt(self, link: Link) -> Link:
        with self._lock:
            if self._closed:
                link.connection.close()
                raise WorkerLost(f"worker {self.identity.name} has shut down")
            if not isinstance(link, ServedLink):
                self.monitor.add(link)
        return link

    def wait(self, future: Future[Any], timeout: float | None) -> None:
        """Block this thread until the future is settled or the time is over."""
        link = future.endpoint if isinstance(future, Call) else None
        if not isinstance(link, Link):
            link = None
        elif busy:
            check_not_busy()
        counted = serving.counted_by
        # First, since answers on the link are for this thread: no other is started to read them.
        reads = counted is not None and type(link) is ServedLink and link.seize()
        try:
            if link is None:
                self._sleep(future, timeout)
            else:
                link.wait(future, timeout, reads)  # type: ignore[arg-type]
        finally:
            if counted is not None and serving.counted_by is None:
                serving.counted_by = counted
                if not serving.led or serving.lead is None or not serving.lead.regain():
                    counted.enter()

    def about_to_sleep(self) -> None:
        """Let another thread lead, and do not count this thread's request until it goes on."""
        counted, lead = serving.counted_by, serving.lead
        if counted is not None:
            serving.counted_by = None
            serving.led = lead is not None and lead.leave()
            if not serving.led:
                counted.leave()

    def about_to_wait(self) -> None:
        """Let another thread lead: this one may have to wait for a peer that is slow to read."""
        counted, lead = serving.counted_by, serving.lead
        if counted is not None and lead is not None and lead.is_mine():
            # Its request still counts: a peer with many unread answers gets no more served. First,
            # so that none begins in its place.
            counted.enter()
            if not lead.leave():
                counted.leave()

    def _sleep(self, future: Future[Any], timeout: float | None) -> None:
        """Wait for a future that no link settles; shutting down ends the wait."""
        sleeper = future._new_sleeper()
        if sleeper is None:
            return
        self.about_to_sleep()
        self._sleepers[sleeper] = None
        try:
            if not self._closed:
                if timeout is None or timeout >= _thread.TIMEOUT_MAX:
                    timeout = -1
                sleeper.acquire(True, timeout)
            if self._closed and not future._done:
                raise NotInitialized(
                    f"worker {self.identity.name!r} was shut down while this thread waited"
                )
        finally:
            del self._sleepers[sleeper]
            future._forget_sleeper(sleeper)

    def rouse(self, deadline: float) -> None:
        """Have the timers checked no later than the deadline."""
        if deadline < self.monitor.wakes_at:
            self.monitor.rouse()

    def link_failed(self, link: Link, error: BaseException) -> None:
        """Note that a link broke, or that its peer broke the protocol."""
        # Log a lack of resources here, since the peer only sees the connection end.
        own = isinstance(error, OSError) and error.errno in _LACKING
        if (own or isinstance(error, PeerError)) and not link.closed:
            said = f"closed the connection to {link.connection}: {error}"
            self.worker.refusals.note(link.peer.name, self.now(), said, reason=str(error))
        self.worker.endpoint_lost(link, error)

    def ended(self, endpoint: Endpoint) -> None:
        """Free the resources of an endpoint that the worker has given up."""
        assert isinstance(endpoint, Link)
        if isinstance(endpoint, ServedLink):
            endpoint.lead.remove(endpoint)
        else:
            self.monitor.remove(endpoint)
        endpoint.close()
        endpoint.sharing.forget()
        self._ended.append(endpoint)
        self._free_ended()

    def tidy(self) -> None:
        """Free resources that were in use when their link ended, and surplus shared memory.

        Also start late tasks, for which there was no thread, and check for revoked certificates.
        """
        if self.identity.credentials is not None and self.now() >= self._looks_again:
            # On another thread: the files may be on another machine that does not answer.
            self._looks_again = math.inf
            self.start(self._cut_off_revoked)
        self._free_ended()
        self._pool.catch_up()
        if self.late:
            for lead in self.leads:
                lead.nudge()
        if self.segment_pool is not None:
            self.segment_pool.trim()

    def _cut_off_revoked(self) -> None:
        assert self.identity.credentials is not None
        try:
            contexts = self.identity.credentials.current()
            for path in self.worker.peers.endpoints() if contexts.revoked else ():
                assert isinstance(path, Link)
                try:
                    contexts.check(path.peer.name, path.connection.certificate)
                except AuthenticationFailed as error:
                    self.link_failed(path, error)
        finally:
            self._looks_again = self.now() + _LOOK

    def _free_ended(self) -> None:
        with self._lock:
            for _ in range(len(self._ended)):
                # One by one: other threads append meanwhile, and so may what this one runs.
                try:
                    link = self._ended.popleft()
                except IndexError:
                    return
                if not link.free():
                    self._ended.append(link)

    def idle_leads(self) -> int:
        """Return how many leading threads have nothing to do."""
        return sum(lead.is_idle() for lead in self.leads)

    def rest(self, timeout: float) -> None:
        """Wait until no thread of the pool runs anything, or the time is over."""
        end = self.now() + timeout
        while self._pool.at_work() > self.idle_leads() and self.now() < end:
            # Polling will do: this is the end, not the hot path.
            time.sleep(0.01)

    def close(self, timeout: float) -> None:
        """End threads and sockets; the worker has given up its endpoints."""
        with self._lock:
            self._closed = True
        for sleeper in list(self._sleepers):
            wake(sleeper)
        self._stop_listening()
        self.monitor.close()
        for lead in self.leads:
            lead.close()
        self.handlers.close()
        try:
            left = self._pool.close(timeout)
            if left:
                _log.warning(
                    "worker %s: %d handlers still run after shutdown", self.identity.name, left
                )
        finally:
            # Even if Ctrl-C ended the wait.
            self.tidy()
            for lead in self.leads:
                lead.free()
