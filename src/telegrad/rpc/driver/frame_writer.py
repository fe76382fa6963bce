"""The writing half of a link: frames onto a connection, whole and one after the other.

A sender holds the lock from its frame's first byte to the last. A send has a deadline: a peer that
does not read (it was stopped, or is full) delays nobody beyond it. But a frame that was begun must
be finished, or the stream would make no sense any more; so at the deadline its rest is copied, and
handed with the lock to a thread that does nothing else.

Small answers delay nobody: while requests of one peer are served one after the other (`cork`) they
are kept, and leave together with one system call; and answers that find another thread writing are
sent by that thread when it is done. Notices that are not urgent are kept until the next frame, too.

Invariant: between the first byte of a frame and its last, no other thread writes.
"""

import _thread
import collections
import math
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from telegrad.errors import UsageError
from telegrad.rpc.driver.processes import has_ended
from telegrad.rpc.driver.shared_buffers import SharedBuffers
from telegrad.rpc.endpoint import MAY_WAIT, UNASKED, Endpoint
from telegrad.rpc.interruption import busy, put_off
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.protocol.budget import ANNOUNCED_FROM, UNASKED_BYTES
from telegrad.rpc.transport.connection import NOT_BEGUN, Connection, Unsent
from telegrad.rpc.transport.readiness import is_ready
from telegrad.rpc.transport.segments import SMALLEST_SEGMENT, TURNS_UP_TO, Segment
from telegrad.rpc.wire.frames import (
    ANSWERS,
    CREATES,
    NOTICE,
    PLACED,
    PREFIX,
    Buffer,
    Frame,
    body_bytes,
    pack,
)

if TYPE_CHECKING:
    from telegrad.rpc.driver.host import SocketHost

# Bytes; a header up to this size goes out in one piece with its prefix.
_SMALL_HEADER: Final = 32 << 10
# How often a thread that waits for its turn looks whether the path has ended, in seconds.
_LONGEST_TURN: Final = 1.0
# The most frames that are kept; a sender of more waits until some have gone.
_MOST_KEPT: Final = 1000
_NOW: Final = -math.inf
_NONE: Final[Any] = ()
KEPT_FOR: Final = 0.0002
"""Seconds for which an answer is kept, to leave together with the next one."""


