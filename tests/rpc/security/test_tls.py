"""TLS between workers: who is let in, and that one connection serves two threads."""

import contextlib
import datetime
import os
import socket
import ssl
import struct
import threading
from pathlib import Path

import msgspec
import pytest
from tests.rpc.connected import (
    PATIENCE,
    connected,
    hosting,
    mint_cluster,
    receive,
    receive_exactly,
)
from tests.rpc.inside import socket_of, unproved
from tests.rpc.neighbours import eventually

from telegrad.errors import AuthenticationFailed, ProtocolViolation, Refused, UsageError
from telegrad.rpc.security.certificates import mint
from telegrad.rpc.security.introduction import Introduction, Purpose, Side
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.security.tls import AUTHORITY_FILE, WORKER_URI, Credentials, certified_name
from telegrad.rpc.startup import start_worker
from telegrad.rpc.transport import Identity, connect

ADDRESS = "tls://127.0.0.1:0"
NOW = datetime.datetime.now(datetime.UTC)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Identity]:
    return mint_cluster(tmp_path_factory.mktemp("keys") / "cluster", "ps", "trainer", "other")


def refusal(cluster: dict[str, Identity], trainer: Identity, expect: str | None = "ps") -> str:
    """Return why ps and the trainer don't come together."""
    with hosting(ADDRESS, cluster["ps"]) as host:
        with pytest.raises(AuthenticationFailed) as caught:
            connect(host.address, identity=trainer, expect=expect)
        assert host.arrived.empty()
    return str(caught.value)


def test_certified_workers_come_together_under_tls_1_3(cluster: dict[str, Identity]) -> None:
    with connected(ADDRESS, cluster["ps"], cluster["trainer"]) as (dialled, accepted):
        assert accepted.peer_name == "trainer"
        assert not dialled.same_host
        assert socket_of(dialled).version() == "TLSv1.3"


def test_a_certificate_of_another_cluster_is_refused(
    cluster: dict[str, Identity], tmp_path: Path
) -> None:
    foreign = mint_cluster(tmp_path / "foreign", "trainer")["trainer"]
    foreign = msgspec.structs.replace(foreign, key=cluster["ps"].key)
    message = refusal(cluster, foreign)
    assert "CERTIFICATE_VERIFY_FAILED" in message
    assert "telegrad keygen" in message


def test_the_key_is_asked_for_even_from_the_certified(cluster: dict[str, Identity]) -> None:
    without_key = msgspec.structs.replace(cluster["trainer"], key=ClusterKey.fresh())
    assert "refused our proof" in refusal(cluster, without_key)


def test_a_worker_cant_take_a_name_that_its_certificate_lacks(cluster: dict[str, Identity]) -> None:
    disguised = msgspec.structs.replace(cluster["other"], name="trainer")
    assert "certificate of its own name" in refusal(cluster, disguised)


def test_the_listener_must_have_the_certificate_of_the_expected_worker(
    cluster: dict[str, Identity],
) -> None:
    message = refusal(cluster, cluster["trainer"], expect="other")
    assert "expected the certificate of other, got that of ps" in message


def test_a_listener_cant_take_a_name_that_its_certificate_lacks(
    cluster: dict[str, Identity],
) -> None:
    disguised = msgspec.structs.replace(cluster["other"], name="ps")
    with (
        hosting(ADDRESS, disguised, purpose=Purpose.MEETING) as host,
        pytest.raises(AuthenticationFailed, match="expected the worker other, whose certificate"),
    ):
        connect(host.address, identity=cluster["trainer"])


@pytest.mark.parametrize("names", [[], ["ps", "trainer"]])
def test_a_certificate_that_does_not_name_one_worker_names_none(names: list[str]) -> None:
    class Certified:
        def getpeercert(self) -> dict[str, object]:
            web = ("URI", "https://ps")
            return {"subjectAltName": (web, *(("URI", WORKER_URI + name) for name in names))}

    with pytest.raises(AuthenticationFailed, match=f"names one worker, got .* names {len(names)}:"):
        certified_name(Certified())  # type: ignore[arg-type]


