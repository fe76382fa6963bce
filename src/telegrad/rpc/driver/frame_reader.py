"""Cuts a connection's bytes into frames, for whichever thread reads it at the moment.

One system call receives many small frames; a large body is received straight into memory of its
own. A read that runs out of time keeps the bytes that came, and the next read goes on there.
The worker's budget is asked before any but a small request is received. If it has no room, the
request goes to the anteroom (admission.py), or waits in the stream; a request that is refused is
skipped, and returned as a frame of the kind REFUSED, as is one that there is no memory for.
Invariant: one thread reads at a time (link.py ensures it), and nothing larger than the connection's
limits is allocated.
"""

import collections
import errno
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from telegrad.errors import ProtocolViolation
from telegrad.rpc.driver.admission import Admission
from telegrad.rpc.driver.byte_reader import NOW, ROOM, ByteReader
from telegrad.rpc.driver.shared_buffers import SharedBuffers
from telegrad.rpc.driver.spin import Spinning
from telegrad.rpc.protocol.budget import COUNTED_FROM
from telegrad.rpc.transport.connection import Connection
from telegrad.rpc.wire.frames import (
    CALL,
    CREATES,
    GRANTED,
    KINDS,
    PLACED,
    PLACED_ENTRY,
    PREFIX,
    REFUSED,
    SERVICE,
    Buffer,
    Frame,
    Placement,
    check_prefix,
    split_body,
    split_table,
)

_PREFIX_BYTES: Final = PREFIX.size
_unpack: Final = PREFIX.unpack_from
_MOST_AT_ONCE: Final = 1 << 20  # Bytes of a large frame that a NOW read receives.
_BODY_BYTES_IN_ROOM: Final = 32 << 10  # A frame with a larger body gets memory of its own.
_OF_LARGE: Final[list[Any]] = []  # Stands for bytes of a frame that `mend` can't keep.

Fields = tuple[int, int, int, int, int, int, int]


def plain_memory(nbytes: int) -> memoryview:
    """Return so many bytes, not zeroed: nobody sees them before they are received."""
    return np.empty(nbytes, np.uint8).data


