"""An authenticated stream of bytes to one peer, over TLS.

Two threads must not use an SSL object at once, yet one thread waits for bytes while another sends.
So the socket never blocks: each call on it is made under a lock and returns at once, and threads
wait for readiness outside the lock.

Invariant: the lock is held for one SSL call, and no thread waits while holding it. A record that
the socket did not take in full stays inside the SSL object, which then wants the same bytes again:
so any attempt to send counts as begun.
"""

import contextlib
import math
import socket
import ssl
import threading
from collections.abc import Sequence

from telegrad.rpc.security.handshake import Agreement
from telegrad.rpc.transport.connection import Buffer, Connection, Unsent
from telegrad.rpc.transport.readiness import is_ready

# Small buffers are joined into one record; large ones are sent in pieces, so that a reader can run.
_JOINED_BYTES = 16 << 10
_PIECE_BYTES = 256 << 10


class SecureConnection(Connection):
    """A connection over TLS 1.3; descriptors can't be sent on it."""

    def __init__(
        self, sock: ssl.SSLSocket, agreement: Agreement, address: str, certificate: bytes
    ) -> None:
        super().__init__(agreement, address)
        self.certificate = certificate
        sock.setblocking(False)
        self._socket = sock
        self._lock = threading.RLock()
        self._over = False
        self.pending = self._pending
        self.recv_into_nowait = self._recv_into_nowait

    def fileno(self) -> int:
        return self._socket.fileno()

    def _pending(self) -> int:
        with self._lock:
            return 0 if self._over else self._socket.pending()

    def send(
        self, buffers: Sequence[Buffer], fds: Sequence[int] = (), deadline: float = math.inf
    ) -> Unsent | None:
        if fds:
            raise ValueError(f"{self!r} can't carry file descriptors: same_host is False")
        if sum(map(len, buffers)) <= _JOINED_BYTES:
            buffers = [b"".join(buffers)]
        views = [memoryview(buffer) for buffer in buffers]
        for index, view in enumerate(views):
            for first in range(0, len(view), _PIECE_BYTES):
                left = self._send_piece(view[first : first + _PIECE_BYTES], deadline)
                if left:
                    unsent = view[min(first + _PIECE_BYTES, len(view)) - left :]
                    return Unsent([unsent, *views[index + 1 :]], True)
        return None

    def _send_piece(self, piece: memoryview, deadline: float) -> int:
        """Return how many bytes are left at the deadline."""
        fd = self._socket.fileno()
        while piece:
            try:
                with self._lock:
                    self._check_open()
                    sent = self._socket.send(piece)
                piece = piece[sent:]
            except ssl.SSLWantWriteError:
                if not is_ready(fd, deadline, for_write=True):
                    break
            except ssl.SSLWantReadError:
                if not is_ready(fd, deadline, for_write=False):
                    break
        return len(piece)

    def _recv_into_nowait(self, buffer: memoryview) -> int:
        with self._lock:
            if self._over:
                return 0
            try:
                return self._socket.recv_into(buffer)
            except ssl.SSLEOFError:
                # The peer ended without closing TLS; for frames this is the end of the stream.
                return 0
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise BlockingIOError from None

    def _check_open(self) -> None:
        if self._over:
            raise BrokenPipeError(f"{self!r} was shut down")

    def shutdown(self) -> None:
        with self._lock:
            self._over = True
        # The base class's method: SSLSocket's own drops the encryption and goes on without it.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        self.shutdown()
        self._socket.close()
