"""A worker's certificate, and the requirements on the other side's.

Workers are known by name, not by host: a certificate carries `telegrad:worker:<name>` as its
only subject alternative name, and both sides must show one signed by the cluster's authority.
The name in it is then the only one that the handshake accepts.

Invariant: no context here accepts less than TLS 1.3, or a peer without a certificate.
"""

import contextlib
import hashlib
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol, cast

from telegrad.errors import AuthenticationFailed, Refused, UsageError
from telegrad.rpc.security.key_file import KeyFile
from telegrad.rpc.security.watched_files import WatchedFiles

# What `telegrad keygen` puts into each worker's directory.
AUTHORITY_FILE = "authority.pem"
CERTIFICATE_FILE = "certificate.pem"
PRIVATE_KEY_FILE = "private.pem"
KEY_FILE = "cluster.key"
REVOKED_FILE = "revoked"
WORKER_URI = "telegrad:worker:"


class Contexts(NamedTuple):
    """TLS contexts for both ends of a connection, and the certificates to refuse."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    digest: bytes
    """The digest of this worker's own certificate."""
    revoked: Mapping[bytes, str]
    """The digests of revoked certificates, with the names of their workers."""

    @classmethod
    def made(
        cls, authorities: str, certificate: Path, private_key: Path, revoked: Mapping[bytes, str]
    ) -> "Contexts":
        """Return the contexts for a certificate and peers that one of the authorities signed."""
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # The certificate names the worker, not its host.
        client.check_hostname = False
        for context in (server, client):
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=authorities)
            context.load_cert_chain(certificate, private_key)
        # A resumed session would not show its certificate again.
        server.num_tickets = 0
        # The private key may follow in the same file.
        pem, footer, _ = certificate.read_text("ascii").partition(ssl.PEM_FOOTER)
        return cls(server, client, _digest(ssl.PEM_cert_to_DER_cert(pem + footer)), revoked)

    def check_peer(self, sock: ssl.SSLSocket) -> tuple[str, bytes]:
        """Return the worker that the other side's certificate names, and its digest."""
        name, digest = certified_name(sock), _digest(sock.getpeercert(binary_form=True) or b"")
        self.check(name, digest)
        return name, digest

    def check(self, name: str, digest: bytes) -> None:
        """Raise if the certificate was revoked or, where none is shown, any of that worker."""
        if digest in self.revoked or (not digest and name in self.revoked.values()):
            raise AuthenticationFailed(
                f"the certificate of {name} was revoked: mint {name} another one with `telegrad "
                "keygen`"
            )


class CredentialSource(Protocol):
    """The source of a worker's certificate: a directory, or its cluster's key."""

    def current(self) -> Contexts:
        """Return the contexts for connections that are opened now."""

    def check(self, name: str) -> None:
        """Raise unless the certificate is the worker's own, and peers would accept it."""


class Credentials:
    """The directory that `telegrad keygen` made for a worker; read again when its files change.

    So certificates can be renewed and revoked while the worker runs.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        names = (AUTHORITY_FILE, CERTIFICATE_FILE, PRIVATE_KEY_FILE, REVOKED_FILE)
        self._files = WatchedFiles([self.directory / name for name in names], self._load)

    def __repr__(self) -> str:
        return f"Credentials({str(self.directory)!r})"

    def _load(self) -> Contexts:
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
        revoked = load_revoked(self.directory / REVOKED_FILE)
        try:
            return Contexts.made(authority.read_text("ascii"), certificate, private_key, revoked)
        except (ssl.SSLError, ValueError) as error:
            raise UsageError(
                f"the certificate in {self.directory} can't be used "
                f"({getattr(error, 'reason', None) or error}): mint it again with `telegrad keygen`"
            ) from None

    def current(self) -> Contexts:
        return self._files.current()

    def check(self, name: str) -> None:
        contexts = self.current()
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        dialler = contexts.client.wrap_bio(back, there)
        listener = contexts.server.wrap_bio(there, back, server_side=True)
        try:
            # A handshake with itself, until the dialler has seen the certificate.
            for side in (dialler, listener, dialler):
                with contextlib.suppress(ssl.SSLWantReadError):
                    side.do_handshake()
            certified = certified_name(dialler)
            contexts.check(certified, contexts.digest)
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

    def load_key(self) -> KeyFile:
        """Return the cluster's keys in the same directory."""
        return KeyFile(self.directory / KEY_FILE)


def load_revoked(path: Path) -> dict[bytes, str]:
    """Return a list's digests of revoked certificates with their workers, one pair a line."""
    try:
        lines = path.read_text("ascii").splitlines() if path.exists() else []
        words = [line.split(maxsplit=1) for line in lines if line.strip()]
        found = {bytes.fromhex(digest): "".join(name).strip() for digest, *name in words}
    except ValueError:
        found = {b"": ""}
    if any(len(digest) != hashlib.sha256().digest_size for digest in found):
        raise UsageError(
            f"expected 64 hexadecimal digits at the beginning of each line of {path}, the SHA-256 "
            "of a certificate: write it with `telegrad keygen DIR --revoke NAME`"
        )
    return found


def certified_name(sock: ssl.SSLSocket | ssl.SSLObject) -> str:
    """Return the worker that the other side's certificate names."""
    certificate = sock.getpeercert() or {}
    # Pairs of kind and value; the stubs give this field the type that all others have.
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


def _digest(certificate: bytes) -> bytes:
    return hashlib.sha256(certificate).digest()