class FrameWriter(Endpoint):
    """The writing half of a link; `Link` adds reading."""

    __slots__ = (
        *("_host", "_kept", "_small", "_unasking", "_write", "connection", "is_corked", "sharing"),
    )

    may_block = True

    def __init__(self, host: "SocketHost", connection: Connection, peer: WorkerInfo) -> None:
        super().__init__(peer, connection.limits, host.now(), host.options.lost_after)
        self.connection = connection
        self.sharing = SharedBuffers(connection, host.segment_pool, host.segment_map)
        self._host = host
        self._write = _thread.allocate_lock()
        # Whole small frames that are kept to be sent later.
        self._kept: collections.deque[bytes] = collections.deque()
        self.is_corked = False
        """Whether answers are to be kept."""
        self._small = min(_SMALL_HEADER, connection.limits.header_bytes)
        # Decides which of several threads sends a large request unannounced.
        self._unasking = threading.RLock()

    def send(self, frame: Frame, deadline: float = math.inf) -> bool:
        """Send one frame, whole; large buffers go through shared memory on one host.

        Return False if the deadline passed before any of it was sent.
        """
        header = frame.header
        parts = placed = took = _NONE
        if frame.buffers or len(header) > self._small:
            data, (parts, placed) = b"", self._pack(frame)
        else:
            data = (
                PREFIX.pack(frame.kind, frame.flags, 0, len(header), 0, frame.ident, frame.parent)
                + header
            )
            if self.is_corked and frame.kind in ANSWERS:
                self._kept.append(data)
                # Check again: another thread may have uncorked and flushed the link just before.
                if not self.is_corked:
                    self.flush()
                return True
        me = _thread.get_ident()
        is_ours: bool | None = None
        try:
            is_ours = self._write.acquire(False)
            if not is_ours:
                if data and frame.kind in ANSWERS and len(self._kept) < _MOST_KEPT:
                    self._kept.append(data)
                    self.flush()
                    return True
                took = []
                if not self._wait_for_turn(took, deadline, placed):
                    return False
                is_ours = True
            busy[me] = self
            self.connection.under_way = NOT_BEGUN
            try:
                if parts or self._kept or self.closed:
                    unsent = self._send_behind_kept(data, parts, placed, deadline)
                else:
                    unsent = self.connection.send_small(data, _NOW)
                    if unsent is not None:
                        unsent = self._send_on(unsent, deadline)
                if unsent is not None and (finish := self._finisher(unsent)) is not None:
                    # If this is interrupted, nobody knows which thread has the lock.
                    is_ours = None
                    if self._host.start(finish):
                        return True
                    is_ours = True
            finally:
                del busy[me]
        except (OSError, EOFError):
            if is_ours:
                self._write.release()
                self._left()
            raise
        except BaseException as interrupt:
            if is_ours is False:
                # Nothing was sent here: another thread has the lock, or this one had just got it.
                if any(took):
                    self.sharing.take_back(placed)
                    self._write.release()
                    self._left()
                raise
            self._interrupted(interrupt, is_ours, parts or (data,), placed)
            return True
        self._write.release()
        if unsent is not None:
            self._left()
            return False
        if self._kept or self.closed:
            self._left()
        return True

    def _interrupted(
        self,
        interrupt: BaseException,
        is_ours: bool | None,
        whole: Sequence[Buffer],
        placed: list[Segment],
    ) -> None:
        """Have a frame whose sending was interrupted finished, and put off the interrupt.

        If the count of sent bytes is unknown, the peer would take whatever followed for the rest,
        or a descriptor for another segment's. So the path ends then, and the interrupt is raised.
        (If it came while the lock was being taken, it is also unknown which thread has the lock, so
        that is not released.)
        """
        goes_on = None
        try:
            goes_on = bool(is_ours) and self._go_on(whole, placed)
        except MemoryError:
            goes_on = False
        finally:
            if not goes_on:
                self.closed = True
                if is_ours and goes_on is False:
                    self._write.release()
                lost = ConnectionAbortedError("a send was interrupted")
                self._host.worker.endpoint_lost(self, lost)
        if not goes_on:
            raise interrupt
        put_off[_thread.get_ident()] = interrupt

    def _go_on(self, whole: Sequence[Buffer], placed: list[Segment]) -> bool:
        """Have the rest of an interrupted frame sent; False if it is unknown or can't be sent."""
        rest = self.connection.unsent(whole)
        if rest is None or any(segment.is_new for segment in placed):
            return False
        self.sharing.handed_over(placed)
        if rest:
            return self._host.start(partial(self._finish, rest))
        self._write.release()
        self._left()
        return True

    def announced(self, frame: Frame) -> tuple[int, int] | None:
        """Return the sizes of a request's header and body if it must be announced."""
        header, buffers = len(frame.header), frame.buffers
        nbytes = sum(map(len, buffers))
        if nbytes + header < ANNOUNCED_FROM or self.sharing.places(buffers):
            return None
        sizes = header, body_bytes(buffers)
        # A creation can't wait in the anteroom: later requests may mention its reference.
        if sum(sizes) <= UNASKED_BYTES and not frame.flags & CREATES:
            with self._unasking:
                if self.unasked >= 0 and self.unasked not in self.calls.open:
                    self.unasked = MAY_WAIT
                    return UNASKED
        return sizes

    def _send_behind_kept(
        self, data: bytes, parts: Sequence[Buffer], placed: list[Segment], deadline: float
    ) -> Unsent | None:
        """Send a frame, in one piece or in parts, behind the frames that were kept."""
        if self.closed:
            raise ConnectionError(f"the connection to {self.peer.name} is closed")
        if placed:
            return self.sharing.send(parts, placed, deadline)
        ahead = b""
        if self._kept:
            self.connection.under_way = None
            ahead = self._take_kept()
        if data:
            unsent = self.connection.send_small(ahead + data, _NOW)
        else:
            unsent = self.connection.send([ahead, *parts] if ahead else parts, (), _NOW)
        if unsent is not None:
            unsent = self._send_on(unsent, deadline)
            if ahead and unsent is not None and not unsent.is_begun:
                self.connection.under_way = None
                self._kept.appendleft(ahead)
        return unsent

    def _send_on(self, unsent: Unsent, deadline: float) -> Unsent | None:
        """Send the rest to a peer that is slow to read, until the deadline; give up the lead."""
        if deadline <= time.monotonic():
            return unsent
        self._host.about_to_wait()
        rest = self.connection.send(unsent.rest, (), deadline)
        return rest if rest is None else Unsent(rest.rest, rest.is_begun or unsent.is_begun)

    # Frames that leave together.

    def send_with_next(self, header: bytes) -> bool:
        """Keep a notice until the next frame goes, or `flush` is called."""
        if len(header) > self._small or len(self._kept) >= _MOST_KEPT or self.outbox:
            # Notices stay in order: if one waits in the outbox, the next waits behind it.
            return False
        self._kept.append(PREFIX.pack(NOTICE, 0, 0, len(header), 0, 0, 0) + header)
        return True

    def _take_kept(self) -> bytes:
        """Return what was kept, in one piece; for the thread that writes."""
        kept = self._kept
        count = len(kept)
        return kept.popleft() if count == 1 else b"".join([kept.popleft() for _ in range(count)])

    def cork(self) -> None:
        """Keep small answers from now on: the peer's next request is here already."""
        self.is_corked = True

    def uncork(self) -> None:
        """Send the frames that were kept, and keep no more answers."""
        self.is_corked = False
        if self._kept:
            self.flush()

    def flush(self) -> None:
        """Send the frames that were kept, unless another thread writes: it sends them when done.

        Never waits.
        """
        while self._kept and not self.is_corked and self._write.acquire(False):
            me = _thread.get_ident()
            # A marked thread is about to wait in the midst of another frame, and leaves the lead.
            marks = me not in busy
            try:
                try:
                    if marks:
                        busy[me] = self
                    self.connection.under_way = None
                    is_ours: bool | None = True
                    kept = self._take_kept()
                    unsent = None if self.closed else self.connection.send_small(kept, _NOW)
                    if unsent is not None:
                        unsent = Unsent(unsent.rest, True)
                        if (finish := self._finisher(unsent)) is not None:
                            is_ours = None
                            if self._host.start(finish):
                                return
                            is_ours = True
                finally:
                    if marks:
                        del busy[me]
            except (OSError, EOFError) as error:
                self._write.release()
                lost = partial(self._host.worker.endpoint_lost, self, error)
                if marks or not self._host.start(lost):
                    lost()
            except BaseException as interrupt:
                self._interrupted(interrupt, is_ours, (), _NONE)
            else:
                self._write.release()
                if self.closed:
                    self._host.tidy()

    def _pack(self, frame: Frame) -> tuple[Sequence[Buffer], list[Segment]]:
        """Return the parts of a frame with a body or a large header, and the segments it names."""
        header, buffers = frame.header, frame.buffers
        if len(header) > self.limits.header_bytes:
            raise UsageError(
                f"a header of {len(header)} bytes is larger than the {self.limits.header_bytes} "
                f"that {self.peer.name} takes"
            )
        nbytes = sum(map(len, buffers))
        if nbytes > self.limits.payload_bytes:
            raise UsageError(
                f"{nbytes} bytes of arrays are more than the {self.limits.payload_bytes} that "
                f"{self.peer.name} takes in one message"
            )
        if nbytes < SMALLEST_SEGMENT:
            return pack(frame.kind, frame.flags, frame.ident, frame.parent, header, buffers), _NONE
        content, placed = self.sharing.place(buffers)
        if placed:
            frame.flags |= PLACED
            if type(buffers) is list and nbytes > TURNS_UP_TO:
                # They have been copied. The segments that these buffers alone keep alive are free
                # before the frame arrives: one segment is enough for many calls in a row.
                buffers.clear()
        try:
            parts = pack(frame.kind, frame.flags, frame.ident, frame.parent, header, content)
            return parts, placed
        except BaseException:
            self.sharing.take_back(placed)
            raise

    def _wait_for_turn(self, took: list[bool], deadline: float, placed: Sequence[Segment]) -> bool:
        """Take the lock that another thread holds; False if the deadline passed before.

        `took` says whether it was taken, even if this is interrupted.
        """
        try:
            if deadline > time.monotonic():
                self._host.about_to_wait()
            while not any(took):
                if self.closed:
                    # The thread that holds it may have been interrupted, and never release it.
                    raise ConnectionError(f"the connection to {self.peer.name} is closed")
                left = max(0.0, deadline - time.monotonic())
                # In one step: an interrupt in between would leave the lock taken for ever.
                took.extend(map(self._write.acquire, (True,), (min(left, _LONGEST_TURN),)))
                if left <= _LONGEST_TURN:
                    break
        finally:
            if not any(took):
                self.sharing.take_back(placed)
        return any(took)

    def _finisher(self, unsent: Unsent) -> Callable[[], None] | None:
        """Return a task that sends the rest of a begun frame, for a thread that has the lock."""
        if not unsent.is_begun or self.closed:
            return None
        # Copied: after the timeout, the caller may change its arrays.
        return partial(self._finish, b"".join(unsent.rest))

    def _finish(self, rest: bytes) -> None:
        try:
            self.connection.send((rest,))
        except (OSError, EOFError) as error:
            self._host.worker.endpoint_lost(self, error)
        finally:
            self._write.release()
            self._left()

    def _left(self) -> None:
        """Do what others left to the thread that wrote: free the ended link, or send frames."""
        if self.closed:
            self._host.tidy()
        else:
            self.flush()

    def can_send(self) -> bool:
        """Say whether a small frame can go at once: no thread writes, and the socket has room."""
        number = self.connection.fileno()
        if _thread.get_ident() in busy:
            return False
        if self._write.locked():
            # Its frame may have been sent, and its thread be about to release the lock.
            time.sleep(0.0005)
        # -1 when it is closed. `is_ready` makes a new poll: two threads can't share one.
        return number >= 0 and not self._write.locked() and is_ready(number, 0.0, for_write=True)

    def check(self) -> None:
        """Raise if the peer's process has ended, even if a fork of it still has its sockets."""
        if self.connection.peer_pid is not None and has_ended(self.connection.peer_pid):
            raise ConnectionResetError("its process has ended")
