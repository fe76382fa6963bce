"""An authenticated stream of bytes to one peer, over TCP on this machine, without TLS.

    record   size of the payload u32 | payload | the first 16 bytes of
             HMAC-SHA256(key of the direction, number of the record u64 ‖ size u32 ‖ payload)

Records are numbered from 0 in each direction, and the keys belong to this connection alone: so a
record that was changed, dropped, repeated, reordered, taken from another connection or sent back to
its maker has a wrong tag. Nothing is encrypted; docs/security.md says who could read it, and why
this is used and not TLS.

Invariant: only bytes of proved records are given to callers, and none after a record that failed.
A record of which the socket took a part is kept here, and its rest is sent before anything else.
"""

import hashlib
import hmac
import math
import socket
import struct
from collections.abc import Sequence

from telegrad.errors import ProtocolViolation
from telegrad.rpc.security.handshake import Agreement
from telegrad.rpc.security.keys import SessionKeys
from telegrad.rpc.transport.connection import Buffer, PlainConnection, Unsent

RECORD_BYTES = 64 << 10
"""The largest payload of a record: small enough to be hashed in the processor's cache."""

_TAG_BYTES = 16
_BLOCK_BYTES = hashlib.sha256().block_size
_SIZE = struct.Struct("<I")
_COVERED = struct.Struct("<QI")
_BESIDE = _SIZE.size + _TAG_BYTES
# Room for one unfinished record, and for those received together with its end.
_ROOM = 2 * (RECORD_BYTES + _BESIDE)
# Records of at least so many bytes are large.
_AHEAD = 8 << 10
_ADVICE = "what came was changed, dropped, repeated or put in on the way"


