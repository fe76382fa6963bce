"""Workers that are connected, for the tests of the transports."""

import contextlib
import datetime
import math
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from telegrad.rpc.security.certificates import mint
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.security.tls import Credentials
from telegrad.rpc.transport import Connection, Identity, Listener, connect, listen
from telegrad.rpc.transport.readiness import is_ready

PATIENCE = 20.0
"""Seconds after which a wait in a test has failed."""


def mint_cluster(directory: Path, *names: str) -> dict[str, Identity]:
    """Return identities with certificates of one cluster."""
    mint(directory, names, now=datetime.datetime.now(datetime.UTC))
    credentials = {name: Credentials(directory / name) for name in names}
    return {
        name: Identity(name, 1, own.load_key(), credentials=own)
        for name, own in credentials.items()
    }


class Clock:
    """Time that passes by sleeping alone, however busy the machine is."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds


class Host:
    """A listening worker and the connections that came to it."""

    def __init__(self, listener: Listener, arrived: "queue.Queue[Connection]") -> None:
        self.listener = listener
        self.address = listener.address
        self.arrived = arrived

    def accept(self) -> Connection:
        return self.arrived.get(timeout=PATIENCE)


@contextlib.contextmanager
def hosting(address: str, identity: Identity, **options: Any) -> Iterator[Host]:
    """Listen at the address; close everything that came afterwards."""
    arrived: queue.Queue[Connection] = queue.Queue()
    with listen(address, identity=identity, on_connection=arrived.put, **options) as listener:
        yield Host(listener, arrived)
    while not arrived.empty():
        arrived.get().close()


@contextlib.contextmanager
def connected(
    address: str, ps: Identity, trainer: Identity
) -> Iterator[tuple[Connection, Connection]]:
    """Yield the trainer's connection and that of ps, which it dialled."""
    with hosting(address, ps) as host:
        dialled = connect(host.address, identity=trainer, expect=ps.name)
        accepted = host.accept()
        try:
            yield dialled, accepted
        finally:
            for connection in (dialled, accepted):
                connection.shutdown()
                connection.close()


def identities(key: ClusterKey | None = None) -> tuple[Identity, Identity]:
    """Return ps and trainer of a cluster on this machine."""
    key = key or ClusterKey.fresh()
    return Identity("ps", 7, key), Identity("trainer", 8, key)


def receive(connection: Connection, view: memoryview) -> int:
    """Wait for bytes, write them to the view, return how many; 0 when the peer has closed."""
    while True:
        try:
            return connection.recv_into_nowait(view)
        except BlockingIOError:
            is_ready(connection.fileno(), math.inf, for_write=False)


def receive_exactly(connection: Connection, size: int) -> bytes:
    """Read `size` bytes, or fail at the end of the stream."""
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = receive(connection, view)
        assert count, f"the stream ended {len(view)} bytes early"
        view = view[count:]
    return bytes(data)
