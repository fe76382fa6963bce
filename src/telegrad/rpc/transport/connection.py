"""An authenticated stream of bytes to one peer, over a plain socket.

It moves bytes and descriptors and knows nothing of frames. A call costs what the socket's own
call costs: `recv_into` *is* the socket's method, `send` is one system call and a comparison.

One thread may read while another writes. The caller keeps two writers apart, and two readers. To
end a connection that others still use, call `shutdown`, wait until they have left, then `close`:
the number of a closed descriptor is given to the next file.
"""

import abc
import contextlib
import select
import socket
import struct
from collections.abc import Callable, Sequence

from telegrad.errors import ProtocolViolation
from telegrad.rpc.handshake import Agreement
from telegrad.rpc.introduction import Limits, Role
from telegrad.rpc.transport.descriptors import DescriptorChannel

__all__ = ["Buffer", "Connection", "PlainConnection", "peer_process"]

# Memoryviews have the format "B", so that `len` counts bytes.
Buffer = bytes | bytearray | memoryview

# Linux, macOS and Windows take at least this many buffers in one call.
_BUFFERS_PER_CALL = 1024
_MSG_DONTWAIT: int | None = getattr(socket, "MSG_DONTWAIT", None)
_CREDENTIALS = struct.Struct("3i")


class Connection(abc.ABC):
    """What both kinds of connection share: who is at the other end, and the verbs."""

    recv_into: Callable[[memoryview], int]
    """Wait for bytes, write them to the buffer, return how many; 0 when the peer has closed."""

    def __init__(self, agreement: Agreement, address: str) -> None:
        self.peer_name: str = agreement.peer_name
        self.peer_incarnation: int = agreement.peer_incarnation
        self.role: Role = agreement.role
        self.version: int = agreement.version
        self.limits: Limits = agreement.limits
        self.address = address
        self.same_host = False
        self.peer_pid: int | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} to {self.peer_name} at {self.address}, {self.role.name}>"

    @abc.abstractmethod
    def fileno(self) -> int:
        """Return the descriptor that becomes readable when bytes come."""

    def pending(self) -> int:
        """Return how many bytes were taken from the descriptor but not yet from here."""
        return 0

    @abc.abstractmethod
    def send(self, buffers: Sequence[Buffer], fds: Sequence[int] = ()) -> None:
        """Send all buffers, in order; `fds` go before them (only if `same_host`)."""

    @abc.abstractmethod
    def recv_into_nowait(self, buffer: memoryview) -> int:
        """As `recv_into`, but raise BlockingIOError when nothing is there."""

    def take_fds(self, count: int | None = None) -> list[int]:
        """Return the next `count` descriptors that the peer sent (all that came without a count).

        The caller owns them. ProtocolViolation if fewer than `count` have come.
        """
        if count:
            raise ProtocolViolation(
                f"expected no file descriptors from {self!r}: it can't carry them"
            )
        return []

    @abc.abstractmethod
    def shutdown(self) -> None:
        """End both directions: a reader that waits gets 0, a writer that waits an OSError."""

    @abc.abstractmethod
    def close(self) -> None:
        """Free the descriptors; may be called again."""


class PlainConnection(Connection):
    """A connection over a Unix socket, or over TCP on this machine."""

    def __init__(
        self,
        sock: socket.socket,
        agreement: Agreement,
        address: str,
        channel: DescriptorChannel | None = None,
    ) -> None:
        super().__init__(agreement, address)
        sock.setblocking(True)
        self._socket = sock
        self._channel = channel
        self._send_one = sock.send
        self._send_many = sock.sendmsg if hasattr(sock, "sendmsg") else None
        self.recv_into = sock.recv_into
        self.same_host = channel is not None
        process = peer_process(sock)
        self.peer_pid = process[0] if process else None

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, buffers: Sequence[Buffer], fds: Sequence[int] = ()) -> None:
        if fds:
            if self._channel is None:
                raise ValueError(f"{self!r} can't carry file descriptors: same_host is False")
            self._channel.send(fds)
        if len(buffers) == 1:
            sent = self._send_one(buffers[0])
            if sent != len(buffers[0]):
                self._send_rest(buffers, sent)
            return
        if self._send_many is None or len(buffers) > _BUFFERS_PER_CALL:
            self._send_rest(buffers, 0)
            return
        sent = self._send_many(buffers)
        for buffer in buffers:
            sent -= len(buffer)
        if sent:
            self._send_rest(buffers, sent + sum(map(len, buffers)))

    def _send_rest(self, buffers: Sequence[Buffer], sent: int) -> None:
        """Send what follows the first `sent` bytes, a thousand buffers at a time."""
        rest = [memoryview(buffer) for buffer in buffers]
        if any(view.nbytes != len(view) for view in rest):
            raise TypeError("expected buffers of bytes, got a memoryview of larger items: cast it")
        first = 0
        while True:
            while first < len(rest) and sent >= len(rest[first]):
                sent -= len(rest[first])
                first += 1
            if first == len(rest):
                return
            rest[first] = rest[first][sent:]
            if self._send_many is None:
                sent = self._send_one(rest[first])
            else:
                sent = self._send_many(rest[first : first + _BUFFERS_PER_CALL])

    def recv_into_nowait(self, buffer: memoryview) -> int:
        if _MSG_DONTWAIT is not None:
            return self._socket.recv_into(buffer, 0, _MSG_DONTWAIT)
        if not select.select([self._socket], [], [], 0)[0]:
            raise BlockingIOError
        return self._socket.recv_into(buffer)

    def take_fds(self, count: int | None = None) -> list[int]:
        return super().take_fds(count) if self._channel is None else self._channel.take(count)

    def shutdown(self) -> None:
        if self._channel is not None:
            self._channel.shutdown()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._socket.close()


def peer_process(sock: socket.socket) -> tuple[int, int] | None:
    """Return the process and user at the other end of a Unix socket, where the kernel tells."""
    if sock.family != getattr(socket, "AF_UNIX", None) or not hasattr(socket, "SO_PEERCRED"):
        return None
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(credentials)
    return pid, user
