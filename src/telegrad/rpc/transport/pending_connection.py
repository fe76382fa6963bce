"""A connection being opened: drives TLS and the handshake on a non-blocking socket.

`step` goes on as far as it can without waiting, and says through `waits_for_write` what to wait
for; the waiting is done elsewhere (the listener's selector, the dialler's poll). Invariant: not one
byte is read beyond the handshake, and after an error everything that was opened is closed.
"""

import os
import secrets
import socket
import ssl
from collections.abc import Collection

from telegrad.errors import AuthenticationFailed, PeerError, ProtocolViolation
from telegrad.rpc.security.handshake import (
    REFUSAL,
    Closed,
    Effect,
    Elapsed,
    Established,
    Failed,
    Handshake,
    Opened,
    Received,
    Write,
)
from telegrad.rpc.security.introduction import NONCE_BYTES, Ends, Introduction, Purpose, Side
from telegrad.rpc.security.tls import Contexts
from telegrad.rpc.transport.connection import Connection, PlainConnection
from telegrad.rpc.transport.descriptors import (
    DescriptorChannel,
    receive_with_descriptors,
    send_with_descriptors,
)
from telegrad.rpc.transport.identity import Identity
from telegrad.rpc.transport.sealed import SealedConnection
from telegrad.rpc.transport.secure import SecureConnection
from telegrad.rpc.transport.segments import SEGMENTS
from telegrad.rpc.transport.user import check_same_user

_TLS_ADVICE = (
    "expected a peer with TLS 1.3 and a certificate of this cluster's authority that has not "
    "expired and was not revoked (`telegrad keygen`), or one by this cluster's key"
)


