"""Shared memory for large arrays between workers on one host, pooled by the sender.

A segment is an anonymous memory file (memfd) that belongs to one sender and one receiver:

1. The sender takes a segment from its pool, fills it and names it in a frame. The descriptor is
   sent with the first such frame only.
2. The receiver maps a new segment once, keeps the mapping, and makes arrays right on it.
3. Behind the room for data lies a mark: set by the sender before it sends, cleared by the receiver
   when the last array on the segment is gone. This needs no message.
4. The sender may now fill it again. Its pages are there on both sides, and that is the gain: a
   fresh segment loses more to page faults than the copy it saves.

Sizes of segments are powers of two. A pool keeps the pages of free segments up to a bound; beyond
it the pages of the least recently used one go back to the system, as do those of segments unused
for a while; the segment and both mappings stay. Files without names leave nothing behind, however a
process ends. After a fork two processes may use a segment received before: it is never given back
to the sender.

Knows nothing of frames. Invariants: a segment is never refilled while an array on it is
alive; a mapping never becomes shorter than it was at first (the file's size is sealed), so no peer
can make a read fault. A receiver that clears a mark too early harms its own arrays only.
"""

import _thread
import collections
import ctypes
import errno
import fcntl
import itertools
import mmap
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import msgspec

from telegrad.errors import ProtocolViolation

SEGMENTS = (
    hasattr(os, "memfd_create") and hasattr(fcntl, "F_ADD_SEALS") and hasattr(mmap, "MADV_REMOVE")
)
"""Whether this system has sealed memory files."""

SMALLEST_SEGMENT = 256 << 10
"""For fewer bytes the socket is as fast."""

AT_ONCE = 16 << 20
"""Bytes that one call backs by pages, or copies, while it holds the interpreter's lock.

Other threads run between two such calls: else a peer would take a large message for silence.
"""

TURNS_UP_TO = 4 << 20
"""Up to this many bytes two segments take turns: memory just read by the peer is slow to write."""

_MOST_SEGMENTS = 1024
# Linux's values; Python has no constants for them.
_MAP_FIXED = 0x10
_MADV_POPULATE_WRITE = 23
# Where the mark lies: on a page of its own behind the data.
_MARK_BYTES = mmap.PAGESIZE


def _map(fd: int, nbytes: int) -> mmap.mmap:
    """Return a shared mapping of the file that keeps no descriptor.

    Python's own mapping keeps a copy of the descriptor as long as it lives, and a thousand segments
    would use up all descriptors. So Python maps plain memory, and the file is mapped over it.
    """
    memory = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    readable = mmap.PROT_READ | mmap.PROT_WRITE
    if _libc_mmap(start, nbytes, readable, mmap.MAP_SHARED | _MAP_FIXED, fd, 0) != start:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return memory


