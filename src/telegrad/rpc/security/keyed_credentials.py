"""Certificates made from the cluster's key alone: each worker mints its own; none is copied.

The key proves who belongs to the cluster, but a member may take any name. Where names must be
proved as well, `telegrad keygen` mints a certificate for each worker.
"""

import tempfile
import threading
from pathlib import Path

from telegrad.errors import UsageError
from telegrad.rpc.security.key_file import KeySource
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.security.tls import Contexts


class KeyedCredentials:
    """The certificate of a worker, minted anew when the key changes."""

    def __init__(self, name: str, keys: KeySource) -> None:
        self._name = name
        self._keys = keys
        self._lock = threading.RLock()
        self._minted: tuple[tuple[ClusterKey, ...], Contexts] | None = None

    def __repr__(self) -> str:
        return f"KeyedCredentials({self._name!r})"

    def current(self) -> Contexts:
        keys = self._keys.valid()
        with self._lock:
            if self._minted is None or self._minted[0] != keys:
                self._minted = keys, _mint(self._name, keys)
            return self._minted[1]

    def check(self, name: str) -> None:
        """Mint the certificate unless that was done; raise if it can't be minted."""
        self.current()


def _mint(name: str, keys: tuple[ClusterKey, ...]) -> Contexts:
    """Return a certificate made from the first key; accept peers' made from any of them."""
    try:
        from telegrad.rpc.security.certificates import mint_by_key
    except ImportError as error:
        raise UsageError(
            "workers on several machines speak TLS, which needs the package cryptography: "
            "pip install 'telegrad[tls]' on each"
        ) from error
    minted = [mint_by_key(name, key) for key in keys]
    authorities = b"".join(authority for authority, _ in minted).decode("ascii")
    # OpenSSL only takes files. This one has mode 0600, and is deleted at once.
    with tempfile.NamedTemporaryFile(prefix="telegrad-") as file:
        file.write(minted[0][1])
        file.flush()
        path = Path(file.name)
        return Contexts.made(authorities, path, path, {})
