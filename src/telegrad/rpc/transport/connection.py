"""An authenticated stream of bytes to one peer; here over a plain Unix socket.

It moves bytes and descriptors and knows nothing of frames. A call costs what the socket's own call
costs: `recv_into_nowait` *is* the socket's method, `send` is one system call and a comparison.

A `send` with a deadline returns the bytes that it could not send by then. The caller must send that
rest before anything else, or end the connection, since a part has been sent. Only if nothing was
begun may the rest be dropped.

One thread may read while another writes. The caller prevents two writers at once, and two readers.
To end a connection that other threads still use, call `shutdown`, wait until they have left, then
`close`: a closed descriptor's number is reused by the next file.
"""

import abc
import contextlib
import math
import socket
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from telegrad.errors import ProtocolViolation
from telegrad.rpc.security.handshake import Agreement
from telegrad.rpc.security.introduction import Limits
from telegrad.rpc.transport.descriptors import DescriptorChannel
from telegrad.rpc.transport.readiness import is_ready
from telegrad.rpc.transport.user import peer_process

# Memoryviews have the format "B", so that `len` counts bytes.
Buffer = bytes | bytearray | memoryview

# Linux and macOS take at least this many buffers in one call.
_BUFFERS_PER_CALL = 1024


NOT_BEGUN: Final[Sequence[Buffer]] = [b""]
"""Marks a `send` that is about to be called."""


class Unsent(msgspec.Struct, frozen=True, gc=False):
    """The bytes not sent in time. `is_begun`: some were sent, so these must be, too."""

    rest: list[memoryview]
    is_begun: bool


class Connection(abc.ABC):
    """The base of all kinds of connection: who is at the other end, and the operations."""

    recv_into_nowait: Callable[[memoryview], int]
    """Receive bytes into the buffer, return how many; 0 when the peer has closed.

    Raises BlockingIOError if there are none.
    """

    def __init__(self, agreement: Agreement, address: str) -> None:
        self.peer_name: str = agreement.peer_name
        self.peer_incarnation: int = agreement.peer_incarnation
        self.limits: Limits = agreement.limits
        self.address = address
        self.same_host = False
        self.peer_pid: int | None = None
        self.certificate = b""
        """The digest of the peer's certificate, if the connection uses TLS."""
        self.under_way: Sequence[Buffer] | None = None
        """The buffers of the last `send`, for `unsent`. The sender first sets it to NOT_BEGUN, or
        to None where an interrupt would leave unknown how much was sent."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} to {self.peer_name} at {self.address}>"

    @abc.abstractmethod
    def fileno(self) -> int:
        """Return the descriptor that becomes readable when bytes come."""

    pending: Callable[[], int] | None = None
    """Return how many bytes at least have been taken from the descriptor and wait to be read.

    None for connections that never keep any.
    """

    @abc.abstractmethod
    def send(
        self, buffers: Sequence[Buffer], fds: Sequence[int] = (), deadline: float = math.inf
    ) -> Unsent | None:
        """Send all buffers, in order; send `fds` before them (only if `same_host`).

        At the deadline, a time of the monotonic clock, return the rest.
        """

    def send_small(self, data: bytes, deadline: float) -> Unsent | None:
        """Send one buffer, as `send` does; most likely there is room for it."""
        return self.send((data,), (), deadline)

    def unsent(self, whole: Sequence[Buffer]) -> bytes | None:
        """Return the rest of `whole`, whose sending was interrupted; None if unknown."""
        return None

    def take_fd(self) -> int:
        """Return the next descriptor that the peer sent, which the caller owns."""
        raise ProtocolViolation(f"expected no file descriptors from {self!r}: it can't carry them")

    @abc.abstractmethod
    def shutdown(self) -> None:
        """End both directions: a waiting reader gets 0, a waiting writer an OSError."""

    @abc.abstractmethod
    def close(self) -> None:
        """Free the descriptors; may be called again."""


def _behind(went: int, buffers: Sequence[Buffer]) -> list[memoryview]:
    """Return the buffers without their first `went` bytes."""
    rest = [memoryview(buffer) for buffer in buffers]
    if any(view.nbytes != len(view) for view in rest):
        raise TypeError("expected buffers of bytes, got a memoryview of larger items: cast it")
    first = 0
    while first < len(rest) and went >= len(rest[first]):
        went -= len(rest[first])
        first += 1
    del rest[:first]
    if rest:
        rest[0] = rest[0][went:]
    return rest


class PlainConnection(Connection):
    """A connection over a Unix socket, between two processes of one user."""

    def __init__(
        self,
        sock: socket.socket,
        agreement: Agreement,
        address: str,
        channel: DescriptorChannel | None = None,
    ) -> None:
        super().__init__(agreement, address)
        sock.setblocking(False)
        self._socket = sock
        self._channel = channel
        self._send_one = sock.send
        self._send_many = sock.sendmsg
        # How many bytes of `under_way` the socket took. A number is added in one step with its
        # system call, by `extend` and `map`: otherwise an interrupt could lose it.
        self._went: list[int] = []
        self.recv_into_nowait = sock.recv_into
        self.same_host = channel is not None
        process = peer_process(sock)
        # The number is 0 for a process in a PID namespace that is invisible from here.
        self.peer_pid = (process[0] or None) if process else None

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(
        self, buffers: Sequence[Buffer], fds: Sequence[int] = (), deadline: float = math.inf
    ) -> Unsent | None:
        if fds:
            if self._channel is None:
                raise ValueError(f"{self!r} can't carry file descriptors: same_host is False")
            self.under_way = None
            if not self._channel.send(fds, deadline):
                return Unsent([memoryview(buffer) for buffer in buffers], False)
        went: list[int] = []
        self._went, self.under_way = went, buffers
        if len(buffers) <= _BUFFERS_PER_CALL:
            with contextlib.suppress(BlockingIOError):
                went.extend(map(self._send_many, (buffers,)))
            if sum(went) == sum(map(len, buffers)):
                return None
        rest = self._send_rest(buffers, deadline)
        return Unsent(rest.rest, True) if rest is not None and fds else rest

    def send_small(self, data: bytes, deadline: float) -> Unsent | None:
        went: list[int] = []
        whole = (data,)
        self._went, self.under_way = went, whole
        try:
            went.extend(map(self._send_one, whole))
            if went[0] == len(data):
                return None
        except BlockingIOError:
            pass
        return self._send_rest(whole, deadline)

    def _send_rest(self, buffers: Sequence[Buffer], deadline: float) -> Unsent | None:
        """Send the rest, a thousand buffers at a time."""
        went = self._went
        while rest := _behind(sum(went), buffers):
            # Sum up in a line that checks for no signal once the sum is made.
            went[:] = (sum(went),)
            try:
                went.extend(map(self._send_many, (rest[:_BUFFERS_PER_CALL],)))
            except BlockingIOError:
                if not is_ready(self._socket.fileno(), deadline, for_write=True):
                    return Unsent(rest, went[0] > 0)
        return None

    def unsent(self, whole: Sequence[Buffer]) -> bytes | None:
        if self.under_way is None:
            return None
        if self.under_way is NOT_BEGUN:
            return b"".join(whole)
        return b"".join(_behind(sum(self._went), self.under_way))

    def take_fd(self) -> int:
        return super().take_fd() if self._channel is None else self._channel.take()

    def shutdown(self) -> None:
        if self._channel is not None:
            self._channel.shutdown()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._socket.close()