class Segment:
    """One of the sender's segments. `fd` is sent while `is_new`; `view` is the memory to fill.

    `is_taken`: a thread of the sender fills or sends it. `used`: the time of its last use.
    """

    __slots__ = ("_memory", "fd", "id", "is_new", "is_taken", "resident", "size", "used", "view")

    def __init__(self, segment_id: int, size: int) -> None:
        self.id = segment_id
        self.size = size
        self.is_new = True
        self.is_taken = False
        self.resident = 0
        self.used = 0.0
        self.fd = os.memfd_create("telegrad", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.fd, size + _MARK_BYTES)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)
            self._memory = _map(self.fd, size + _MARK_BYTES)
        except BaseException:
            self.close_fd()
            raise
        self.view = memoryview(self._memory)[:0]

    def is_free(self) -> bool:
        """Say whether neither side uses it."""
        return not self.is_taken and not self._memory[self.size]

    def populate(self, nbytes: int) -> bool:
        """Have the first `nbytes` backed by pages; return False if the system has none to give.

        Otherwise the first write without a page would kill the process.
        """
        try:
            for start in range(0, nbytes, AT_ONCE):
                self._memory.madvise(_MADV_POPULATE_WRITE, start, min(AT_ONCE, nbytes - start))
            self._memory.madvise(_MADV_POPULATE_WRITE, self.size, _MARK_BYTES)
        except OSError as error:
            # Kernels before 5.14 do not know this advice.
            return error.errno == errno.EINVAL
        return True

    def occupy(self, nbytes: int) -> None:
        """Set `view` to the first `nbytes`, and set the mark."""
        self.is_taken = True
        self._memory[self.size] = 1
        self.view = memoryview(self._memory)[:nbytes]

    def fill(self, buffer: bytes | bytearray | memoryview) -> None:
        """Copy the buffer, which is as long as `view`, into it."""
        view, whole = self.view, memoryview(buffer)
        for start in range(0, len(whole), AT_ONCE):
            view[start : start + AT_ONCE] = whole[start : start + AT_ONCE]

    def handed_over(self) -> None:
        """Note that the segment and its descriptor were sent: the next frame only names it."""
        if self.is_new:
            self.is_new = False
            self.close_fd()
        self.is_taken = False

    def vacate(self) -> None:
        """Take the segment back, since it was not sent."""
        self._memory[self.size] = 0
        self.is_taken = False

    def empty(self) -> None:
        """Give the pages back to the system; when touched, they come back as zeros.

        The mark's page stays: it is read even when there is no memory left.
        """
        self._memory.madvise(mmap.MADV_REMOVE, 0, self.size)
        self.resident = 0

    def close_fd(self) -> None:
        """Close the descriptor: the receiver has its own."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class SegmentPool:
    """A sender's segments, for all its peers. Threads may share it."""

    def __init__(
        self,
        most_pooled: int = 1 << 30,
        most_segments: int = _MOST_SEGMENTS,
        idle_after: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep pages of free segments up to `most_pooled` bytes; make at most `most_segments`.

        A segment that was not used for `idle_after` seconds keeps no pages.
        """
        self._most_pooled = most_pooled
        self._idle_after = idle_after
        self._clock = clock
        self._most_segments = most_segments
        self._lock = threading.RLock()
        self._is_busy = False
        # Lost peers whose segments must still be dropped.
        self._gone: list[Hashable] = []
        self._ids = itertools.count(1)
        # All segments, by peer and size, in the order of their last use.
        self._shelves: dict[tuple[Hashable, int], list[Segment]] = collections.defaultdict(list)
        self._count = 0
        self.resident = 0
        """Bytes of all segments' pages, free or in use."""

    def take(self, peer: Hashable, nbytes: int) -> Segment | None:
        """Return a segment for the peer with a view of `nbytes`, or None to use the socket.

        The caller calls `handed_over` on a segment that it sent, and `vacate` on one that it did
        not send after all.
        """
        size = max(SMALLEST_SEGMENT, 1 << (nbytes - 1).bit_length())
        with self._lock:
            if self._is_busy:
                return None
            self._is_busy = True
            try:
                segment = self._find(peer, size)
                if segment is not None and not self._occupy(peer, segment, nbytes):
                    segment = None
                self._drop_gone()
            finally:
                self._is_busy = False
        return segment

    def _occupy(self, peer: Hashable, segment: Segment, nbytes: int) -> bool:
        """Prepare a segment to be filled; say whether the system had the pages."""
        if nbytes > segment.resident and not segment.populate(nbytes):
            self.resident -= segment.resident
            segment.empty()
            if segment.is_new:
                self._shelves[peer, segment.size].remove(segment)
                segment.close_fd()
                self._count -= 1
            return False
        segment.occupy(nbytes)
        segment.used = self._clock()
        if nbytes > segment.resident:
            self.resident += nbytes - segment.resident
            segment.resident = nbytes
            if self.resident > self._most_pooled:
                self._trim()
        return True

    def _find(self, peer: Hashable, size: int) -> Segment | None:
        """Return a free segment, or a new one, as the last on its shelf."""
        shelf = self._shelves[peer, size]
        count = len(shelf)
        is_full = self._count >= self._most_segments
        if count > 1:
            # The last but one first: two take turns. Segments that the peer keeps for long are
            # soon at the far end.
            order: Iterable[int] = itertools.chain((-2, -1), range(-3, -count - 1, -1))
        else:
            order = range(-count, 0) if is_full or size > TURNS_UP_TO else ()
        for index in order:
            if shelf[index].is_free():
                shelf.append(shelf.pop(index))
                return shelf[-1]
        if is_full:
            return None
        try:
            segment = Segment(next(self._ids), size)
        except OSError:
            return None
        self._count += 1
        shelf.append(segment)
        return segment

    def forget(self, peer: Hashable) -> None:
        """Drop all segments of a peer that is gone."""
        self._gone.append(peer)
        self.trim()

    def trim(self) -> None:
        """Give back pages of free segments that are idle or beyond the bound.

        Segments may have become free since the last check.
        """
        with self._lock:
            if self._is_busy:
                return
            self._is_busy = True
            try:
                self._drop_gone()
                if self.resident:
                    self._trim()
            finally:
                self._is_busy = False

    def _drop_gone(self) -> None:
        while self._gone:
            peer = self._gone.pop()
            for key in [key for key in self._shelves if key[0] == peer]:
                for segment in self._shelves.pop(key):
                    segment.close_fd()
                    self._count -= 1
                    self.resident -= segment.resident

    def __len__(self) -> int:
        return self._count

    def free(self) -> list[Segment]:
        """Return the segments that neither side uses."""
        return [one for shelf in self._shelves.values() for one in shelf if one.is_free()]

    def _trim(self) -> None:
        free = sorted(self.free(), key=lambda segment: segment.used)
        excess = sum(segment.resident for segment in free) - self._most_pooled
        idle_before = self._clock() - self._idle_after
        for segment in free:
            if excess <= 0 and segment.used > idle_before:
                return
            excess -= segment.resident
            self.resident -= segment.resident
            segment.empty()


class _Adopted(msgspec.Struct, frozen=True):
    """A receiver's mapping, and the type of its leases, which cover all of it."""

    memory: mmap.mmap
    lease: type[Any]


_process = object()
"""Identifies this process between two forks."""


def _renew() -> None:
    global _process
    _process = object()


if SEGMENTS:
    _libc_mmap = ctypes.CDLL(None, use_errno=True).mmap
    _libc_mmap.restype = ctypes.c_void_p
    _libc_mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *3 * [ctypes.c_int], ctypes.c_long]
    # Before the fork, so that neither side gives back a segment that both use. After it, on both
    # sides, for segments that other threads received while modules prepared for the fork.
    os.register_at_fork(before=_renew, after_in_parent=_renew, after_in_child=_renew)


