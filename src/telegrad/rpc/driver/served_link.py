"""A link on which a peer sends its requests, and what happens in its turns.

The leader (lead.py) reads it and runs its requests right there, without a hand-over, for a moment;
then the other links have their turns. While a request runs, no thread has the right to read the
link. If the last requests of a link were slow, the next ones get threads of their own; and where a
request needs room that the worker does not have, another thread waits for it.
"""

import _thread
import resource
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from telegrad.errors import ProtocolViolation, WorkerLost
from telegrad.rpc.driver.byte_reader import NOW
from telegrad.rpc.driver.frame_writer import KEPT_FOR
from telegrad.rpc.driver.handlers import serving
from telegrad.rpc.driver.link import Link
from telegrad.rpc.interruption import busy
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.protocol.pace import Pace
from telegrad.rpc.transport.connection import Connection
from telegrad.rpc.wire.frames import NOTICE

if TYPE_CHECKING:
    from telegrad.rpc.driver.host import SocketHost
    from telegrad.rpc.driver.lead import Lead

# Seconds after which a request counts as slow. After so many slow ones in a row (not counting those
# in which others had the processor), so many get threads of their own; then one is tried here
# again. (Requests on threads of their own are not timed: they wait for each other and the GIL.)
_SLOW: Final = 0.001
_SLOW_IN_A_ROW: Final = 3
_APART: Final = 16
# The most seconds of a peer's turn, not counting the end of its last request.
_TURN: Final = 0.001
# Not all systems report the usage of one thread.
_THREAD: Final[int | None] = getattr(resource, "RUSAGE_THREAD", None)


def _usage() -> tuple[float, int]:
    """Return the CPU seconds that this thread used, and how often it was preempted."""
    if _THREAD is None:
        return 0.0, 0
    found = resource.getrusage(_THREAD)
    return found.ru_utime + found.ru_stime, found.ru_nivcsw


class ServedLink(Link):
    """A connection that a peer has opened for its requests."""

    __slots__ = ("_apart", "_ends", "_pace", "_rests", "has_turn", "lead", "slow", "turn_at")

    def __init__(
        self, host: "SocketHost", connection: Connection, peer: WorkerInfo, lead: "Lead"
    ) -> None:
        super().__init__(host, connection, peer)
        self.lead = lead
        """The lead whose thread reads it."""
        self.has_turn = False
        """Whether the leader is about to read here."""
        self.turn_at = 0.0
        """When its last turn began."""
        self.slow = 0
        """How many of the last requests that ran here took long."""
        # How many of the next requests get threads of their own because of that.
        self._apart = 0
        rate = host.options.bytes_per_second_of_peer
        self._pace = None if rate is None else Pace(rate, time.monotonic())
        # Whether reading pauses because the peer was too fast; `_ends` wakes it up.
        self._rests = False
        self._ends = threading.Event()

    def seize(self) -> bool:
        """Claim the right to read, so that the leader does not; say whether that succeeded."""
        if not self._claim_read(~_thread.get_ident()):
            return False
        self._unwatch()
        return True

    def _watch(self) -> None:
        self.lead.arm(self)

    def _unwatch(self) -> None:
        if serving.own in (None, self) and self.lead.is_mine():
            # No other thread polls the set until this one leaves the lead.
            serving.own = self
        else:
            self.lead.disarm(self)

    def _read_released(self) -> None:
        if serving.own is self:
            serving.own = None
        if self.closed:
            # See `Link`.
            self._host.tidy()
        self.offer_read()

    def _take_answers(self) -> None:
        """Leave the other received frames, most likely requests, to the leader."""

    def expects(self) -> bool:
        """Return True: requests may come at any time."""
        return True

    def start_attending(self) -> None:
        """Let the leader read."""
        self.lead.arm(self)
        self.lead.push(self)

    def take_turn(self, me: int, keeps: bool) -> None:
        """Read requests and run them here, for a moment, while this thread, `me`, leads.

        `keeps`: the link is corked, and its answers leave with those of other links.
        """
        mark = ~me
        # `_claim_read`, inlined; the leader reads no link at the moment.
        if self._reads.setdefault(None, mark) != mark:
            return
        host, reader, lead = self._host, self._reader, self.lead
        receive, handlers = host.worker.receive, host.handlers
        began = kept_since = self.turn_at
        reads = more = True
        try:
            while more and not self.closed:
                if self._pace is not None and self._is_too_fast(self._pace):
                    break
                busy[mark] = self
                try:
                    frame = reader.read(NOW)
                finally:
                    del busy[mark]
                if frame is None:
                    if reader.awaits_room:
                        lead.disarm(self)
                        self._reads.clear()
                        reads = False
                        super().start_attending()
                    break
                more = reader.may_have_more and reader.has_frame()
                if more and not self.is_corked and frame.kind != NOTICE:
                    self.cork()
                task = receive(self, frame)
                if task is None or (frame.parent and self._hand_over(frame, task)):
                    continue
                if self._apart or (
                    (handlers.running or handlers.waiting) and not handlers.has_room_for(self)
                ):
                    self._apart = max(0, self._apart - 1)
                    host.serve(self, task)
                    continue
                # While it runs, a thread that waits for an answer on this link may read it.
                self._reads.clear()
                reads = False
                if self._followers:
                    self.offer_read()
                if more and me not in lead.turn:
                    # The lead was taken while this was read: the new leader does not know about the
                    # rest of the frames.
                    self.uncork()
                    lead.push(self)
                used = _usage() if self.slow else None
                task()
                now = time.monotonic()
                if now - began > _SLOW or used:
                    self._note_time(now - began, used)
                if not more or now - self.turn_at > _TURN or me not in lead.turn:
                    break
                if not self._claim_read(mark):
                    break
                reads, began = True, now
                if now - kept_since > KEPT_FOR:
                    self.uncork()
                    kept_since = now
        except (OSError, EOFError, WorkerLost, ProtocolViolation) as error:
            host.link_failed(self, error)
        finally:
            if reads:
                self._reads.clear()
                if self._followers or self.closed:
                    self._read_released()
            if self.is_corked and not (keeps and me in lead.turn):
                self.uncork()
            if more and self.watched and reader.has_frame():
                lead.push(self)

    def _is_too_fast(self, pace: Pace) -> bool:
        """Say whether reading must pause, and if so have it resumed afterwards."""
        seconds = pace.rest(self._reader.received, time.monotonic())
        if seconds and not self._rests:
            self._rests = True
            self._host.start(partial(self._rest, seconds))
        if self._rests:
            self.lead.disarm(self)
        return self._rests

    def _rest(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self.closed:
            self._ends.wait(min(left, self.liveness.interval))
            # The peer is silent only because nothing is read: do not count it as lost.
            self.signs += 1
        self._rests = False
        if not self.closed:
            self.start_attending()

    def close(self) -> None:
        """Wake the threads that read, write or rest."""
        super().close()
        self._ends.set()

    def _note_time(self, seconds: float, before: tuple[float, int] | None) -> None:
        """Learn from a request's time; `before`: this thread's usage when it began."""
        if seconds <= _SLOW:
            self.slow = 0
            return
        if before is not None:
            used, put_off = _usage()
            if put_off > before[1] and used - before[0] <= _SLOW:
                # Other threads or processes had the processor.
                return
        self.slow += 1
        if self.slow >= _SLOW_IN_A_ROW:
            self._apart = _APART
