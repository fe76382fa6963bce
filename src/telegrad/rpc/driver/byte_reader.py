"""Receives a connection's bytes, for whichever thread reads it at the moment.

Invariant: wherever an interrupt comes, it is known what was received, or that it is not.
"""

import math
import select
import time
from typing import Any, Final

from telegrad.rpc.driver.spin import Spinning
from telegrad.rpc.transport.connection import Connection

NOW: Final = -math.inf
"""The deadline of a read that never waits, and receives a large frame piece by piece."""

ROOM: Final = 128 << 10
"""Bytes of the buffer into which small frames are received."""


class ByteReader:
    """The bytes that came and are not frames yet."""

    def __init__(self, connection: Connection, spinning: Spinning) -> None:
        self._connection = connection
        self._pending = connection.pending
        self.spinning = spinning
        self._room = bytearray(ROOM)
        self._view = memoryview(self._room)
        # Where the bytes begin and end in the room.
        self._start = self._end = 0
        self.received = 0
        """How many bytes have come, those in shared memory among them."""
        # Whether bytes were taken from the stream that are neither kept here nor in the hands of
        # the caller (which sets this to False when it has the frame): an interrupt would lose them.
        self.is_torn = False
        # What was taken: how many bytes, or the frame that is being returned; see `mend`.
        self._came: list[Any] = []
        # Waits for so many milliseconds, or for ever, until there is input.
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        self._look = poll.poll

    def _fill(self, wanted: int, deadline: float | None) -> int:
        """Receive some bytes behind those in the room, where `wanted` in all must fit."""
        size = self._end - self._start
        if not size or self._start + wanted > ROOM:
            self._room[:size] = self._room[self._start : self._end]
            self._start, self._end = 0, size
        count = self._receive(self._view[self._end :], deadline)
        self._end, self._came = self._end + count, []
        return count

    def _receive(self, view: memoryview, deadline: float | None) -> int:
        """Return how many bytes came, 0 if the deadline passed."""
        while True:
            # Poll first: a read that finds nothing raises, which takes five times as long.
            if deadline != NOW:
                # An interrupt of this wait, which may be long, loses nothing.
                self.is_torn = False
                if not self._await_bytes(deadline):
                    return 0
            self._came, self.is_torn = [], True
            try:
                # In one step with the system call: an interrupt in between would lose the count.
                self._came.extend(map(self._connection.recv_into_nowait, (view,)))
            except BlockingIOError:
                if deadline == NOW:
                    return 0
                # TLS: the record is not complete yet.
                continue
            count: int = self._came[0]
            self.received += count
            if count:
                return count
            raise EOFError("the connection was closed")

    def _await_bytes(self, deadline: float | None) -> bool:
        """Wait until there is something to read; say whether that was before the deadline."""
        if self._pending is not None and self._pending():
            return True
        if deadline and self.spinning.spin(self._look):
            return True
        began = time.monotonic()
        left = math.inf if deadline is None else max(0.0, deadline - began)
        # Rounded up: a poll of 0 ms in the last millisecond would spin.
        found = bool(self._look(-(-left * 1000 // 1) if left < 1e6 else None))
        if found:
            self.spinning.waited(time.monotonic() - began)
        return found