def test_an_expired_certificate_is_refused(cluster: dict[str, Identity], tmp_path: Path) -> None:
    home = cluster["ps"].credentials
    assert home is not None
    long_ago = NOW - datetime.timedelta(days=400)
    # The authority stays valid for years; only the new worker's certificate has run out.
    mint(home.directory.parent, ["late"], now=long_ago, days=1)
    late = Credentials(home.directory.parent / "late")
    message = refusal(cluster, Identity("late", 1, late.load_key(), credentials=late))
    assert "CERTIFICATE_EXPIRED" in message
    assert "has not expired" in message


def test_a_worker_with_anothers_credentials_does_not_start(cluster: dict[str, Identity]) -> None:
    theirs = cluster["other"]
    assert theirs.credentials is not None
    theirs.credentials.check("other")
    with pytest.raises(
        UsageError, match=r"the certificate of ps in .*, got that of other: set TEL"
    ):
        start_worker("ps", 0, ADDRESS, theirs.key, credentials=theirs.credentials)


def test_a_worker_whose_certificate_has_run_out_does_not_start(tmp_path: Path) -> None:
    long_ago = NOW - datetime.timedelta(days=400)
    mint(tmp_path / "cluster", ["late"], now=long_ago, days=1)
    late = Credentials(tmp_path / "cluster" / "late")
    with pytest.raises(UsageError, match=r"refused by every worker \(.*expired.*telegrad keygen"):
        start_worker("late", 0, ADDRESS, late.load_key(), credentials=late)


