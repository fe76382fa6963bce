"""One connection's shared memory: large buffers that are placed instead of sent, and fetched.

Both directions of one connection. Segments belong to the connection: their descriptors go over it
once, the ids of those that are free again come back over it, and they go with it.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from telegrad.errors import ProtocolViolation
from telegrad.rpc.segments import SMALLEST_SEGMENT, Segment, SegmentMap, SegmentPool
from telegrad.rpc.transport.connection import Connection
from telegrad.rpc.wire.frames import RELEASE, Buffer, Placement, pack

__all__ = ["Sharing"]

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[int]).decode


class Sharing:
    """What a connection to a worker on the same host shares; nothing elsewhere.

    `has_fetched`: some of the peer's memory was mapped, so there may be something to release.
    """

    def __init__(
        self, connection: Connection, pool: SegmentPool | None, segments: SegmentMap
    ) -> None:
        self._connection = connection
        self._pool = pool if connection.same_host else None
        self._segments = segments
        self.has_fetched = False

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

    def send(self, parts: Sequence[Buffer], placed: Sequence[Segment]) -> None:
        """Send a frame with the descriptors of those segments that the peer does not know."""
        fresh = [segment for segment in placed if segment.is_new]
        self._connection.send(parts, [segment.fd for segment in fresh])
        for segment in fresh:
            assert self._pool is not None
            self._pool.handed_over(segment)

    def fetch(self, buffers: Sequence[Buffer | Placement]) -> list[Buffer]:
        """Return the buffers of a frame, those in shared memory mapped."""
        if self._pool is None:
            raise ProtocolViolation("the peer names shared memory, which was not agreed on")
        self.has_fetched = True
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

    def releases(self) -> list[Buffer]:
        """Return the frame that tells the peer which segments it has back; empty if none."""
        released = self._segments.releases(self)
        return pack(RELEASE, 0, 0, 0, _encode(released), ()) if released else []

    def take_back(self, header: bytes) -> None:
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