class _Seal:
    """One direction's key; `number` is the next record's.

    The tag is HMAC-SHA256 by its definition (RFC 2104): two hashes that have taken in the key are
    copied for each record, which takes half as long as making a new `hmac` object.
    """

    __slots__ = ("_inner", "_outer", "number")

    def __init__(self, key: bytes) -> None:
        block = key.ljust(_BLOCK_BYTES, b"\0")
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block))
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in block))
        self.number = 0

    def tag(self, payload: Buffer) -> bytes:
        """Return the tag of the next record."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(_COVERED.pack(self.number, len(payload)))
        inner.update(payload)
        outer.update(inner.digest())
        return outer.digest()[:_TAG_BYTES]


class SealedConnection(PlainConnection):
    """A connection over TCP whose records are authenticated; descriptors can't be sent on it."""

    def __init__(
        self, sock: socket.socket, agreement: Agreement, address: str, keys: SessionKeys
    ) -> None:
        super().__init__(sock, agreement, address)
        self._sending, self._receiving = _Seal(keys.sending), _Seal(keys.receiving)
        # The rest of a record of which the socket took a part.
        self._begun = b""
        self._room = bytearray(_ROOM)
        self._view = memoryview(self._room)
        # Where the bytes that were received and not proved yet begin and end.
        self._start = self._end = 0
        # The part of the room that is proved and not yet given to the caller.
        self._proved = self._view[:0]
        self._receive = sock.recv_into
        self.pending = self._pending
        self.recv_into_nowait = self._recv_into_nowait

    # Sending.

    def send(
        self, buffers: Sequence[Buffer], fds: Sequence[int] = (), deadline: float = math.inf
    ) -> Unsent | None:
        if fds:
            raise ValueError(f"{self!r} can't carry file descriptors: same_host is False")
        views = [memoryview(buffer) for buffer in buffers if len(buffer)]
        if any(view.nbytes != len(view) for view in views):
            raise TypeError("expected buffers of bytes, got a memoryview of larger items: cast it")
        if self._begun:
            unsent = super().send((self._begun,), (), deadline)
            if unsent is not None:
                self._begun = b"".join(unsent.rest)
                return Unsent(views, True)
            self._begun = b""
        is_begun = False
        while views:
            parts, rest = _cut(views)
            # Copied: other threads may change an array after its tag was made.
            went = self._send_record(b"".join(parts), deadline)
            if went is None:
                return Unsent(views, is_begun)
            if not went:
                return Unsent(rest, True)
            views, is_begun = rest, True
        return None

    def send_small(self, data: bytes, deadline: float) -> Unsent | None:
        if self._begun or not 0 < len(data) <= RECORD_BYTES:
            return self.send((data,), (), deadline)
        went = self._send_record(data, deadline)
        return None if went else Unsent([memoryview(data)] if went is None else [], went is False)

    def unsent(self, whole: Sequence[Buffer]) -> bytes | None:
        # An interrupt may have come before the sending of a record was noted.
        return None

    def _send_record(self, payload: bytes, deadline: float) -> bool | None:
        """Send one record; False if a part of it is left at the deadline, None if all is."""
        record = (_SIZE.pack(len(payload)), payload, self._sending.tag(payload))
        if len(payload) < _AHEAD:
            unsent = super().send_small(b"".join(record), deadline)
        else:
            unsent = super().send(record, (), deadline)
        if unsent is None:
            self._sending.number += 1
            return True
        if not unsent.is_begun:
            # It may be dropped, so the next record takes its number.
            return None
        self._sending.number += 1
        self._begun = b"".join(unsent.rest)
        return False

    # Receiving.

    def _pending(self) -> int:
        try:
            return len(self._proved) or self._whole()
        except (ProtocolViolation, struct.error):
            # A read would fail, or another thread is reading, and will ask again.
            return 1

    def _recv_into_nowait(self, view: memoryview) -> int:
        while not (self._proved or self._prove_next()):
            if not self._receive_more():
                return 0
        taken = 0
        while True:
            some = self._proved[: len(view) - taken]
            taken += len(some)
            view[taken - len(some) : taken] = some
            self._proved = self._proved[len(some) :]
            if self._proved or taken == len(view) or not self._prove_next():
                return taken

    def _receive_more(self) -> int:
        """Receive bytes behind those in the room; return how many, 0 at the stream's end."""
        if self._start == self._end:
            self._start = self._end = 0
        known = self._end - self._start >= _SIZE.size
        size = _SIZE.unpack_from(self._room, self._start)[0] if known else 0
        last = self._start + size + _BESIDE
        if last > _ROOM:
            came = self._end - self._start
            self._room[:came] = self._room[self._start : self._end]
            self._start, self._end, last = 0, came, last - self._start
        # No more than a large record's rest: so the next record begins at the room's start.
        end = last if last - self._end > _AHEAD else _ROOM
        count = self._receive(self._view[self._end : end])
        self._end += count
        return count

    def _whole(self) -> int:
        """Return the size of the next record's payload if the whole record has come, else 0."""
        came = self._end - self._start
        if came < _SIZE.size:
            return 0
        size: int = _SIZE.unpack_from(self._room, self._start)[0]
        if not 0 < size <= RECORD_BYTES:
            raise ProtocolViolation(
                f"expected a record of 1 to {RECORD_BYTES} bytes from {self.peer_name}, got one of "
                f"{size}: {_ADVICE}"
            )
        return size if size + _BESIDE <= came else 0

    def _prove_next(self) -> bool:
        """Verify the next record if it has come; say whether it has."""
        size = self._whole()
        if not size:
            return False
        first = self._start + _SIZE.size
        end = first + size
        payload = self._view[first:end]
        tag = self._receiving.tag(payload)
        if not hmac.compare_digest(tag, self._view[end : end + _TAG_BYTES]):
            raise ProtocolViolation(
                f"expected record {self._receiving.number} of {self.peer_name}, got one that it "
                f"did not send as that: {_ADVICE}"
            )
        self._receiving.number += 1
        self._start = end + _TAG_BYTES
        self._proved = payload
        return True


def _cut(views: list[memoryview]) -> tuple[list[memoryview], list[memoryview]]:
    """Return the pieces of the next record, and the rest."""
    room = RECORD_BYTES
    for index, view in enumerate(views):
        if len(view) > room:
            return [*views[:index], view[:room]], [view[room:], *views[index + 1 :]]
        room -= len(view)
        if not room:
            return views[: index + 1], views[index + 1 :]
    return views, []
