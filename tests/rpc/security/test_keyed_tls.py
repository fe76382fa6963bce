"""TLS by the cluster's key alone: each worker mints its own certificate."""

import sys

import msgspec
import pytest
from tests.rpc.connected import connected, hosting
from tests.rpc.inside import socket_of

from telegrad.errors import AuthenticationFailed, UsageError
from telegrad.rpc.security.keyed_credentials import KeyedCredentials
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.security.tls import certified_name
from telegrad.rpc.transport import Identity, connect

ADDRESS = "tls://127.0.0.1:0"
KEY = ClusterKey.fresh()


def identity(name: str, key: ClusterKey = KEY) -> Identity:
    return Identity(name, 1, key, credentials=KeyedCredentials(name, key))


def test_workers_with_one_key_come_together_under_tls_1_3_by_their_names() -> None:
    with connected(ADDRESS, identity("ps"), identity("trainer")) as (dialled, accepted):
        assert (dialled.peer_name, accepted.peer_name) == ("ps", "trainer")
        sock = socket_of(dialled)
        assert sock.version() == "TLSv1.3"
        assert certified_name(sock) == "ps"


def test_a_certificate_by_another_key_is_refused_by_both_sides() -> None:
    other = identity("trainer", ClusterKey.fresh())
    with (
        hosting(ADDRESS, identity("ps")) as host,
        pytest.raises(AuthenticationFailed, match=r"CERTIFICATE_VERIFY_FAILED.*this cluster's key"),
    ):
        connect(host.address, identity=other, expect="ps")


def test_the_channel_stays_bound_to_the_proof() -> None:
    # The right certificate, and another key in the handshake.
    split = msgspec.structs.replace(identity("trainer"), key=ClusterKey.fresh())
    with (
        hosting(ADDRESS, identity("ps")) as host,
        pytest.raises(AuthenticationFailed, match="refused our proof"),
    ):
        connect(host.address, identity=split, expect="ps")


def test_a_listener_that_is_another_worker_is_refused() -> None:
    with (
        hosting(ADDRESS, identity("ps")) as host,
        pytest.raises(AuthenticationFailed, match="the certificate of other, got that of ps"),
    ):
        connect(host.address, identity=identity("trainer"), expect="other")


def test_the_certificate_is_minted_once_for_a_key() -> None:
    credentials = KeyedCredentials("ps", KEY)
    assert credentials.current() is credentials.current()
    assert KEY.encode().decode().strip() not in repr(credentials)


def test_the_longest_name_has_a_certificate() -> None:
    name = "n" * 128
    with connected(ADDRESS, identity(name), identity("trainer")) as (dialled, _):
        assert dialled.peer_name == name


def test_without_cryptography_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "telegrad.rpc.security.certificates", None)
    with pytest.raises(UsageError, match=r"pip install 'telegrad\[tls\]' on each"):
        KeyedCredentials("ps", KEY).check("ps")
