"""One connection's shared memory: large buffers that are placed instead of sent, and fetched.

Serves both directions of the connection. Segments belong to the connection: each descriptor is sent
over it once, and they are freed when it ends.
"""

import math
from collections.abc import Sequence

from telegrad.errors import ProtocolViolation
from telegrad.rpc.transport.connection import Connection, Unsent
from telegrad.rpc.transport.segments import SMALLEST_SEGMENT, Segment, SegmentMap, SegmentPool
from telegrad.rpc.wire.frames import Buffer, Placement


class SharedBuffers:
    """The shared memory of a connection to a worker on the same host; none elsewhere."""

    def __init__(
        self, connection: Connection, pool: SegmentPool | None, segments: SegmentMap
    ) -> None:
        self._connection = connection
        self._pool = pool if connection.same_host else None
        self._segments = segments
        self._most = connection.limits.payload_bytes
        self._is_over = False

    def __repr__(self) -> str:
        # How errors about segments name the peer.
        return f"worker {self._connection.peer_name!r}"

    def places(self, buffers: Sequence[Buffer]) -> bool:
        """Say whether some of them go into shared memory, if enough is available."""
        return self._pool is not None and max(map(len, buffers)) >= SMALLEST_SEGMENT

    def place(
        self, buffers: Sequence[Buffer]
    ) -> tuple[Sequence[Buffer | Placement], list[Segment]]:
        """Copy large buffers into segments; return what goes into the frame, and the segments."""
        pool = self._pool
        if pool is None or not self.places(buffers):
            return buffers, []
        content: list[Buffer | Placement] = []
        placed: list[Segment] = []
        try:
            for buffer in buffers:
                nbytes = len(buffer)
                segment = pool.take(self, nbytes) if nbytes >= SMALLEST_SEGMENT else None
                if segment is None:
                    content.append(buffer)
                    continue
                placed.append(segment)
                segment.fill(buffer)
                content.append(Placement(segment.id, segment.size if segment.is_new else 0, nbytes))
        except BaseException:
            # Ctrl-C, most likely during a long copy.
            self.take_back(placed)
            raise
        if self._is_over:
            # The connection has ended meanwhile: nothing else would free these segments.
            pool.forget(self)
            return buffers, []
        return content, placed

    def send(
        self, parts: Sequence[Buffer], placed: list[Segment], deadline: float = math.inf
    ) -> Unsent | None:
        """Send a frame, with those segments' descriptors that the peer does not have yet.

        If it was not even begun at the deadline, nothing changes: its segments are free again.
        """
        fds = [segment.fd for segment in placed if segment.is_new]
        unsent = self._connection.send(parts, fds, deadline)
        if unsent is not None and not unsent.is_begun:
            self._connection.under_way = None
            self.take_back(placed)
            return unsent
        self.handed_over(placed)
        return unsent

    def handed_over(self, placed: list[Segment]) -> None:
        """Note that segments were sent: each only once, even if this is interrupted and repeated.

        By then another thread may have taken one of them.
        """
        while placed:
            segment = placed[-1]
            del placed[-1]
            segment.handed_over()

    def take_back(self, placed: Sequence[Segment]) -> None:
        """Take back segments that were not sent after all."""
        for segment in placed:
            segment.vacate()

    def fetch(self, buffers: Sequence[Buffer | Placement]) -> tuple[list[Buffer], int]:
        """Return a frame's buffers, those in shared memory mapped, and the size of these."""
        if self._pool is None:
            raise ProtocolViolation("the peer names shared memory, which was not agreed on")
        fetched: list[Buffer] = []
        mapped = 0
        for buffer in buffers:
            if not isinstance(buffer, Placement):
                fetched.append(buffer)
                continue
            mapped += buffer.nbytes
            if mapped > self._most:
                raise ProtocolViolation(
                    f"{mapped} bytes in shared memory are more than the {self._most} agreed on"
                )
            if buffer.fresh:
                fd = self._connection.take_fd()
                self._segments.adopt(self, buffer.segment, fd, buffer.fresh)
            fetched.append(self._segments.view(self, buffer.segment, buffer.nbytes))
        return fetched, mapped

    def forget(self) -> None:
        """Drop everything: the connection has ended."""
        self._is_over = True
        if self._pool is not None:
            self._pool.forget(self)
        self._segments.forget(self)