def _lease_type(nbytes: int) -> type[Any]:
    """Return a type whose instances clear their mark when freed, at half a finalizer's price.

    Types are freed late, so this one must not refer to the mapping.
    """
    fence = _thread.allocate_lock()
    fence.acquire()

    class Lease(ctypes.c_char * (nbytes + _MARK_BYTES)):  # type: ignore[misc]
        process: object

        def __del__(self) -> None:
            if self.process is not _process:
                return
            # A release, then an acquisition: all reads are done before the mark is cleared,
            # even on processors that may reorder a load with a later store.
            fence.release()
            fence.acquire()
            self[nbytes] = b"\0"

    return Lease


class SegmentMap:
    """A receiver's mappings of its peers' segments. Threads may share it."""

    def __init__(self, most_segments: int = _MOST_SEGMENTS) -> None:
        """Take up to `most_segments` from each peer."""
        self._most_segments = most_segments
        self._lock = threading.RLock()
        self._adopted: dict[Hashable, dict[int, _Adopted]] = {}

    def adopt(self, peer: Hashable, segment_id: int, fd: int, nbytes: int) -> None:
        """Map a new segment for `nbytes`, which the peer sealed, and close the descriptor."""
        try:
            _check_sealed(fd, nbytes, f"the segment {segment_id} of {peer}")
            with self._lock:
                segments = self._adopted.setdefault(peer, {})
                if segment_id in segments or len(segments) >= self._most_segments:
                    raise ProtocolViolation(
                        f"expected a new segment, one of {self._most_segments} at most, got the "
                        f"id {segment_id} of {peer} besides {len(segments)}"
                    )
                memory = _map(fd, nbytes + _MARK_BYTES)
                segments[segment_id] = _Adopted(memory, _lease_type(nbytes))
        finally:
            os.close(fd)

    def view(self, peer: Hashable, segment_id: int, nbytes: int) -> memoryview:
        """Return the first bytes of a received segment: mapped, not copied, writable.

        When the view and everything made from it is gone, the sender may use the segment again.
        Call this once for each arrival.
        """
        adopted = self._adopted.get(peer, {}).get(segment_id)
        if adopted is None:
            raise ProtocolViolation(f"{peer} names the segment {segment_id}, which it never sent")
        size = len(adopted.memory) - _MARK_BYTES
        if nbytes > size:
            raise ProtocolViolation(
                f"{peer} names {nbytes} bytes of the segment {segment_id}, which has {size}"
            )
        # Everything made from this view keeps the lease alive, not just the mapping: NumPy drops
        # intermediate arrays and memoryviews from the chain of bases, but not the exporter.
        lease = adopted.lease.from_buffer(adopted.memory)
        lease.process = _process
        return memoryview(lease).cast("B")[:nbytes]

    def forget(self, peer: Hashable) -> None:
        """Drop the mappings of a peer that is gone; arrays that still lie on them stay valid."""
        with self._lock:
            self._adopted.pop(peer, None)


def _check_sealed(fd: int, nbytes: int, what: str) -> None:
    size = os.fstat(fd).st_size - _MARK_BYTES
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
