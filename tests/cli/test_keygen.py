"""`telegrad keygen`: what it makes, for whom it is readable, what it refuses."""

import os
from pathlib import Path

import pytest

from telegrad.cli import main
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.security.tls import Credentials

WORKER_FILES = ["authority.pem", "certificate.pem", "cluster.key", "private.pem"]


@pytest.fixture
def cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    before = os.umask(0)
    try:
        assert main(["keygen", str(tmp_path / "cluster"), "--workers", "ps,trainer0"]) == 0
    finally:
        os.umask(before)
    return tmp_path / "cluster"


def test_each_worker_gets_a_directory_that_can_be_loaded(
    cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("ps", "trainer0"):
        assert sorted(os.listdir(cluster / name)) == WORKER_FILES
        Credentials(cluster / name)
    keys = {ClusterKey.load(path) for path in cluster.glob("*/cluster.key")}
    assert len(keys) == 1
    assert "copy it to the machine of ps" in capsys.readouterr().out


def test_every_file_and_directory_is_private(cluster: Path) -> None:
    for path in cluster.rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_no_worker_gets_the_authoritys_private_key(cluster: Path) -> None:
    secret = (cluster / "authority/private.pem").read_bytes()
    assert all(
        path.read_bytes() != secret
        for path in cluster.glob("*/private.pem")
        if path.parent.name != "authority"
    )


def test_workers_added_later_share_the_authority_and_the_key(cluster: Path) -> None:
    assert main(["keygen", str(cluster), "--workers", "trainer1"]) == 0
    for name in ("authority.pem", "cluster.key"):
        assert (cluster / "trainer1" / name).read_bytes() == (cluster / "ps" / name).read_bytes()
    Credentials(cluster / "trainer1")


def test_what_exists_is_not_replaced(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (cluster / "ps/private.pem").read_bytes()
    assert main(["keygen", str(cluster), "--workers", "new,ps"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert (cluster / "ps/private.pem").read_bytes() == before
    assert not (cluster / "new").exists()


def test_a_broken_authority_is_named(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cluster / "authority/authority.pem").write_text("nonsense")
    assert main(["keygen", str(cluster), "--workers", "new"]) == 2
    assert "the authority in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("workers", "complaint"),
    [
        ("a,a", "two workers are called 'a'"),
        ("authority", "choose another name"),
        ("../evil", "expected a worker's name"),
        ("a,,b", "expected a worker's name"),
        ("", "expected --workers to be names like ps,trainer0 or a number"),
    ],
)
def test_bad_names_are_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], workers: str, complaint: str
) -> None:
    assert main(["keygen", str(tmp_path / "c"), "--workers", workers]) == 2
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


def test_a_lifetime_of_no_days_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["keygen", str(tmp_path / "c"), "--workers", "a", "--days", "0"]) == 2
    assert "--days of at least 1" in capsys.readouterr().err


@pytest.mark.parametrize("days", ["9999999", "99999999999999999999"])
def test_a_lifetime_beyond_all_dates_is_refused_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], days: str
) -> None:
    place = tmp_path / "cluster"
    assert main(["keygen", str(place), "--workers", "a", "--days", days]) == 2
    assert f"that end before the year 10000, got {days}" in capsys.readouterr().err
    assert not place.exists()


def test_a_place_that_can_not_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["keygen", str(tmp_path / "file"), "--workers", "a"]) == 2
    assert capsys.readouterr().err == f"telegrad: Not a directory: {tmp_path}/file/authority\n"


def test_without_cryptography_the_error_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "telegrad.rpc.security.certificates", None)
    assert main(["keygen", str(tmp_path / "c"), "--workers", "a"]) == 2
    assert "pip install cryptography" in capsys.readouterr().err


def test_without_workers_it_makes_a_key_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cluster.key"
    assert main(["keygen", str(path)]) == 0
    assert len(ClusterKey.load_all(path)) == 1
    assert path.stat().st_mode & 0o777 == 0o600
    assert "copy it to every machine" in capsys.readouterr().out
    assert main(["keygen", str(path)]) == 2
    assert "is there already" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["cluster", "cluster/ps/cluster.key"])
def test_a_key_is_changed_in_three_steps(
    cluster: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    one = cluster.parent / place
    paths = [one] if one.is_file() else sorted(cluster.glob("*/cluster.key"))
    (old,) = ClusterKey.load_all(paths[0])
    seen = []
    for step in ("add", "use", "drop"):
        assert main(["keygen", str(cluster.parent / place), "--rotate", step]) == 0
        assert len({ClusterKey.load_all(path) for path in paths}) == 1
        seen.append(ClusterKey.load_all(paths[0]))
    new = seen[-1][0]
    assert seen == [(old, new), (new, old), (new,)]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in paths)
    said = capsys.readouterr().out
    assert f"prove with the key {old.tag} from then on, {new.tag} is taken, too" in said
    assert main(["keygen", str(cluster.parent / place), "--rotate", "drop"]) == 2
    assert "begin with --rotate add" in capsys.readouterr().err


def test_changing_a_key_that_is_not_there_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["keygen", str(tmp_path), "--rotate", "add"]) == 2
    assert "no cluster.key in the directories of" in capsys.readouterr().err
    assert main(["keygen", str(tmp_path / "none"), "--rotate", "add"]) == 2
    assert "no cluster key at" in capsys.readouterr().err


def test_a_certificate_is_revoked_in_every_workers_list(
    cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["keygen", str(cluster), "--revoke", "trainer0"]) == 0
    assert f"{cluster}/ps/revoked: copy it" in capsys.readouterr().out
    own = Credentials(cluster / "trainer0").current().digest
    assert Credentials(cluster / "ps").current().revoked == {own: "trainer0"}
    assert main(["keygen", str(cluster), "--revoke", "nobody"]) == 2
    assert "expected the certificate to revoke in" in capsys.readouterr().err
    assert main(["keygen", str(cluster / "ps"), "--revoke", "ps"]) == 2
    assert "the authority in" in capsys.readouterr().err
