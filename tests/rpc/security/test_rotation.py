"""Keys that change and certificates that are renewed or revoked while the workers run."""

import contextlib
import datetime
import logging
from pathlib import Path

import pytest
from tests.rpc import simulated
from tests.rpc.connected import connected, hosting, mint_cluster, receive
from tests.rpc.neighbours import eventually

from telegrad.errors import AuthenticationFailed, UsageError, WorkerLost
from telegrad.rpc.driver.link import Link
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.options import Options
from telegrad.rpc.security.certificates import mint, revoke
from telegrad.rpc.security.key_file import KeyFile, next_keys, write_keys
from telegrad.rpc.security.keyed_credentials import KeyedCredentials
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.security.tls import Credentials, load_revoked
from telegrad.rpc.startup import begin_worker, start_worker
from telegrad.rpc.transport import Identity, PrivateDirectory, connect
from telegrad.rpc.worker import Worker

TCP, TLS = "tcp://127.0.0.1:0", "tls://127.0.0.1:0"


@pytest.fixture
def old() -> ClusterKey:
    return ClusterKey.fresh()


def worker_at(directory: Path, name: str, *keys: ClusterKey) -> Identity:
    """Return a worker whose keys are in a file of its own machine."""
    path = directory / name
    write_keys(path, keys)
    source = KeyFile(path)
    return Identity(name, 1, source, credentials=KeyedCredentials(name, source))


def meets(address: str, ps: Identity, trainer: Identity) -> bool:
    """Say whether both come together, whoever of them dials."""
    outcomes = []
    for one, other in ((ps, trainer), (trainer, ps)):
        try:
            with connected(address, one, other) as (dialled, accepted):
                dialled.send([b"x"])
                assert receive(accepted, memoryview(bytearray(1))) == 1
                outcomes.append(True)
        except AuthenticationFailed:
            outcomes.append(False)
    assert outcomes[0] == outcomes[1]
    return outcomes[0]


@pytest.mark.parametrize("address", [TCP, TLS, "unix"])
def test_a_key_is_changed_worker_by_worker_and_all_meet_at_any_moment(
    tmp_path: Path, old: ClusterKey, address: str
) -> None:
    ps, trainer = worker_at(tmp_path, "ps", old), worker_at(tmp_path, "trainer", old)
    with PrivateDirectory.make() as directory:
        if address == "unix":
            address = directory.socket_address("x")
        keys: tuple[ClusterKey, ...] = (old,)
        for step in ("add", "use", "drop"):
            keys = next_keys(keys, step)
            # One worker has the next file before the other has.
            for name in ("ps", "trainer"):
                write_keys(tmp_path / name, keys)
                assert meets(address, ps, trainer), (step, name)
        assert old not in keys
        late = worker_at(tmp_path, "late", old)
        assert not meets(address, ps, late), "the old key is worth nothing now"


def test_a_key_that_is_used_before_all_have_it_is_refused_by_those(
    tmp_path: Path, old: ClusterKey
) -> None:
    hasty = worker_at(tmp_path, "trainer", *next_keys(next_keys((old,), "add"), "use"))
    with (
        hosting(TCP, worker_at(tmp_path, "ps", old)) as host,
        pytest.raises(AuthenticationFailed, match=r"refused our proof: .*the same key"),
    ):
        connect(host.address, identity=hasty, expect="ps")


