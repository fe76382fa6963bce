"""What a worker needs to open connections: who it is, and what proves it.

It opens nothing. Invariant: its representation shows no secret.
"""

import msgspec

from telegrad.rpc.introduction import Limits, check_worker_name
from telegrad.rpc.keys import ClusterKey
from telegrad.rpc.tls import Credentials

__all__ = ["Identity"]


class Identity(msgspec.Struct, frozen=True):
    """One worker's name, incarnation, key and certificate.

    `segments` says that it takes shared memory from workers on the same host, where Unix sockets
    and memfd allow it. `credentials` are needed beyond this machine.
    """

    name: str
    incarnation: int
    key: ClusterKey
    limits: Limits = Limits()
    segments: bool = True
    credentials: Credentials | None = None

    def __post_init__(self) -> None:
        check_worker_name(self.name)
