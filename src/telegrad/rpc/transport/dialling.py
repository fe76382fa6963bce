"""How a worker reaches another: connect, and prove the key.

Invariant: `connect` returns an authenticated connection or raises an error that says which
address was tried, how often and for how long; it never waits beyond its timeout.
"""

import selectors
import socket
import time

from telegrad.errors import Refused, UsageError, WorkerLost
from telegrad.rpc.introduction import Role, Side
from telegrad.rpc.transport.address import UNIX_SOCKETS, Address, parse_address
from telegrad.rpc.transport.connection import Connection
from telegrad.rpc.transport.identity import Identity
from telegrad.rpc.transport.opening import Opening

__all__ = ["connect"]

# The first and the longest pause between attempts while nobody listens yet, in seconds.
_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.25


def connect(
    address: str,
    *,
    identity: Identity,
    expect: str | None = None,
    role: Role = Role.DIALLER_REQUESTS,
    timeout: float = 10.0,
    patience: float = 0.0,
) -> Connection:
    """Return a connection to the worker at the address.

    `expect` is the name it must prove to have; None takes any worker of the cluster. `timeout`
    bounds one attempt, its handshake included. While nobody listens at the address it is tried
    again for `patience` seconds, as a cluster's workers start in any order.
    """
    wanted = parse_address(address)
    _check(wanted, identity)
    began = time.monotonic()
    pause, attempts = _FIRST_PAUSE, 0
    while True:
        attempts += 1
        try:
            sock = _dial(wanted, timeout)
            break
        except OSError as error:
            waited = time.monotonic() - began
            if waited + pause > patience:
                raise WorkerLost(
                    f"no worker could be reached at {address}"
                    f"{f', where {expect} should be' if expect else ''}: tried {attempts} "
                    f"time{'s' if attempts > 1 else ''} in {waited:.1f} s, at last: "
                    f"{error.strerror or error}. Is it running, and is the address right "
                    "(MASTER_ADDR, MASTER_PORT)?"
                ) from None
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
    opening = Opening(
        sock,
        address,
        Side.DIALLER,
        identity,
        deadline=time.monotonic() + timeout,
        role=role,
        expect=expect,
        credentials=identity.credentials if wanted.scheme == "tls" else None,
    )
    return _open(opening)


def _check(address: Address, identity: Identity) -> None:
    if address.scheme == "tcp":
        address.check_loopback()
    if address.scheme == "tls" and identity.credentials is None:
        raise Refused(
            f"{address.text} needs certificates: mint them with `telegrad keygen DIR --workers "
            f"{identity.name},...` and give this worker DIR/{identity.name}"
        )
    if address.scheme == "unix" and not UNIX_SOCKETS:
        raise UsageError(f"{address.text}: this system has no Unix sockets: use tcp://127.0.0.1")


def _dial(address: Address, timeout: float) -> socket.socket:
    if address.scheme == "unix":
        places: list[tuple[int, str | tuple[str, int]]] = [(socket.AF_UNIX, address.path)]
    else:
        places = list(address.resolve())
    last: OSError | None = None
    for family, where in places:
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.settimeout(timeout)
        try:
            sock.connect(where)
            return sock
        except OSError as error:
            sock.close()
            last = error
    assert last is not None
    raise last


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
