"""One connection's shared memory: large buffers that are placed instead of sent, and fetched.

Both directions of one connection. Segments belong to the connection: their descriptors go over it
once, the ids of those that are free again come back over it, and they go with it.
"""

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from telegrad.errors import ProtocolViolation
from telegrad.rpc.segments import SMALLEST_SEGMENT, Segment, SegmentMap, SegmentPool
from telegrad.rpc.transport.connection import Connection, Unsent
from telegrad.rpc.wire.frames import RELEASE, Buffer, Placement, pack

__all__ = ["Sharing"]

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[int]).decode


class Sharing:
    """What a connection to a worker on the same host shares; nothing elsewhere.

    `released`: the ids of the peer's segments that it may have back.
    """

    def __init__(
        self, connection: Connection, pool: SegmentPool | None, segments: SegmentMap
    ) -> None:
        self._connection = connection
        self._pool = pool if connection.same_host else None
        self._segments = segments
        self.released = segments.due(self)

    def place(
        self, buffers: Sequence[Buffer]
    ) -> tuple[Sequence[Buffer | Placement], list[Segment]]:
        """Copy large buffers into segments; return what goes into the frame, and the segments."""
        pool = self._pool
        if pool is None or max(map(len, buffers)) < SMALLEST_SEGMENT:
            return buffers, []
        content: list[Buffer | Placement] = []
        placed = []
        for buffer in buffers:
            nbytes = len(buffer)
            segment = pool.take(self, nbytes) if nbytes >= SMALLEST_SEGMENT else None
            if segment is None:
                content.append(buffer)
                continue
            segment.view[:] = buffer
            content.append(Placement(segment.id, segment.size if segment.is_new else 0, nbytes))
            placed.append(segment)
        return content, placed

    def send(
        self, parts: Sequence[Buffer], placed: Sequence[Segment], deadline: float = math.inf
    ) -> Unsent | None:
        """Send a frame, after what the peer has back, with descriptors that it does not know.

        What was not even begun at the deadline is as if it had never been asked for.
        """
        released = self._segments.releases(self)
        if released:
            parts = [*pack(RELEASE, 0, 0, 0, _encode(released), ()), *parts]
        fresh = [segment for segment in placed if segment.is_new]
        unsent = self._connection.send(parts, [segment.fd for segment in fresh], deadline)
        if unsent is not None and not unsent.is_begun:
            self.released.extend(released)
            self.give_back(placed)
            return unsent
        for segment in fresh:
            assert self._pool is not None
            self._pool.handed_over(segment)
        return unsent

    def give_back(self, placed: Sequence[Segment]) -> None:
        """Take back segments that were not sent after all."""
        for segment in placed:
            assert self._pool is not None
            self._pool.give_back(segment)

    def fetch(self, buffers: Sequence[Buffer | Placement]) -> list[Buffer]:
        """Return the buffers of a frame, those in shared memory mapped."""
        if self._pool is None:
            raise ProtocolViolation("the peer names shared memory, which was not agreed on")
        fetched: list[Buffer] = []
        for buffer in buffers:
            if isinstance(buffer, Placement):
                if buffer.fresh:
                    (fd,) = self._connection.take_fds(1)
                    self._segments.adopt(self, buffer.segment, fd, buffer.fresh)
                fetched.append(self._segments.view(self, buffer.segment, 0, buffer.nbytes))
            else:
                fetched.append(buffer)
        return fetched

    def take_back(self, header: bytes | bytearray) -> None:
        """Use the segments again that the peer has released."""
        if self._pool is None:
            raise ProtocolViolation("the peer releases shared memory that it never had")
        try:
            ids = _decode(header)
        except msgspec.MsgspecError as error:
            raise ProtocolViolation(f"a malformed release came: {error}") from error
        for number in ids:
            self._pool.release(self, number)

    def forget(self) -> None:
        """Drop everything: the connection has ended."""
        if self._pool is not None:
            self._pool.forget(self)
        self._segments.forget(self)
