"""How a worker over sockets comes to life."""

import secrets

from telegrad.rpc.driver.host import SocketHost
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.options import Options
from telegrad.rpc.security.introduction import Limits
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.security.tls import Credentials
from telegrad.rpc.transport import Identity
from telegrad.rpc.worker import Worker

__all__ = ["start_worker"]


def start_worker(
    name: str,
    id: int,
    address: str,
    key: ClusterKey,
    options: Options | None = None,
    credentials: Credentials | None = None,
) -> Worker:
    """Return a worker that listens at the address; tell it of others with `add_peer`."""
    options = options or Options()
    if credentials is not None:
        # Others would refuse it, one by one, and it would wait for them in vain.
        credentials.check(name)
    # Random, so that no two incarnations of a worker are equal; 63 bits fit everywhere.
    incarnation = secrets.randbits(63) | 1
    identity = Identity(
        name,
        incarnation,
        key,
        Limits(payload_bytes=options.in_flight_bytes_of_peer),
        segments=options.segments,
        credentials=credentials,
    )
    host = SocketHost(identity, address, options)
    return Worker(WorkerInfo(name, id, incarnation), host, options)