def is_let_in(context: ssl.SSLContext, address: str) -> bool:
    """Say whether the listener at the address speaks on after TLS."""
    port = int(address.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as plain:
        try:
            with context.wrap_socket(plain) as stranger:
                # Under TLS 1.3 the client learns of a refusal when it first reads.
                introduction = Introduction(Side.DIALLER, "trainer", 1, b"n" * 32)
                stranger.sendall(introduction.encode())
                return bool(stranger.recv(1))
        except (ssl.SSLError, ConnectionError):
            return False


def test_a_peer_without_a_certificate_is_refused(cluster: dict[str, Identity]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with hosting(ADDRESS, cluster["ps"]) as host:
        assert not is_let_in(context, host.address)
        with contextlib.closing(connect(host.address, identity=cluster["trainer"], expect="ps")):
            host.accept().close()


def test_a_certified_peer_with_an_older_tls_is_refused(cluster: dict[str, Identity]) -> None:
    own = cluster["trainer"].credentials
    assert own is not None
    with hosting(ADDRESS, cluster["ps"]) as host:
        assert is_let_in(Credentials(own.directory).current().client, host.address)
        older = Credentials(own.directory).current().client
        older.minimum_version = ssl.TLSVersion.TLSv1_2
        older.maximum_version = ssl.TLSVersion.TLSv1_2
        assert not is_let_in(older, host.address)


def test_plain_bytes_on_the_tls_port_are_refused(cluster: dict[str, Identity]) -> None:
    with hosting(ADDRESS, cluster["ps"]) as host:
        plain = host.address.replace("tls", "tcp")
        with pytest.raises(ConnectionError, match=r"have both sides certificates .* or neither"):
            connect(plain, identity=cluster["trainer"], timeout=PATIENCE)


def test_a_listener_that_resets_is_suspected_to_have_no_certificates(
    cluster: dict[str, Identity],
) -> None:
    # As a plain listener does with TLS, and one with TLS with plain bytes.
    with socket.create_server(("127.0.0.1", 0)) as server:

        def reset() -> None:
            with server.accept()[0] as accepted:
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                # Not before it is connected for the other side, too.
                accepted.recv(1)

        resetting = threading.Thread(target=reset)
        resetting.start()
        with pytest.raises(ProtocolViolation, match=r"have both sides certificates .* or neither"):
            connect(f"tls://127.0.0.1:{server.getsockname()[1]}", identity=cluster["trainer"])
        resetting.join(PATIENCE)


def test_a_listener_that_hangs_up_after_tls_has_refused_nobody(
    cluster: dict[str, Identity],
) -> None:
    own = cluster["ps"].credentials
    assert own is not None
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            own.current().server.wrap_socket(server.accept()[0], server_side=True).close()

        hanging_up = threading.Thread(target=hang_up)
        hanging_up.start()
        with pytest.raises(ProtocolViolation, match=r"the connection (broke|was closed)"):
            connect(f"tls://127.0.0.1:{server.getsockname()[1]}", identity=cluster["trainer"])
        hanging_up.join(PATIENCE)


def test_who_is_refused_is_told_so_each_time_and_closed(
    cluster: dict[str, Identity], tmp_path: Path
) -> None:
    foreign = mint_cluster(tmp_path / "another", "trainer")["trainer"]
    assert foreign.credentials is not None
    home = cluster["ps"].credentials
    assert home is not None
    # It takes the listener for one of its own; the listener takes it for nobody.
    authorities = [each.directory / AUTHORITY_FILE for each in (home, foreign.credentials)]
    authorities[1].write_text("".join(each.read_text() for each in authorities))
    with hosting(ADDRESS, cluster["ps"], handshake_timeout=600.0) as host:
        for _ in range(20):
            with pytest.raises(AuthenticationFailed, match=r"TLS failed .*ALERT"):
                connect(host.address, identity=foreign, expect="ps")
        assert eventually(lambda: not unproved(host.listener))


def test_a_reader_and_writers_share_a_connection(cluster: dict[str, Identity]) -> None:
    """Echo from both ends at once: each end is read by one thread and written by another."""
    blocks = [os.urandom(size) for size in (1, 100, 16384, 16385, 300_000, 1 << 20)] * 8
    expected = b"".join(blocks)
    with connected(ADDRESS, cluster["ps"], cluster["trainer"]) as ends:
        received: dict[int, bytes] = {}

        def write(position: int) -> None:
            for block in blocks:
                ends[position].send([block[:50], block[50:]])

        def read(position: int) -> None:
            received[position] = receive_exactly(ends[position], len(expected))

        threads = [
            threading.Thread(target=work, args=(position,), daemon=True)
            for work in (write, read)
            for position in (0, 1)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        assert received == {0: expected, 1: expected}


def test_a_finalizer_may_send_where_it_interrupted_a_thread_that_receives(
    cluster: dict[str, Identity], monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(ADDRESS, cluster["ps"], cluster["trainer"]) as (dialled, accepted):
        recv_into = socket_of(dialled).recv_into

        def interrupted(buffer: memoryview) -> int:
            monkeypatch.undo()
            dialled.send([b"ping"])
            return int(recv_into(buffer))

        monkeypatch.setattr(socket_of(dialled), "recv_into", interrupted)
        received = bytearray(4)
        accepted.send([b"pong"])
        receiving = threading.Thread(
            target=lambda: receive(dialled, memoryview(received)), daemon=True
        )
        receiving.start()
        receiving.join(PATIENCE / 2)
        assert not receiving.is_alive()
        assert received == b"pong"
        assert receive_exactly(accepted, 4) == b"ping"


def test_bytes_left_in_a_record_are_pending(cluster: dict[str, Identity]) -> None:
    with connected(ADDRESS, cluster["ps"], cluster["trainer"]) as (dialled, accepted):
        dialled.send([b"abcdef"])
        assert receive_exactly(accepted, 2) == b"ab"
        assert accepted.pending() == 4
        assert receive_exactly(accepted, 4) == b"cdef"
        assert accepted.pending() == 0


def test_after_shutdown_nothing_goes_out_in_the_clear(cluster: dict[str, Identity]) -> None:
    with connected(ADDRESS, cluster["ps"], cluster["trainer"]) as (dialled, accepted):
        dialled.shutdown()
        with pytest.raises(BrokenPipeError):
            dialled.send([b"secret"])
        assert receive(dialled, memoryview(bytearray(1))) == 0
        assert receive(accepted, memoryview(bytearray(1))) == 0
        assert dialled.pending() == 0


def test_a_private_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    (place,) = mint(tmp_path / "c", ["ps"], now=NOW)
    (place / "private.pem").chmod(0o644)
    with pytest.raises(Refused, match="chmod 600"):
        Credentials(place)


def test_a_directory_without_certificates_says_how_to_mint_them(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="telegrad keygen DIR --workers NAME"):
        Credentials(tmp_path)


def test_a_key_that_does_not_fit_its_certificate_is_refused(tmp_path: Path) -> None:
    one, other = mint(tmp_path / "c", ["one", "other"], now=NOW)
    (one / "private.pem").write_bytes((other / "private.pem").read_bytes())
    with pytest.raises(UsageError, match="can't be used"):
        Credentials(one)
