"""Large arrays between workers on one host: memory that both map, pooled by the sender.

A segment is an anonymous memory file (memfd) that belongs to one sender and one receiver:

1. The sender takes one from its pool, fills it and names it in a frame. The descriptor goes along
   the first time only.
2. The receiver maps a new segment once, keeps the mapping, and makes arrays right on it.
3. When the last array on it is gone, a finalizer notes the id; ids ride on the next frame back.
4. The sender may now fill it again. Its pages are there on both sides, and that is the gain: a
   fresh segment loses more to page faults than the copy it saves.

Segments come in sizes that are powers of two. A pool keeps the pages of free segments up to a
bound; beyond it the pages of the one that was free the longest go back to the system, while the
segment and both mappings stay. Files without names leave nothing behind, however a process ends.

This knows nothing of frames. Invariants: a segment is never refilled while an array on it is
alive; a mapping never becomes shorter than it was found (the file's size is sealed), so no peer
can make a read fault.
"""

import collections
import ctypes
import itertools
import mmap
import os
import threading
from collections.abc import Callable, Hashable, Sequence
from functools import partial

import msgspec

from telegrad.errors import ProtocolViolation

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["SEGMENTS", "SMALLEST_SEGMENT", "Segment", "SegmentMap", "SegmentPool"]

SEGMENTS = (
    hasattr(os, "memfd_create") and hasattr(fcntl, "F_ADD_SEALS") and hasattr(mmap, "MADV_REMOVE")
)
"""Whether this system has sealed memory files."""

SMALLEST_SEGMENT = 256 << 10
"""Below this many bytes the socket is as fast."""

_MOST_SEGMENTS = 1024


class Segment:
    """One of the sender's segments. `fd` goes along while `is_new`; `view` is what to fill."""

    __slots__ = ("_memory", "fd", "id", "is_new", "peer", "resident", "size", "view")

    def __init__(self, segment_id: int, peer: Hashable, size: int) -> None:
        self.id = segment_id
        self.peer = peer
        self.size = size
        self.is_new = True
        self.resident = 0
        self.fd = os.memfd_create("telegrad", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.fd, size)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)
            self._memory = mmap.mmap(self.fd, size)
        except BaseException:
            self.close_fd()
            raise
        self.view = memoryview(self._memory)[:0]

    def occupy(self, nbytes: int) -> None:
        """Make `view` the first `nbytes`."""
        self.view = memoryview(self._memory)[:nbytes]
        self.resident = max(self.resident, nbytes)

    def empty(self) -> None:
        """Give the pages back to the system; they come again, as zeros, when they are touched."""
        self._memory.madvise(mmap.MADV_REMOVE)
        self.resident = 0

    def close_fd(self) -> None:
        """Close the descriptor: the receiver has its own."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class SegmentPool:
    """A sender's segments, for all its peers. Threads may share it."""

    def __init__(self, most_pooled: int = 1 << 30, most_segments: int = _MOST_SEGMENTS) -> None:
        """Keep pages of free segments up to `most_pooled` bytes, `most_segments` in all."""
        self._most_pooled = most_pooled
        self._most_segments = most_segments
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._in_use: dict[tuple[Hashable, int], Segment] = {}
        self._free: dict[tuple[Hashable, int], list[Segment]] = collections.defaultdict(list)
        # The free segments that hold pages, the longest free first.
        self._warm: dict[int, Segment] = {}
        self._warm_bytes = 0
        self._count = 0

    def take(self, peer: Hashable, nbytes: int) -> Segment | None:
        """Return a segment for the peer with a view of `nbytes`; None if none can be had.

        Then the bytes go over the socket. What is not sent after all goes to `give_back`.
        """
        size = max(SMALLEST_SEGMENT, 1 << (nbytes - 1).bit_length())
        with self._lock:
            free = self._free[peer, size]
            if free:
                segment = free.pop()
                if self._warm.pop(segment.id, None) is not None:
                    self._warm_bytes -= segment.resident
            else:
                if self._count >= self._most_segments:
                    return None
                try:
                    segment = Segment(next(self._ids), peer, size)
                except OSError:
                    return None
                self._count += 1
            self._in_use[peer, segment.id] = segment
        segment.occupy(nbytes)
        return segment

    def handed_over(self, segment: Segment) -> None:
        """Note that the descriptor was sent: the next frame only names the segment."""
        with self._lock:
            segment.is_new = False
            segment.close_fd()

    def give_back(self, segment: Segment) -> None:
        """Take back a segment that was not sent."""
        with self._lock:
            if self._in_use.pop((segment.peer, segment.id), None) is not None:
                self._put(segment)

    def release(self, peer: Hashable, segment_id: int) -> None:
        """Note that the peer has no array on the segment any more."""
        with self._lock:
            segment = self._in_use.pop((peer, segment_id), None)
            if segment is None:
                raise ProtocolViolation(
                    f"{peer} released the segment {segment_id}, which it does not hold"
                )
            # The answer may overtake the sending thread's word that the descriptor has gone.
            segment.is_new = False
            segment.close_fd()
            self._put(segment)

    def forget(self, peer: Hashable) -> None:
        """Drop all segments of a peer that is gone."""
        with self._lock:
            lost = [segment for key, segment in self._in_use.items() if key[0] == peer]
            for key in [key for key in self._free if key[0] == peer]:
                lost += self._free.pop(key)
            for segment in lost:
                self._in_use.pop((peer, segment.id), None)
                if self._warm.pop(segment.id, None) is not None:
                    self._warm_bytes -= segment.resident
                segment.close_fd()
            self._count -= len(lost)

    @property
    def pooled_bytes(self) -> int:
        """How much memory free segments hold."""
        return self._warm_bytes

    def __len__(self) -> int:
        return self._count

    def _put(self, segment: Segment) -> None:
        self._free[segment.peer, segment.size].append(segment)
        self._warm[segment.id] = segment
        self._warm_bytes += segment.resident
        while self._warm_bytes > self._most_pooled:
            oldest = self._warm.pop(next(iter(self._warm)))
            self._warm_bytes -= oldest.resident
            oldest.empty()


