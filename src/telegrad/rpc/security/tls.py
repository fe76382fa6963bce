"""A worker's certificate, and what is asked of the other side's.

Workers are known by name, not by host: a certificate carries `telegrad:worker:<name>` as its
only subject alternative name, and both sides must show one signed by the cluster's authority.
The name in it is then the only one that the handshake accepts.

Invariant: no context here takes less than TLS 1.3, or a peer without a certificate.
"""

import contextlib
import hashlib
import os
import ssl
from pathlib import Path
from typing import cast

from telegrad.errors import AuthenticationFailed, Refused, UsageError
from telegrad.rpc.security.keys import ClusterKey

__all__ = [
    "AUTHORITY_FILE",
    "CERTIFICATE_FILE",
    "KEY_FILE",
    "PRIVATE_KEY_FILE",
    "WORKER_URI",
    "Credentials",
    "certificate_digest",
    "certified_name",
]

# What `telegrad keygen` puts into each worker's directory.
AUTHORITY_FILE = "authority.pem"
CERTIFICATE_FILE = "certificate.pem"
PRIVATE_KEY_FILE = "private.pem"
KEY_FILE = "cluster.key"
WORKER_URI = "telegrad:worker:"


class Credentials:
    """The TLS contexts of one worker, for both ends of a connection."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        """Load a worker's directory as `telegrad keygen` made it."""
        self.directory = Path(directory)
        certificate = self.directory / CERTIFICATE_FILE
        private_key = self.directory / PRIVATE_KEY_FILE
        authority = self.directory / AUTHORITY_FILE
        for path in (certificate, private_key, authority):
            if not path.is_file():
                raise UsageError(
                    f"expected {path.name} in {self.directory}: mint a worker's directory with "
                    "`telegrad keygen DIR --workers NAME` and set TELEGRAD_CREDENTIALS to DIR/NAME"
                )
        if private_key.stat().st_mode & 0o077:
            raise Refused(f"{private_key} can be read by others: run `chmod 600` on it")
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # A host's name says nothing about which worker runs on it; the certificate's does.
        self.client.check_hostname = False
        for context in (self.server, self.client):
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.verify_mode = ssl.CERT_REQUIRED
            try:
                context.load_verify_locations(authority)
                context.load_cert_chain(certificate, private_key)
            except ssl.SSLError as error:
                raise UsageError(
                    f"the certificate in {self.directory} can't be used ({error.reason or error}): "
                    "mint it again with `telegrad keygen`"
                ) from None
        # A resumed session would not show its certificate again.
        self.server.num_tickets = 0
        self.digest = _digest(ssl.PEM_cert_to_DER_cert(certificate.read_text("ascii")))

    def __repr__(self) -> str:
        return f"Credentials({str(self.directory)!r})"

    def check(self, name: str) -> None:
        """Raise unless these are the worker's own, and others of its cluster would take them."""
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        dialler = self.client.wrap_bio(back, there)
        listener = self.server.wrap_bio(there, back, server_side=True)
        try:
            # A connection to oneself, up to where the dialler has seen the certificate.
            for side in (dialler, listener, dialler):
                with contextlib.suppress(ssl.SSLWantReadError):
                    side.do_handshake()
            certified = certified_name(dialler)
        except (ssl.SSLError, AuthenticationFailed) as error:
            raise UsageError(
                f"the certificate in {self.directory} would be refused by every worker ({error}): "
                "mint it again with `telegrad keygen`"
            ) from None
        if certified != name:
            raise UsageError(
                f"expected the certificate of {name} in {self.directory}, got that of {certified}: "
                f"set TELEGRAD_CREDENTIALS to the directory that `telegrad keygen` made for {name}"
            )

    def load_key(self) -> ClusterKey:
        """Return the cluster's key that was minted along."""
        return ClusterKey.load(self.directory / KEY_FILE)


def certified_name(sock: ssl.SSLSocket | ssl.SSLObject) -> str:
    """Return the worker that the other side's certificate names."""
    certificate = sock.getpeercert() or {}
    # Pairs of kind and value; the stubs give this field the type of every other field too.
    pairs = cast(tuple[tuple[str, str], ...], certificate.get("subjectAltName", ()))
    names = [
        value.removeprefix(WORKER_URI)
        for kind, value in pairs
        if kind == "URI" and value.startswith(WORKER_URI)
    ]
    if len(names) != 1:
        raise AuthenticationFailed(
            f"expected a certificate that names one worker, got one that names {len(names)}: mint "
            "the workers' certificates with `telegrad keygen`"
        )
    return names[0]


def certificate_digest(sock: ssl.SSLSocket) -> bytes:
    """Return the SHA-256 of the other side's certificate."""
    return _digest(sock.getpeercert(binary_form=True) or b"")


def _digest(certificate: bytes) -> bytes:
    return hashlib.sha256(certificate).digest()