def test_a_file_that_is_broken_or_gone_changes_nothing_and_is_told(
    tmp_path: Path, old: ClusterKey, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "key"
    old.save(path)
    source = KeyFile(path)
    path.write_text("half a k")
    with caplog.at_level(logging.WARNING, "telegrad.rpc"):
        assert source.valid() == source.valid() == (old,)
        assert caplog.text.count("what was read before holds") == 1
        assert "expected 64 hexadecimal digits" in caplog.text
        path.unlink()
        assert source.valid() == (old,)
        assert "no cluster key at" in caplog.text
    new = ClusterKey.fresh()
    new.save(path)
    assert source.valid() == (new,)
    path.chmod(0o644)
    assert source.valid() == (new,)
    assert "can be read by others" in caplog.text


def test_steps_come_in_their_order(old: ClusterKey) -> None:
    for step in ("use", "drop"):
        with pytest.raises(UsageError, match=f"two keys to {step} one, .*--rotate add"):
            next_keys((old,), step)
    with pytest.raises(UsageError, match="the last change is not finished"):
        next_keys(next_keys((old,), "add"), "add")


# Certificates.


def test_a_certificate_is_renewed_while_its_worker_runs(tmp_path: Path) -> None:
    cluster = mint_cluster(tmp_path / "c", "ps", "trainer")
    own = cluster["ps"].credentials
    assert own is not None
    before = own.current().digest
    now = datetime.datetime.now(datetime.UTC)
    (tmp_path / "c/ps").rename(tmp_path / "old")
    mint(tmp_path / "c", ["ps"], now=now)
    assert own.current().digest != before
    with connected(TLS, cluster["ps"], cluster["trainer"]) as (dialled, _):
        assert dialled.certificate == own.current().digest


def test_a_revoked_certificate_is_refused_whoever_dials(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = mint_cluster(tmp_path / "c", "ps", "trainer")
    revoke(tmp_path / "c", ["trainer"])
    # The one who is shut out does not take the list.
    (tmp_path / "c/trainer/revoked").unlink()
    with caplog.at_level(logging.WARNING, "telegrad.rpc"):
        with (
            hosting(TLS, cluster["ps"]) as host,
            pytest.raises(AuthenticationFailed, match="ps refused our certificate: was it"),
        ):
            connect(host.address, identity=cluster["trainer"], expect="ps")
        assert "the certificate of trainer was revoked: mint trainer another" in caplog.text
    with (
        hosting(TLS, cluster["trainer"]) as host,
        pytest.raises(AuthenticationFailed, match="the certificate of trainer was revoked"),
    ):
        connect(host.address, identity=cluster["ps"], expect="trainer")


def test_open_connections_of_a_revoked_certificate_are_closed(tmp_path: Path) -> None:
    cluster = mint_cluster(tmp_path / "c", "ps", "trainer", "other")
    options = Options(lost_after=4.0)
    workers = {
        name: start_worker(name, number, TLS, each.key, options, each.credentials)
        for number, (name, each) in enumerate(cluster.items())
    }
    try:
        for one in workers.values():
            for other in workers.values():
                if one is not other:
                    one.add_peer(WorkerInfo(other.name, other.id), other.address)
        ps = workers["ps"]
        assert ps.rpc_sync("trainer", simulated.who) == "trainer"
        assert workers["trainer"].rpc_sync("ps", simulated.who) == "ps"
        assert workers["other"].rpc_sync("ps", simulated.who) == "ps"
        held = ps.rpc_async("trainer", simulated.never)
        revoke(tmp_path / "c", ["trainer"])
        (tmp_path / "c/trainer/revoked").unlink()
        with pytest.raises(WorkerLost, match="'trainer' was lost: the certificate of trainer was"):
            held.wait(20)
        with pytest.raises(AuthenticationFailed, match="the certificate of trainer was revoked"):
            ps.rpc_sync("trainer", simulated.who)
        assert eventually(lambda: not ps.peers.find("trainer").connections())
        with pytest.raises((AuthenticationFailed, WorkerLost)):
            workers["trainer"].rpc_sync("ps", simulated.who)
        assert workers["other"].rpc_sync("ps", simulated.who) == "ps"
    finally:
        for worker in workers.values():
            worker.close()


def test_a_name_whose_certificate_was_revoked_goes_by_tls_on_one_machine(tmp_path: Path) -> None:
    cluster = mint_cluster(tmp_path / "c", "ps", "trainer", "other")
    with contextlib.ExitStack() as stack:
        workers = {}
        for number, (name, each) in enumerate(cluster.items()):
            options = Options(host="127.0.0.1", lost_after=4.0)
            made, directory = begin_worker(
                name, number, each.key, options, credentials=each.credentials
            )
            assert directory is not None
            stack.callback(directory.close)
            stack.callback(made.close)
            workers[name] = made
        for one in workers.values():
            for other in workers.values():
                if one is not other:
                    one.add_peer(WorkerInfo(other.name, other.id), other.address)
        ps, trainer, other = workers.values()
        assert trainer.rpc_sync("ps", simulated.who) == "ps"
        assert other.rpc_sync("ps", simulated.who) == "ps"
        revoke(tmp_path / "c", ["trainer"])
        (tmp_path / "c/trainer/revoked").unlink()
        assert eventually(lambda: not ps.peers.find("trainer").connections(), 20)

        def is_refused() -> bool:
            with pytest.raises((AuthenticationFailed, WorkerLost)) as caught:
                trainer.rpc_sync("ps", simulated.who)
            return caught.type is AuthenticationFailed

        assert eventually(is_refused)
        with pytest.raises(AuthenticationFailed, match="the certificate of trainer was revoked"):
            ps.rpc_sync("trainer", simulated.who)
        # By another certificate, it is let in again: by TLS, which shows it.
        (tmp_path / "c/trainer").rename(tmp_path / "old")
        mint(tmp_path / "c", ["trainer"], now=datetime.datetime.now(datetime.UTC))
        assert trainer.rpc_sync("ps", simulated.who) == "ps"
        assert ps.rpc_sync("trainer", simulated.who) == "trainer"
        assert {wire_of(trainer, "ps"), wire_of(ps, "trainer")} == {"SecureConnection"}
        assert wire_of(other, "ps") == "PlainConnection"


def wire_of(worker: Worker, to: str) -> str:
    path = worker.peers.find(to).outgoing
    assert isinstance(path, Link)
    return type(path.connection).__name__


def test_a_worker_whose_certificate_was_revoked_does_not_start(tmp_path: Path) -> None:
    mint_cluster(tmp_path / "c", "ps")
    revoke(tmp_path / "c", ["ps"])
    own = Credentials(tmp_path / "c/ps")
    with pytest.raises(UsageError, match=r"refused by every worker .*revoked"):
        start_worker("ps", 0, TLS, own.load_key(), credentials=own)


def test_workers_minted_later_have_the_list(tmp_path: Path) -> None:
    mint_cluster(tmp_path / "c", "ps", "trainer")
    copies = revoke(tmp_path / "c", ["trainer"])
    assert [path.parent.name for path in copies] == ["authority", "ps", "trainer"]
    revoke(tmp_path / "c", ["trainer", "ps"])
    mint_cluster(tmp_path / "c", "late")
    assert len(load_revoked(tmp_path / "c/late/revoked")) == 2
    assert (tmp_path / "c/late/revoked").read_text().endswith(" ps\n")


def test_a_list_that_is_none_is_refused(tmp_path: Path) -> None:
    mint_cluster(tmp_path / "c", "ps")
    for text in ("zz\n", "abcd\n", "\xe4"):
        (tmp_path / "c/ps/revoked").write_text(text, "latin-1")
        with pytest.raises(UsageError, match="64 hexadecimal digits at the beginning of each line"):
            Credentials(tmp_path / "c/ps")
    with pytest.raises(UsageError, match=r"expected the certificate to revoke in .*nobody"):
        revoke(tmp_path / "c", ["nobody"])
