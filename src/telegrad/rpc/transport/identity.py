"""What a worker needs to open connections: who it is, and what proves it.

It opens nothing. Invariant: its representation shows no secret.
"""

import msgspec

from telegrad.errors import Refused
from telegrad.rpc.security.introduction import Limits, check_worker_name
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.security.tls import Credentials
from telegrad.rpc.transport.address import Address

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

    def credentials_for(self, address: Address) -> Credentials | None:
        """Return the certificate where the wire is TLS, None where it is not."""
        if address.scheme != "tls":
            return None
        if self.credentials is None:
            raise Refused(
                f"{address.text} needs certificates: mint them with `telegrad keygen DIR --workers "
                f"{self.name},...` and set TELEGRAD_CREDENTIALS to DIR/{self.name}"
            )
        return self.credentials