class Opening:
    """One side's socket on its way to a Connection."""

    def __init__(
        self,
        sock: socket.socket,
        address: str,
        side: Side,
        identity: Identity,
        *,
        purpose: Purpose,
        deadline: float,
        expect: str | None = None,
        contexts: Contexts | None = None,
    ) -> None:
        """Open as `side`; `contexts` are given if the connection uses TLS."""
        sock.setblocking(False)
        self._is_unix = sock.family == socket.AF_UNIX
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.address = address
        self.deadline = deadline
        self.waits_for_write = False
        self.is_over = False
        """Whether this listener has refused the other side, and must call `drain`."""
        self._side = side
        self._purpose = purpose
        self._identity = identity
        self._expect = expect
        self._contexts = contexts
        self._certificate = b""
        self._fds: list[int] = []
        self._channel: DescriptorChannel | None = None
        self._handshake: Handshake | None = None
        self.socket: socket.socket = sock
        if contexts is not None:
            context = contexts.server if side is Side.LISTENER else contexts.client
            self.socket = context.wrap_socket(
                sock, server_side=side is Side.LISTENER, do_handshake_on_connect=False
            )

    def step(self, now: float) -> Connection | None:
        """Go on as far as possible; return the connection when it is established.

        Raise AuthenticationFailed or ProtocolViolation, and close the socket, if it can't be.
        """
        try:
            return self._step(now)
        except (PeerError, OSError) as error:
            explained = self._explain(error)
            self._hang_up(error)
            raise explained from None
        except BaseException:
            self.close()
            raise

    def _explain(self, error: PeerError | OSError) -> PeerError:
        """Return an error that says at which address, and what was expected."""
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
            return AuthenticationFailed(
                f"{self.address}: TLS failed ({error.reason or error}): {_TLS_ADVICE}"
            )
        if isinstance(error, PeerError):
            return type(error)(f"{self.address}: {error}")
        # A Unix socket never has TLS; there, as a rule, the worker ended during the handshake.
        doubt = (
            "does it still run"
            if self._is_unix
            else "have both sides certificates (TELEGRAD_CREDENTIALS), or neither"
        )
        return ProtocolViolation(
            f"{self.address}: the connection broke during the handshake ({error}): is it a worker, "
            f"and {doubt}?"
        )

    def _hang_up(self, error: PeerError | OSError) -> None:
        """Close the connection; if the other side's certificate was refused, tell it.

        In TLS 1.3 the dialler finishes first, and has sent its introduction when it is refused, by
        an alert or by REFUSAL. Closing a connection with unread bytes resets it, and the dialler
        would not receive the refusal. So this side reads on until the dialler ends.
        """
        is_told = self._handshake is None and self._side is Side.LISTENER
        if not (is_told and isinstance(self.socket, ssl.SSLSocket)):
            self.close()
            return
        try:
            if isinstance(error, AuthenticationFailed):
                self.socket.send(REFUSAL)
            # From here on it is used as a plain socket.
            self.socket.shutdown(socket.SHUT_WR)
            self.is_over = True
        except OSError:
            self.close()

    def drain(self) -> bool:
        """Drop incoming bytes; say whether the stream has ended."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True

    def close(self) -> None:
        """Close the socket and all descriptors received; may be called again."""
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()
        if self._channel is not None:
            self._channel.close()
        self.socket.close()

    def _step(self, now: float) -> Connection | None:
        if self._handshake is None:
            if not self._finish_tls(now):
                return None
            self._handshake = self._start_handshake()
            self._perform(self._handshake.handle(Opened(), now))
        while True:
            data = self._read(self._handshake.wanted)
            if data is None:
                self._perform(self._handshake.handle(Elapsed(), now))
                return None
            event = Received(data) if data else Closed()
            established = self._perform(self._handshake.handle(event, now))
            if established is not None:
                return self._finish(established)

    def _finish_tls(self, now: float) -> bool:
        if not isinstance(self.socket, ssl.SSLSocket):
            return True
        if now >= self.deadline:
            raise AuthenticationFailed("the deadline of the handshake passed during that of TLS")
        self.waits_for_write = False
        try:
            self.socket.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLWantWriteError:
            self.waits_for_write = True
            return False
        return True

    def _start_handshake(self) -> Handshake:
        identity, expect = self._identity, self._expect
        if self._is_unix:
            check_same_user(self.socket)
        certified, digests = None, (b"", b"")
        revoked: Collection[str] = ()
        if isinstance(self.socket, ssl.SSLSocket) and self._contexts is not None:
            certified, self._certificate = self._contexts.check_peer(self.socket)
            if expect is not None and certified != expect:
                raise AuthenticationFailed(
                    f"expected the certificate of {expect}, got that of {certified}: is the "
                    "address out of date?"
                )
            ours, theirs = self._contexts.digest, self._certificate
            digests = (ours, theirs) if self._side is Side.DIALLER else (theirs, ours)
        elif identity.credentials is not None:
            revoked = identity.credentials.current().revoked.values()
        own = Introduction(
            self._side,
            identity.name,
            identity.incarnation,
            secrets.token_bytes(NONCE_BYTES),
            identity.limits,
            identity.segments and SEGMENTS and self._is_unix,
            self._purpose,
            expect or "",
            self._ends(),
        )
        return Handshake(
            own,
            identity.key.valid(),
            deadline=self.deadline,
            certified=certified,
            certificates=digests,
            revoked=revoked,
        )

    def _ends(self) -> Ends | None:
        """Return both ends of plain TCP, which both sides see alike if nothing lies between them.

        TLS has certificates instead: between machines, address translation is legitimate.
        """
        if self._is_unix or self._contexts is not None:
            return None
        here, there = self.socket.getsockname()[:2], self.socket.getpeername()[:2]
        return Ends(here, there) if self._side is Side.DIALLER else Ends(there, here)

    def _perform(self, effects: list[Effect]) -> Established | None:
        established = next((e for e in effects if isinstance(e, Established)), None)
        for effect in effects:
            match effect:
                case Write(data):
                    self._write(data, established is not None and established.agreement.segments)
                case Failed(error):
                    raise error
                case Established():
                    pass
        return established

    def _read(self, wanted: int) -> bytes | None:
        """Return bytes, b"" at the end of the stream, or None if there are none yet."""
        try:
            if not (self._is_unix and self._side is Side.DIALLER):
                return self.socket.recv(wanted)
            data, fds = receive_with_descriptors(self.socket, wanted)
            self._fds += fds
            return data
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None

    def _write(self, data: bytes, with_channel: bool) -> None:
        """Send a message, without waiting: it is far smaller than an empty socket's buffer."""
        if with_channel:
            self._channel, theirs = DescriptorChannel.pair()
            with theirs:
                sent = send_with_descriptors(self.socket, data, [theirs.fileno()])
        else:
            sent = self.socket.send(data)
        if sent != len(data):
            raise ProtocolViolation("the other side does not read: its socket's buffer is full")

    def _finish(self, established: Established) -> Connection:
        agreement = established.agreement
        if isinstance(self.socket, ssl.SSLSocket):
            return SecureConnection(self.socket, agreement, self.address, self._certificate)
        if not self._is_unix:
            return SealedConnection(self.socket, agreement, self.address, established.keys)
        if agreement.segments and self._side is Side.DIALLER:
            if len(self._fds) != 1:
                raise ProtocolViolation(
                    f"expected one descriptor with the listener's proof, got {len(self._fds)}"
                )
            self._channel = DescriptorChannel(socket.socket(fileno=self._fds.pop()))
        elif self._fds:
            raise ProtocolViolation("expected no descriptors in the handshake, got some")
        return PlainConnection(self.socket, agreement, self.address, self._channel)