class _Adopted(msgspec.Struct, frozen=True):
    """A receiver's mapping, and the type of leases: each lies on all of it."""

    memory: mmap.mmap
    lease: type[ctypes.Array[ctypes.c_char]]


def _lease_type(nbytes: int, on_end: Callable[[], object]) -> type[ctypes.Array[ctypes.c_char]]:
    """Return a type whose instances call `on_end` when they go: half the price of a finalizer."""

    class Lease(ctypes.c_char * nbytes):  # type: ignore[misc]
        def __del__(self) -> None:
            on_end()

    return Lease


class SegmentMap:
    """A receiver's mappings of its peers' segments. Threads may share it."""

    def __init__(self, most_segments: int = _MOST_SEGMENTS) -> None:
        """Take up to `most_segments` from each peer."""
        self._most_segments = most_segments
        self._lock = threading.Lock()
        self._adopted: dict[Hashable, dict[int, _Adopted]] = {}
        self._released: dict[Hashable, collections.deque[int]] = {}

    def adopt(self, peer: Hashable, segment_id: int, fd: int, nbytes: int) -> None:
        """Map a new segment of `nbytes`, which the peer sealed; the descriptor is closed."""
        try:
            _check_sealed(fd, nbytes, f"the segment {segment_id} of {peer}")
            with self._lock:
                segments = self._adopted.setdefault(peer, {})
                released = self._released.setdefault(peer, collections.deque())
                if segment_id in segments or len(segments) >= self._most_segments:
                    raise ProtocolViolation(
                        f"expected a new segment, one of {self._most_segments} at most, got the "
                        f"id {segment_id} of {peer} besides {len(segments)}"
                    )
                lease = _lease_type(nbytes, partial(released.append, segment_id))
                segments[segment_id] = _Adopted(mmap.mmap(fd, nbytes), lease)
        finally:
            os.close(fd)

    def view(self, peer: Hashable, segment_id: int, offset: int, nbytes: int) -> memoryview:
        """Return the bytes of an arrival that holds one array: mapped, not copied, writable.

        When the view and all that was made from it are gone, the id is due to be released. Call
        it once an arrival.
        """
        return self.views(peer, segment_id, [(offset, nbytes)])[0]

    def views(
        self, peer: Hashable, segment_id: int, spans: Sequence[tuple[int, int]]
    ) -> list[memoryview]:
        """As `view`, for an arrival of several arrays; the id is released after the last."""
        with self._lock:
            adopted = self._adopted.get(peer, {}).get(segment_id)
        if adopted is None:
            raise ProtocolViolation(f"{peer} names the segment {segment_id}, which it never sent")
        size = len(adopted.memory)
        for offset, nbytes in spans:
            if offset < 0 or nbytes < 0 or offset + nbytes > size:
                raise ProtocolViolation(
                    f"{peer} names bytes {offset} to {offset + nbytes} of the segment "
                    f"{segment_id}, which has {size}"
                )
        # Everything that is made from these views keeps the lease, and not just the mapping:
        # NumPy drops intermediate arrays and memoryviews from the chain, but not the exporter.
        whole = memoryview(adopted.lease.from_buffer(adopted.memory)).cast("B")
        return [whole[offset : offset + nbytes] for offset, nbytes in spans]

    def due(self, peer: Hashable) -> collections.deque[int]:
        """Return the ids that may go back to the peer, as they will ever be: `releases` takes."""
        return self._released.setdefault(peer, collections.deque())

    def releases(self, peer: Hashable) -> list[int]:
        """Return the ids that may go back to the peer, each once."""
        released = self._released.get(peer)
        ids: list[int] = []
        # Finalizers run at any moment, even in the middle of this, so there is no lock to take:
        # append and popleft are atomic.
        while released:
            ids.append(released.popleft())
        return ids

    def forget(self, peer: Hashable) -> None:
        """Drop the mappings of a peer that is gone; arrays that still lie on them stay valid."""
        with self._lock:
            self._adopted.pop(peer, None)
            self._released.pop(peer, None)


def _check_sealed(fd: int, nbytes: int, what: str) -> None:
    size = os.fstat(fd).st_size
    if size != nbytes or nbytes <= 0:
        raise ProtocolViolation(f"expected {nbytes} bytes in {what}, got {size}")
    needed = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        seals = 0
    if seals & needed != needed:
        raise ProtocolViolation(
            f"expected {what} to be a memory file of sealed size, got seals {seals:#x}: it could "
            "be cut short under our hands"
        )