class FrameReader(ByteReader):
    """Cuts bytes into frames.

    `sharing` finds buffers in shared memory, and `admission` is asked before a request is received;
    either may be missing. `memory` allocates the memory for large frames.
    """

    def __init__(
        self,
        connection: Connection,
        spinning: Spinning,
        sharing: SharedBuffers | None = None,
        admission: Admission | None = None,
        memory: Callable[[int], memoryview] = plain_memory,
    ) -> None:
        super().__init__(connection, spinning)
        self._memory = memory
        self._limits = connection.limits
        # The largest header that is within the agreed limit and that no budget counts.
        self._small = min(COUNTED_FROM - _PREFIX_BYTES - 1, connection.limits.header_bytes)
        self._sharing = sharing
        self._admission = admission
        # Frames to return next: they were received together with others, or put back.
        self._frames: collections.deque[Frame] = collections.deque()
        # Whether nothing is kept here: no bytes, no frame, no beginning of a large one.
        self._is_empty = True
        self.may_have_more = self._pending is not None
        """Whether more may be kept here behind the last frame that was read; see `has_frame`."""
        # Whether a request waits in the stream for room: the leader has another thread wait.
        self.awaits_room = False
        # For a request that goes to the anteroom: the bytes it waits for, and those it takes there.
        self._parking: tuple[int, int] | None = None
        # How to go on with an unfinished frame, which is large, waits for room or is skipped.
        self._go_on: Callable[[float | None], Frame | None] | None = None

    def has_frame(self) -> bool:
        """Say whether a read would return, fail or go on, or wait for room, if no more bytes came.

        May be called without the right to read; a thread that is reading will ask again.
        """
        if self._frames or self.awaits_room:
            return True
        size = self._end - self._start
        if self._go_on is None and size >= _PREFIX_BYTES:
            try:
                fields = _unpack(self._room, self._start)
                if size >= _PREFIX_BYTES + fields[3] + fields[4]:
                    return True
                check_prefix(fields, self._limits)
            except (ProtocolViolation, struct.error):
                return True
        # A poll does not see bytes that the connection has already taken from the descriptor.
        return self._pending is not None and self._pending() > 0

    def signs_of_life(self) -> int:
        """Return a number that grows as bytes come, and as the frames in them are read.

        Where the reading thread is slow, as it starts a thread for each frame that came, the peer
        is not silent: nobody has looked whether it sent more.
        """
        # Never less than before: each frame that waits here came with many bytes.
        return self.received - len(self._frames)

    def read(self, deadline: float | None) -> Frame | None:
        """Return the next frame, None if the deadline passed; EOFError when the peer closed."""
        if not self._is_empty:
            return self._read_next(deadline)
        # Most often one small frame comes, alone and whole.
        came = self._receive(self._view, deadline)
        if not came:
            return None
        room = self._room
        kind, flags, count, header, body, ident, parent = _unpack(room)
        if (
            header == came - _PREFIX_BYTES
            and header <= self._small
            and kind in KINDS
            and not (count or body or flags & PLACED)
        ):
            return Frame(kind, flags, ident, parent, room[_PREFIX_BYTES:came])
        self._is_empty = False
        self._end, self._came = came, []
        return self._read_next(deadline)

    def _read_next(self, deadline: float | None) -> Frame | None:
        """Return the next frame, where bytes are kept here or a frame is unfinished."""
        self.may_have_more = True
        if self._go_on is not None and not self._frames:
            return self._go_on(deadline)
        while not self._frames:
            wanted = self._take_small()
            if self._frames:
                break
            if not wanted:
                return self._read_with_body(_unpack(self._room, self._start), deadline)
            if not self._fill(wanted, deadline):
                return None
        if len(self._frames) == 1 and self._start == self._end:
            self._is_empty, self._start, self._end = True, 0, 0
        self.may_have_more = not self._is_empty or self._pending is not None
        # These lines call nothing: wherever Ctrl-C comes, the next read finds the frame.
        frame = self._frames[0]
        self.is_torn, self._came = True, [frame]
        del self._frames[0]
        return frame

    def _take_small(self) -> int:
        """Take whole small frames out of the room; return how many bytes the next frame needs.

        0 if that is not small.
        """
        start, end, room = self._start, self._end, self._room
        frames: list[Frame] = []
        wanted = _PREFIX_BYTES
        while end - start >= _PREFIX_BYTES:
            kind, flags, count, header, body, ident, parent = _unpack(room, start)
            if count or body or flags & PLACED or header > self._small or kind not in KINDS:
                wanted = 0
                break
            first = start + _PREFIX_BYTES
            stop = first + header
            if stop > end:
                wanted = stop - start
                break
            frames.append(Frame(kind, flags, ident, parent, room[first:stop]))
            start = stop
        # In one line, so that an interrupt can't come between taking bytes and keeping frames.
        self._frames, self._start = collections.deque(frames), start
        return wanted

    def _read_with_body(self, fields: Fields, deadline: float | None) -> Frame | None:
        """Read a frame with more than a small header, or a prefix that breaks the protocol."""
        kind, flags, count, header, body, ident, parent = fields
        check_prefix(fields, self._limits)
        total = _PREFIX_BYTES + header + body
        if total >= COUNTED_FROM:
            self.is_torn, self._came = True, _OF_LARGE
            if self._admission is not None and kind in (CALL, SERVICE):
                return self._begin_counted(self._admission, fields, deadline)
            if total > ROOM or body > _BODY_BYTES_IN_ROOM:
                return self._begin_large(fields, deadline)
        while self._end - self._start < total:
            if not self._fill(total, deadline):
                return None
        end = self._start + total
        head = self._room[self._start + _PREFIX_BYTES : end - body]
        buffers: Sequence[Any] = ()
        if body:
            buffers = split_body(memoryview(self._room[end - body : end]), count, flags)
        frame = Frame(kind, flags, ident, parent, head, buffers)
        # Last of all: wherever Ctrl-C comes, the next read finds the frame.
        self.is_torn, self._came, self._start = True, [frame], end
        if flags & PLACED:
            self._came = _OF_LARGE
            return self._fetch(frame, deadline)
        return frame

    def mend(self) -> bool:
        """Keep what an interrupted read received; False if nobody knows how much that was."""
        if not self.is_torn:
            return True
        came = self._came[0] if self._came else 0
        if isinstance(came, Frame):
            self.put_back(came)
        elif self._came is _OF_LARGE or self._go_on is not None or self._pending is not None:
            return False
        elif came:
            self._is_empty, self._end, self._came = False, self._end + came, []
        self.is_torn = False
        return True

    def put_back(self, frame: Frame) -> None:
        """Let the next read return a frame whose handling was interrupted."""
        self._is_empty = False
        self._frames.appendleft(frame)

    # Large frames.

    def _begin_counted(
        self, admission: Admission, fields: Fields, deadline: float | None
    ) -> Frame | None:
        _, flags, _, header, body, _, _ = fields
        nbytes = admission.weigh(header, body)
        if admission.admit(nbytes, bool(flags & GRANTED)):
            return self._begin_large(fields, deadline)
        # A creation must not be overtaken: later requests may mention its reference.
        if not flags & (PLACED | CREATES) and admission.park(header + body):
            self._parking = (nbytes, header + body)
            return self._begin_large(fields, deadline)
        begin = partial(self._begin_or_skip, fields)
        return self._ask(admission, nbytes, begin, deadline)

    def _begin_or_skip(
        self, fields: Fields, is_admitted: bool, deadline: float | None
    ) -> Frame | None:
        return (self._begin_large if is_admitted else self._begin_skipping)(fields, deadline)

    def _begin_large(self, fields: Fields, deadline: float | None) -> Frame | None:
        _, _, _, header, body, _, _ = fields
        try:
            memory = self._memory(header + body + 16)
        except MemoryError:
            return self._do_without_memory(fields, deadline)
        self._start += _PREFIX_BYTES
        pad = -header % 16
        memory = memory[pad : pad + header + body]
        came = min(self._end - self._start, len(memory))
        memory[:came] = self._view[self._start : self._start + came]
        self._start += came
        return self._read_large(fields, memory, came, deadline)

    def _read_large(
        self, fields: Fields, memory: memoryview, came: int, deadline: float | None
    ) -> Frame | None:
        pause = came + _MOST_AT_ONCE if deadline == NOW else len(memory)
        while came < len(memory):
            # However this read ends, the next one goes on here.
            self._go_on = partial(self._read_large, fields, memory, came)
            count = 0 if came >= pause else self._receive(memory[came:], deadline)
            if not count:
                return None
            came += count
        self._go_on, self._came = None, _OF_LARGE
        kind, flags, buffers, header, _, ident, parent = fields
        body = memory[header:]
        split = split_body(body, buffers, flags) if buffers else []
        # Buffers in shared memory are still to be mapped, and then counted with the rest.
        cost = 0 if flags & PLACED else self._take()
        waits, self._parking = self._parking, None
        frame = Frame(kind, flags, ident, parent, bytes(memory[:header]), split, cost)
        frame.waits = waits
        return self._fetch(frame, deadline) if flags & PLACED else frame

    def _take(self) -> int:
        """Return how many bytes to release when the request that was read has been served.

        From now on the end of the link does not release them.
        """
        return 0 if self._admission is None else self._admission.take()

    def _do_without_memory(self, fields: Fields, deadline: float | None) -> Frame | None:
        """Refuse a request that this process has no memory for; end the link for other frames."""
        kind, _, _, header, body, _, _ = fields
        if self._admission is None or kind not in (CALL, SERVICE):
            raise OSError(errno.ENOMEM, f"no memory for a message of {header + body} bytes")
        if self._parking is not None:
            self._admission.unpark(self._parking[1])
            self._parking = None
        why = b"has no memory for a request of %d bytes" % (header + body)
        return self._begin_skipping(fields, deadline, why)

    # Requests that need room.

    def _ask(
        self,
        admission: Admission,
        nbytes: int,
        then: Callable[[bool, float | None], Frame | None],
        deadline: float | None,
    ) -> Frame | None:
        """Go on with `then` when there is room, or when it is certain that there will be none."""
        # However this read ends, the next one goes on here.
        self._go_on = partial(self._ask, admission, nbytes, then)
        # An interrupt of this wait, which may be long, loses nothing.
        self.is_torn = False
        if deadline != NOW:
            self.spinning.about_to_sleep()
        is_admitted = admission.decide(nbytes, deadline)
        self.awaits_room = is_admitted is None
        if is_admitted is None:
            return None
        self.is_torn, self._came, self._go_on = True, _OF_LARGE, None
        return then(is_admitted, deadline)

    def _begin_skipping(
        self, fields: Fields, deadline: float | None, why: bytes = b""
    ) -> Frame | None:
        kind, _, _, header, body, _, _ = fields
        self._start += _PREFIX_BYTES
        refused = bytes((kind,)) + why
        self._go_on = partial(self._skip, fields, [header + body], bytearray(), refused)
        return self._go_on(deadline)

    def _skip(
        self,
        fields: Fields,
        left: list[int],
        table: bytearray,
        refused: bytes,
        deadline: float | None,
    ) -> Frame | None:
        """Receive the bytes of an unwanted request into the room, and drop them.

        All but the table of buffers in shared memory: their descriptors have come, too, and would
        be taken for the next frame's; and the sender waits for the segments.
        """
        _, flags, count, _, body, ident, parent = fields
        wanted = count * PLACED_ENTRY if flags & PLACED else 0
        while True:
            here = min(left[0], self._end - self._start)
            if len(table) < wanted:
                # The table follows the header.
                came = self._view[self._start : self._start + here][max(0, left[0] - body) :]
                table += came[: wanted - len(table)]
            self._start += here
            left[0] -= here
            if not left[0]:
                break
            if not self._fill(1, deadline):
                return None
        self._go_on, self._came = None, _OF_LARGE
        if flags & PLACED:
            self._map(split_table(table, count))
        return Frame(REFUSED, flags & ~PLACED, ident, parent, refused, (), self._take())

    def _fetch(self, frame: Frame, deadline: float | None) -> Frame | None:
        """Map the buffers that lie in shared memory; if they are a request's, ask for room."""
        frame.buffers, nbytes = self._map(frame.buffers)
        frame.flags &= ~PLACED
        if self._admission is None or frame.kind not in (CALL, SERVICE):
            return frame
        if self._admission.admit(nbytes):
            frame.cost = self._take()
            return frame
        if not frame.flags & CREATES and self._admission.park(0):
            frame.waits = (nbytes, 0)
            return frame
        return self._ask(self._admission, nbytes, partial(self._take_or_refuse, frame), deadline)

    def _take_or_refuse(self, frame: Frame, is_admitted: bool, _: float | None) -> Frame:
        frame.cost = self._take()
        if is_admitted:
            return frame
        kind = bytes((frame.kind,))
        return Frame(REFUSED, frame.flags, frame.ident, frame.parent, kind, (), frame.cost)

    def _map(self, buffers: Sequence[Buffer | Placement]) -> tuple[list[Buffer], int]:
        if self._sharing is None:
            raise ProtocolViolation("the peer names shared memory, which was not agreed on")
        fetched, nbytes = self._sharing.fetch(buffers)
        self.received += nbytes
        return fetched, nbytes
