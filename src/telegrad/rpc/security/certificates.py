"""How a cluster's secrets are made: an authority, a certificate a worker, and the key.

    DIR/authority/   the authority's certificate and private key: stays where it was made
    DIR/<worker>/    what one worker needs, all of it, to be copied to its machine

Only `telegrad keygen` comes here, and only here the package cryptography is needed: running
workers make do with `telegrad.rpc.security.tls`. Invariants: every file has mode 0600 in a
directory with mode 0700, and nothing that exists is replaced.
"""

import datetime
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from telegrad.errors import UsageError
from telegrad.rpc.security.introduction import check_worker_name
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.security.tls import (
    AUTHORITY_FILE,
    CERTIFICATE_FILE,
    KEY_FILE,
    PRIVATE_KEY_FILE,
    WORKER_URI,
)

__all__ = ["AUTHORITY_DIRECTORY", "mint"]

AUTHORITY_DIRECTORY = "authority"

# Clocks of a cluster may differ by this much when a certificate is fresh.
_SKEW = datetime.timedelta(hours=1)
# Long enough that workers can be added for years; their own certificates end sooner.
_AUTHORITY_LIFETIME = datetime.timedelta(days=3650)


def mint(
    directory: Path, workers: Sequence[str], *, now: datetime.datetime, days: int = 365
) -> list[Path]:
    """Make the directories of the workers and return them; the authority is made if need be.

    A directory that has an authority already lends it, and the key, to the new workers.
    """
    _check(directory, workers)
    lifetime = datetime.timedelta(days=days)
    home = directory / AUTHORITY_DIRECTORY
    if home.exists():
        certificate, private_key, key = _load_authority(home)
    else:
        certificate, private_key = _make_authority(now, max(lifetime, _AUTHORITY_LIFETIME))
        key = ClusterKey.fresh()
        _make_directory(home)
        _write(home / AUTHORITY_FILE, _pem(certificate))
        _write(home / PRIVATE_KEY_FILE, _private_pem(private_key))
        key.save(home / KEY_FILE)
    made = []
    for name in workers:
        worker_certificate, worker_key = _make_worker(name, certificate, private_key, now, lifetime)
        place = directory / name
        _make_directory(place)
        _write(place / AUTHORITY_FILE, _pem(certificate))
        _write(place / CERTIFICATE_FILE, _pem(worker_certificate))
        _write(place / PRIVATE_KEY_FILE, _private_pem(worker_key))
        key.save(place / KEY_FILE)
        made.append(place)
    return made


def _check(directory: Path, workers: Sequence[str]) -> None:
    for position, name in enumerate(workers):
        check_worker_name(name)
        if name == AUTHORITY_DIRECTORY or name in workers[:position]:
            raise UsageError(
                f"a cluster can't have two workers, or a worker and its authority, "
                f"called {name!r}: choose another name"
            )
        if (directory / name).exists():
            raise UsageError(
                f"{directory / name} is there already: remove it to mint the worker anew, or "
                "choose another directory for a new cluster"
            )


def _make_authority(
    now: datetime.datetime, lifetime: datetime.timedelta
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    private_key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "telegrad cluster authority")])
    builder = _builder(name, name, private_key.public_key(), now, lifetime)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return builder.sign(private_key, hashes.SHA256()), private_key


def _make_worker(
    worker: str,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    now: datetime.datetime,
    lifetime: datetime.timedelta,
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    private_key = ec.generate_private_key(ec.SECP256R1())
    # A common name has at most 64 characters; the whole name stands in the alternative name.
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, worker[:64])])
    builder = _builder(subject, authority.subject, private_key.public_key(), now, lifetime)
    public = authority_key.public_key()
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    uri = x509.UniformResourceIdentifier(WORKER_URI + worker)
    builder = (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectAlternativeName([uri]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
    )
    return builder.sign(authority_key, hashes.SHA256()), private_key


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    now: datetime.datetime,
    lifetime: datetime.timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _load_authority(
    home: Path,
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey, ClusterKey]:
    try:
        certificate = x509.load_pem_x509_certificate((home / AUTHORITY_FILE).read_bytes())
        pem = (home / PRIVATE_KEY_FILE).read_bytes()
        private_key = serialization.load_pem_private_key(pem, password=None)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the authority in {home} can't be read ({error}): restore it, or mint the whole "
            "cluster anew in another directory"
        ) from None
    if not isinstance(private_key, ec.EllipticCurvePrivateKey):
        raise UsageError(f"expected an elliptic-curve key in {home / PRIVATE_KEY_FILE}")
    return certificate, private_key, ClusterKey.load(home / KEY_FILE)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private_pem(private_key: ec.EllipticCurvePrivateKey) -> bytes:
    return private_key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _make_directory(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True)
    path.chmod(0o700)


def _write(path: Path, contents: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(contents)
