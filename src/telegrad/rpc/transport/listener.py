"""Listening for other workers: one thread accepts and authenticates connections.

All connections that have not proved the key yet share this thread, which waits for none of them
alone; a slow or silent stranger costs a descriptor until its deadline, and when too many are open
the oldest is dropped (a worker's handshake takes a millisecond). Invariant: whatever a stranger
sends, its connection is closed and logged with its address (refusals.py), and nothing else is
disturbed.
"""

import contextlib
import errno
import logging
import math
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextvars import Context

from telegrad.errors import PeerError, UsageError
from telegrad.rpc.security.introduction import Purpose, Side
from telegrad.rpc.security.refusals import Refusals
from telegrad.rpc.transport.address import Address, parse_address
from telegrad.rpc.transport.connection import Connection
from telegrad.rpc.transport.directory import check_private_directory, remove_abandoned_socket
from telegrad.rpc.transport.identity import Identity
from telegrad.rpc.transport.pending_connection import Opening
from telegrad.rpc.transport.user import peer_process

_log = logging.getLogger("telegrad.rpc")

_BACKLOG = 512
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
# Seconds for which accepting pauses when the process has no descriptor left.
_REST = 0.1


def listen(
    address: str,
    *,
    identity: Identity,
    on_connection: Callable[[Connection], None],
    purpose: Purpose = Purpose.LINK,
    handshake_timeout: float = 5.0,
    most_unproved: int = 256,
) -> "Listener":
    """Listen at the address and call `on_connection` for each peer that proves the key.

    Only peers that dialled for this `purpose`, and meant this worker, are let in.

    The call is made on the listener's thread and must not wait. `Listener.address` is the bound
    address, with the port chosen by the system in place of port 0.
    """
    wanted = parse_address(address)
    wanted.check()
    identity.contexts_for(wanted)
    sock, bound = _bind(wanted)
    return Listener(sock, bound, identity, on_connection, purpose, handshake_timeout, most_unproved)


