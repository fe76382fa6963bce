"""Frames out of a connection's bytes, for whichever thread reads it at the moment.

Small frames come many at a time with one system call; a large body is received straight into
memory of its own. A read that ran out of time keeps what came and goes on the next time.
Invariant: one thread at a time (link.py sees to it), and nothing larger than the connection's
limits is allocated.
"""

import _thread
import os
import select
import struct
import time
from collections.abc import Callable
from typing import Final

import numpy as np

from telegrad.errors import ProtocolViolation
from telegrad.rpc.transport.connection import Connection
from telegrad.rpc.wire.frames import PREFIX, Frame, parse_prefix, split_body

__all__ = ["FrameReader", "Spinning"]

_ROOM: Final = 128 << 10
_PREFIX_BYTES: Final = PREFIX.size
_BODY_BYTES_IN_ROOM: Final = 32 << 10
_LONG_WAIT: Final = 300e-6
_MOST_LONG: Final = 4
_sched_yield: Callable[[], None] | None = getattr(os, "sched_yield", None)


class Spinning:
    """Whether and how long to look for bytes before sleeping: one thread a process at a time.

    Waking a thread costs more than a short round trip takes. Spinning without giving up the
    processor would keep the peer from answering, so there is none where `sched_yield` is missing.
    Adaptive: it is tried as long as bytes keep coming soon, whether or not the spinning itself
    caught them (both sides must spin for either to gain); an idle worker does not burn.
    """

    _busy = _thread.allocate_lock()

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        # How many of the last waits were long, from 0 to `_MOST_LONG`.
        self._long = 0

    def receive(
        self, connection: Connection, poll: "select.poll | None", view: memoryview
    ) -> int | None:
        """Return how many bytes came while spinning, None if none did."""
        if _sched_yield is None or poll is None or not self.seconds or self._long >= _MOST_LONG:
            return None
        if not self._busy.acquire(False):
            return None
        # Asking first takes a third of the time of a read that fails: exceptions cost.
        look, clock = poll.poll, time.perf_counter
        try:
            end = clock() + self.seconds
            while clock() < end:
                _sched_yield()
                if look(0):
                    try:
                        return connection.recv_into_nowait(view)
                    except BlockingIOError:
                        # TLS: not yet a whole record.
                        continue
            return None
        finally:
            self._busy.release()

    def waited(self, seconds: float) -> None:
        """Learn from a wait that spinning did not end."""
        if seconds > _LONG_WAIT:
            self._long = min(self._long + 1, _MOST_LONG)
        elif self._long:
            self._long -= 1


class FrameReader:
    """The bytes that came and are not yet frames."""

    def __init__(self, connection: Connection, spinning: Spinning) -> None:
        self._connection = connection
        self._limits = connection.limits
        self._spinning = spinning
        self._room = bytearray(_ROOM)
        self._view = memoryview(self._room)
        self._start = 0
        self._end = 0
        # A frame under way that does not fit into the room: its prefix, memory and bytes so far.
        self._large: tuple[tuple[int, int, int, int, int, int, int], memoryview] | None = None
        self._large_end = 0
        self._poll = None if not hasattr(select, "poll") else select.poll()
        if self._poll is not None:
            self._poll.register(connection.fileno(), select.POLLIN)

    def has_frame(self) -> bool:
        """Say whether a read would return, or fail, without receiving anything.

        May be asked without the right to read; whoever reads meanwhile will ask again.
        """
        size = self._end - self._start
        if self._large is not None or size < _PREFIX_BYTES:
            return False
        try:
            fields = parse_prefix(self._room, self._start, self._limits)
        except (ProtocolViolation, struct.error):
            return True
        return size >= _PREFIX_BYTES + fields[3] + fields[4]

    def read(self, deadline: float | None) -> Frame | None:
        """Return the next frame, None if the deadline passed; EOFError when the peer closed."""
        if self._large is not None:
            return self._read_large(deadline)
        start = self._start
        while self._end - start < _PREFIX_BYTES:
            if not self._fill(_PREFIX_BYTES, deadline):
                return None
            start = self._start
        fields = parse_prefix(self._room, start, self._limits)
        kind, flags, count, header, body, ident, parent = fields
        total = _PREFIX_BYTES + header + body
        if total > _ROOM or body > _BODY_BYTES_IN_ROOM:
            self._begin_large(fields)
            return self._read_large(deadline)
        while self._end - start < total:
            if not self._fill(total, deadline):
                return None
            start = self._start
        middle = start + _PREFIX_BYTES + header
        head = self._room[middle - header : middle]
        if not body:
            self._start = middle
            return Frame(kind, flags, ident, parent, head, ())
        own = memoryview(self._room[middle : middle + body])
        self._start = middle + body
        return Frame(kind, flags, ident, parent, head, split_body(own, count, flags))

    def _begin_large(self, fields: tuple[int, int, int, int, int, int, int]) -> None:
        _, _, _, header, body, _, _ = fields
        self._start += _PREFIX_BYTES
        # Not zeroed, unlike a bytearray: every byte is received before anyone sees it.
        memory = np.empty(header + body + 16, np.uint8).data
        pad = -header % 16
        memory = memory[pad : pad + header + body]
        came = min(self._end - self._start, len(memory))
        memory[:came] = self._view[self._start : self._start + came]
        self._start += came
        self._large = (fields, memory)
        self._large_end = came

    def _read_large(self, deadline: float | None) -> Frame | None:
        assert self._large is not None
        fields, memory = self._large
        while self._large_end < len(memory):
            count = self._receive(memory[self._large_end :], deadline)
            if not count:
                return None
            self._large_end += count
        self._large = None
        kind, flags, buffers, header, _, ident, parent = fields
        body = memory[header:]
        split = split_body(body, buffers, flags) if buffers else []
        return Frame(kind, flags, ident, parent, bytes(memory[:header]), split)

    def _fill(self, wanted: int, deadline: float | None) -> int:
        """Receive some bytes behind those that are there, with room for `wanted` in all."""
        if self._start == self._end:
            self._start = self._end = 0
        elif self._start + wanted > _ROOM:
            size = self._end - self._start
            self._room[:size] = self._room[self._start : self._end]
            self._start, self._end = 0, size
        count = self._receive(self._view[self._end :] if self._end else self._view, deadline)
        self._end += count
        return count

    def _receive(self, view: memoryview, deadline: float | None) -> int:
        """Return how many bytes came, 0 if the deadline passed."""
        count: int | None
        try:
            count = self._connection.recv_into_nowait(view)
        except BlockingIOError:
            count = self._spinning.receive(self._connection, self._poll, view)
            if count is None:
                began = time.monotonic()
                if deadline is not None and not self._readable(deadline - began):
                    return 0
                count = self._connection.recv_into(view)
                self._spinning.waited(time.monotonic() - began)
        if not count:
            raise EOFError("the connection was closed")
        return count

    def _readable(self, timeout: float) -> bool:
        timeout = max(0.0, timeout)
        if self._connection.pending():
            return True
        if self._poll is None:
            return bool(select.select([self._connection.fileno()], [], [], timeout)[0])
        # Rounded up: a poll of 0 ms in the last millisecond would spin.
        return bool(self._poll.poll(-(-timeout * 1000 // 1) if timeout < 1e6 else None))
