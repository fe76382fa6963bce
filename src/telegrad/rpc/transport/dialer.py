"""How a worker dials another: connect, and prove the key.

Invariant: `connect` returns an authenticated connection or raises an error that says which
address was tried, how often and for how long; it never waits beyond its timeout.
"""

import selectors
import socket
import time
from contextlib import suppress

from telegrad.errors import AuthenticationFailed, WorkerLost
from telegrad.rpc.security.introduction import Purpose, Side
from telegrad.rpc.transport.address import Address, SocketAddress, ways_from_here
from telegrad.rpc.transport.connection import Connection
from telegrad.rpc.transport.identity import Identity
from telegrad.rpc.transport.pending_connection import Opening

# The first and the longest pause between attempts while nothing listens yet, in seconds.
_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.25

_ADVICE_ON_MEETING = "Is it running, and is the address right (MASTER_ADDR, MASTER_PORT)?"
# A worker that is dialled by name has told its address before, so it has been there.
_ADVICE_ON_WORKER = "Did it end? A script waits in rpc.shutdown() until everyone has finished."


def connect(
    address: str,
    *,
    identity: Identity,
    expect: str | None = None,
    timeout: float = 10.0,
    patience: float = 0.0,
) -> Connection:
    """Return a connection to the worker at the address.

    `expect` is the name that the worker must have; None dials a meeting place. `timeout` bounds one
    attempt, its handshake included. While nothing listens at the address, or its host is unknown,
    it is tried again for `patience` seconds, as a cluster's workers start in any order. A worker
    of this machine that has an address just for it is dialled there first.
    """
    end = time.monotonic() + timeout
    *near, way = ways_from_here(address)
    for each in near:
        # Its socket may be gone, or hidden from this process, or a certificate may be required
        # because one was revoked: then there is the other address.
        with suppress(WorkerLost, AuthenticationFailed):
            return _connect(each, identity, expect, timeout, 0.0)
    return _connect(way, identity, expect, max(_FIRST_PAUSE, end - time.monotonic()), patience)


def _connect(
    wanted: Address, identity: Identity, expect: str | None, timeout: float, patience: float
) -> Connection:
    began = time.monotonic()
    wanted.check(patience)
    end = began + max(patience, timeout)
    pause, attempts = _FIRST_PAUSE, 0
    while True:
        attempts += 1
        try:
            found = wanted.resolve(max(0.0, began + patience - time.monotonic()))
            left = max(_FIRST_PAUSE, end - time.monotonic())
            return _open(_begin(wanted, found, identity, expect, min(timeout, left)))
        except _Unreachable as error:
            waited = time.monotonic() - began
            if waited + pause > (max(patience, timeout) if error.is_busy else patience):
                raise WorkerLost(
                    f"no worker could be reached at {wanted.text}"
                    f"{f', where {expect} should be' if expect else ''}: tried {attempts} "
                    f"time{'s' if attempts > 1 else ''} in {waited:.1f} s, at last: {error}. "
                    + (_ADVICE_ON_MEETING if expect is None else _ADVICE_ON_WORKER)
                ) from None
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


class _Unreachable(Exception):
    """Nothing listens at the address yet, or the listener's queue is full (`is_busy`)."""

    def __init__(self, reason: str, is_busy: bool) -> None:
        super().__init__(reason)
        self.is_busy = is_busy


def _begin(
    address: Address,
    found: list[SocketAddress],
    identity: Identity,
    expect: str | None,
    timeout: float,
) -> Opening:
    """Connect to the first of the addresses `found` that works; return the handshake."""
    contexts = identity.contexts_for(address)
    deadline = time.monotonic() + timeout
    unreachable = _Unreachable("it has no address", is_busy=False)
    for index, (family, where) in enumerate(found):
        sock: socket.socket | None = None
        try:
            # Fails where the kernel lacks the family: a name may have addresses of several.
            sock = socket.socket(family, socket.SOCK_STREAM)
            # Each address gets its share: one that never answers leaves time for the others.
            share = (deadline - time.monotonic()) / (len(found) - index)
            sock.settimeout(max(_FIRST_PAUSE, share))
            sock.connect(where)
            if _met_itself(sock):
                raise ConnectionRefusedError("nobody listens there")
            return Opening(
                sock,
                address.text,
                Side.DIALLER,
                identity,
                purpose=Purpose.MEETING if expect is None else Purpose.LINK,
                deadline=deadline,
                expect=expect,
                contexts=contexts,
            )
        except OSError as error:
            if sock is not None:
                sock.close()
            # A Unix socket whose queue is full says so at once, where TCP would wait.
            is_busy = isinstance(error, BlockingIOError)
            unreachable = _Unreachable(error.strerror or str(error), is_busy)
    raise unreachable


def _met_itself(sock: socket.socket) -> bool:
    """Say whether the socket reached itself.

    If nothing listens at a port of this machine, TCP may choose that very port for this end of the
    connection; and two ends that both dial are connected.
    """
    return sock.family != socket.AF_UNIX and sock.getsockname() == sock.getpeername()


def _open(opening: Opening) -> Connection:
    with selectors.DefaultSelector() as selector:
        selector.register(opening.socket, selectors.EVENT_READ)
        while True:
            connection = opening.step(time.monotonic())
            if connection is not None:
                return connection
            events = selectors.EVENT_WRITE if opening.waits_for_write else selectors.EVENT_READ
            selector.modify(opening.socket, events)
            selector.select(max(0.0, opening.deadline - time.monotonic()))
