"""Making a cluster's secrets: an authority, a certificate for each worker, and the key.

    DIR/authority/   the authority's certificate and private key: stays where it was made
    DIR/<worker>/    all files that one worker needs, to be copied to its machine

Only this module needs the package cryptography, for `telegrad keygen` and for workers that have
only a key (keyed_credentials.py); otherwise workers need only `telegrad.rpc.security.tls`.
Invariants: every file has mode 0600 in a directory with mode 0700, and no existing certificate is
replaced.
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
from telegrad.rpc.security.key_file import write_keys
from telegrad.rpc.security.keys import ClusterKey, write_private
from telegrad.rpc.security.tls import (
    AUTHORITY_FILE,
    CERTIFICATE_FILE,
    KEY_FILE,
    PRIVATE_KEY_FILE,
    REVOKED_FILE,
    WORKER_URI,
    load_revoked,
)

AUTHORITY_DIRECTORY = "authority"
_TITLE = "telegrad cluster authority"

# Clocks of a cluster may differ by this much when a certificate is fresh.
_SKEW = datetime.timedelta(hours=1)
# Long enough that workers can be added for years; their own certificates end sooner.
_AUTHORITY_LIFETIME = datetime.timedelta(days=3650)
# A certificate made by the key is valid as long as the key: no clock decides who may connect.
_ALWAYS = (
    datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC),
    datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC),
)
# The order of the group of P-256.
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551

_Authority = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def mint(
    directory: Path, workers: Sequence[str], *, now: datetime.datetime, days: int = 365
) -> list[Path]:
    """Make the directories of the workers and return them; make the authority if need be.

    If the directory already has an authority, the new workers get certificates and the key from it.
    """
    _check(directory, workers)
    lifetime = datetime.timedelta(days=days)
    home = directory / AUTHORITY_DIRECTORY
    if home.exists():
        authority, keys = _load_authority(home)
    else:
        dates = (now - _SKEW, now + max(lifetime, _AUTHORITY_LIFETIME))
        authority = _make_authority(ec.generate_private_key(ec.SECP256R1()), _TITLE, dates)
        keys = (ClusterKey.fresh(),)
        _make_directory(home)
        write_private(home / AUTHORITY_FILE, _pem(authority[0]))
        write_private(home / PRIVATE_KEY_FILE, _private_pem(authority[1]))
        write_keys(home / KEY_FILE, keys)
    made = []
    for name in workers:
        certificate, private_key = _make_worker(name, authority, (now - _SKEW, now + lifetime))
        place = directory / name
        _make_directory(place)
        write_private(place / AUTHORITY_FILE, _pem(authority[0]))
        write_private(place / CERTIFICATE_FILE, _pem(certificate))
        write_private(place / PRIVATE_KEY_FILE, _private_pem(private_key))
        write_keys(place / KEY_FILE, keys)
        if (home / REVOKED_FILE).exists():
            write_private(place / REVOKED_FILE, (home / REVOKED_FILE).read_bytes())
        made.append(place)
    return made


def mint_by_key(worker: str, key: ClusterKey) -> tuple[bytes, bytes]:
    """Return the authority's certificate, and a worker's with its private key, from the key alone.

    The authority's private key is derived from the cluster's key. So all who have the key trust
    each other's certificates, and nobody else can make one.
    """
    seed = b"".join(key.derive("telegrad authority", bytes([part])) for part in range(2))
    # Twice as many bits as the order has, so that all remainders are almost equally likely.
    number = int.from_bytes(seed, "big") % (_ORDER - 1) + 1
    private_key = ec.derive_private_key(number, ec.SECP256R1())
    authority = _make_authority(private_key, f"{_TITLE} {key.tag}", _ALWAYS)
    certificate, own = _make_worker(worker, authority, _ALWAYS)
    return _pem(authority[0]), _pem(certificate) + _private_pem(own)


def revoke(directory: Path, workers: Sequence[str]) -> list[Path]:
    """Add the workers' certificates to the list of revoked ones; return the paths of its copies."""
    home = directory / AUTHORITY_DIRECTORY
    _load_authority(home)
    listed = load_revoked(home / REVOKED_FILE)
    lines = []
    for name in workers:
        try:
            pem = (directory / name / CERTIFICATE_FILE).read_bytes()
            digest = x509.load_pem_x509_certificate(pem).fingerprint(hashes.SHA256())
        except (OSError, ValueError) as error:
            raise UsageError(
                f"expected the certificate to revoke in {directory / name} ({error}): its SHA-256 "
                f"may be written to {home / REVOKED_FILE} by hand"
            ) from None
        if digest not in listed:
            lines.append(f"{digest.hex()} {name}\n")
    old = (home / REVOKED_FILE).read_text("ascii") if listed else ""
    copies = [home, *(path.parent for path in sorted(directory.glob(f"*/{CERTIFICATE_FILE}")))]
    for place in copies:
        unseen = place / f"{REVOKED_FILE}.{os.getpid()}"
        write_private(unseen, (old + "".join(lines)).encode("ascii"))
        os.replace(unseen, place / REVOKED_FILE)
    return [place / REVOKED_FILE for place in copies]


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
    private_key: ec.EllipticCurvePrivateKey,
    title: str,
    dates: tuple[datetime.datetime, datetime.datetime],
) -> _Authority:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, title)])
    builder = _builder(name, name, private_key.public_key(), dates)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return builder.sign(private_key, hashes.SHA256()), private_key


def _make_worker(
    worker: str, authority: _Authority, dates: tuple[datetime.datetime, datetime.datetime]
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    private_key = ec.generate_private_key(ec.SECP256R1())
    # A common name has at most 64 characters; the whole name stands in the alternative name.
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, worker[:64])])
    builder = _builder(subject, authority[0].subject, private_key.public_key(), dates)
    public = authority[1].public_key()
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    uri = x509.UniformResourceIdentifier(WORKER_URI + worker)
    builder = (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectAlternativeName([uri]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
    )
    return builder.sign(authority[1], hashes.SHA256()), private_key


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    dates: tuple[datetime.datetime, datetime.datetime],
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(dates[0])
        .not_valid_after(dates[1])
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


def _load_authority(home: Path) -> tuple[_Authority, tuple[ClusterKey, ...]]:
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
    return (certificate, private_key), ClusterKey.load_all(home / KEY_FILE)


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