class Listener:
    """A bound address and its thread."""

    def __init__(
        self,
        sock: socket.socket,
        address: Address,
        identity: Identity,
        on_connection: Callable[[Connection], None],
        purpose: Purpose,
        handshake_timeout: float,
        most_unproved: int,
    ) -> None:
        self.address = address.text
        self._address = address
        self._socket = sock
        self._identity = identity
        self._on_connection = on_connection
        self._purpose = purpose
        self._handshake_timeout = handshake_timeout
        self._most_unproved = most_unproved
        # In order of arrival, which is the order of the deadlines, too.
        self._openings: dict[socket.socket, Opening] = {}
        self._refusals = Refusals(identity.name)
        self._accepts_again = 0.0
        self._selector = selectors.DefaultSelector()
        self._waker, self._wakes = socket.socketpair()
        self._selector.register(self._wakes, selectors.EVENT_READ)
        self._selector.register(sock, selectors.EVENT_READ)
        self._thread = threading.Thread(
            target=Context().run,
            args=(self._run,),
            name=f"telegrad-listener-{identity.name}",
            daemon=True,
        )
        self._closing = threading.Lock()
        self._closed = False
        self._thread.start()

    def close(self) -> None:
        """Stop listening, drop peers that have not proved the key; may be called again."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        # The thread may have seen the flag and closed its end already.
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")
        self._waker.close()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> "Listener":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _run(self) -> None:
        try:
            while not self._closed:
                for ready, _ in self._selector.select(self._patience()):
                    if ready.fileobj is self._socket:
                        self._accept()
                    elif opening := self._openings.get(ready.data):
                        self._step(opening)
                self._drop_late()
        finally:
            self._free()

    def _patience(self) -> float | None:
        """Return the seconds until the next deadline, None if there is none."""
        due = [opening.deadline for opening in self._openings.values()][:1]
        due.append(self._accepts_again or math.inf)
        due.append(self._refusals.due)
        soonest = min(due)
        return None if soonest == math.inf else max(0.0, soonest - time.monotonic())

    def _accept(self) -> None:
        try:
            sock, peer = self._socket.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            _log.error("%s: can't accept connections for now (%s)", self.address, error)
            self._selector.unregister(self._socket)
            self._accepts_again = time.monotonic() + _REST
            return
        if len(self._openings) >= self._most_unproved:
            oldest = next(iter(self._openings.values()))
            if not oldest.is_over:
                reason = f"{oldest.address}: {self._most_unproved} newer ones are waiting"
                self._note_refusal(oldest, reason)
            self._end(oldest)
        now = time.monotonic()
        try:
            opening = Opening(
                sock,
                _describe(sock, peer),
                Side.LISTENER,
                self._identity,
                purpose=self._purpose,
                deadline=now + self._handshake_timeout,
                contexts=self._identity.contexts_for(self._address),
            )
        except OSError:
            sock.close()
            return
        self._openings[opening.socket] = opening
        self._selector.register(opening.socket, selectors.EVENT_READ, opening.socket)
        self._step(opening)

    def _step(self, opening: Opening) -> None:
        if opening.is_over:
            if opening.drain() or opening.deadline <= time.monotonic():
                self._end(opening)
            return
        try:
            connection = opening.step(time.monotonic())
        except PeerError as error:
            self._note_refusal(opening, str(error))
            if opening.is_over:
                # Keep it until the other side has received the refusal.
                self._selector.modify(opening.socket, selectors.EVENT_READ, opening.socket)
            else:
                self._end(opening)
            return
        if connection is None:
            events = selectors.EVENT_WRITE if opening.waits_for_write else selectors.EVENT_READ
            self._selector.modify(opening.socket, events, opening.socket)
            return
        self._forget(opening)
        try:
            self._on_connection(connection)
        except Exception:
            _log.exception("%s: a new connection could not be served", connection)
            connection.close()

    def _drop_late(self) -> None:
        now = time.monotonic()
        if self._accepts_again and now >= self._accepts_again:
            self._accepts_again = 0.0
            self._selector.register(self._socket, selectors.EVENT_READ)
        for opening in list(self._openings.values()):
            if opening.deadline > now:
                break
            self._step(opening)
        self._refusals.catch_up(now)

    def _end(self, opening: Opening) -> None:
        self._forget(opening)
        opening.close()

    def _note_refusal(self, opening: Opening, reason: str) -> None:
        # Without the port or the process, which differ each time a stranger comes.
        source = opening.address.partition(" port ")[0].rpartition(" of ")[2]
        said = f"refused a connection to {self.address} from {reason}"
        self._refusals.note(source, time.monotonic(), said, reason=reason)

    def _forget(self, opening: Opening) -> None:
        del self._openings[opening.socket]
        self._selector.unregister(opening.socket)

    def _free(self) -> None:
        for opening in self._openings.values():
            opening.close()
        self._refusals.catch_up(math.inf)
        self._selector.close()
        self._socket.close()
        self._wakes.close()
        if self._address.path:
            with contextlib.suppress(OSError):
                os.unlink(self._address.path)


def _bind(address: Address) -> tuple[socket.socket, Address]:
    if address.scheme == "unix":
        check_private_directory(os.path.dirname(address.path))
        remove_abandoned_socket(address.path)
    found = address.resolve()
    for family, where in found:
        try:
            sock = _bind_one(family, where)
            break
        except OSError as error:
            # A name may have addresses of other machines, or of a family that this one lacks.
            if error.errno not in _NOT_HERE or where == found[-1][1]:
                raise UsageError(_explain_bind(address, error)) from None
    if address.scheme == "unix":
        return sock, address
    return sock, Address(address.scheme, host=address.host, port=sock.getsockname()[1])


def _bind_one(family: socket.AddressFamily, where: str | tuple[str, int]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Take a port even if its last owner has just ended.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(where)
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _explain_bind(address: Address, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"{address.text} is in use by another process: end it, or choose another address "
            "(MASTER_PORT; port 0 takes a free one)"
        )
    if error.errno is None and "path too long" in str(error):
        return f"{address.text} is too long for a Unix socket: choose a shorter directory"
    return f"can't listen at {address.text} ({error}): choose an address of this machine"


def _describe(sock: socket.socket, peer: object) -> str:
    """Return the other end's address or, for a Unix socket, which has none, its process."""
    if isinstance(peer, tuple):
        return f"{peer[0]} port {peer[1]}"
    process = peer_process(sock)
    return "a local process" if process is None else f"process {process[0]} of user {process[1]}"
