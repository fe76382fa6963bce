"""What a worker needs to open connections: its name, and the secrets that prove it.

It opens nothing. Invariant: its representation shows no secret.
"""

import msgspec

from telegrad.errors import Refused
from telegrad.rpc.security.introduction import Limits, check_worker_name
from telegrad.rpc.security.key_file import KeySource
from telegrad.rpc.security.tls import Contexts, CredentialSource
from telegrad.rpc.transport.address import Address


class Identity(msgspec.Struct, frozen=True):
    """One worker's name, incarnation, key and certificate.

    `segments` says that it takes shared memory from workers on the same host, where Unix sockets
    and memfd are available. `credentials` are needed beyond this machine.
    """

    name: str
    incarnation: int
    key: KeySource
    limits: Limits = Limits()
    segments: bool = True
    credentials: CredentialSource | None = None

    def __post_init__(self) -> None:
        check_worker_name(self.name)

    def contexts_for(self, address: Address) -> Contexts | None:
        """Return the TLS contexts for the address, None if it does not use TLS."""
        if address.scheme != "tls":
            return None
        if self.credentials is None:
            raise Refused(
                f"{address.text} needs certificates: let workers mint them by their key with "
                "rpc.Options(tls=True), or mint them with `telegrad keygen DIR --workers "
                f"{self.name},...` and set TELEGRAD_CREDENTIALS to DIR/{self.name}"
            )
        return self.credentials.current()
