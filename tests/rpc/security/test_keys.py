"""The cluster's key: hidden, private on disk, not to be pickled."""

import os
import pickle
import stat
from contextlib import nullcontext
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from telegrad.errors import Refused, UsageError
from telegrad.rpc.security.keys import KEY_BYTES, ClusterKey
from telegrad.rpc.transport import Identity


def test_what_is_derived_is_what_hkdf_expand_gives_elsewhere() -> None:
    secret, info = bytes(range(32)), b"telegrad dialler proof\0transcript"
    elsewhere = HKDFExpand(SHA256(), 32, info).derive(secret)
    assert ClusterKey(secret).derive("telegrad dialler proof", b"transcript") == elsewhere


def test_fresh_keys_differ() -> None:
    assert ClusterKey.fresh() != ClusterKey.fresh()


def test_a_key_survives_its_file_and_the_file_is_private(tmp_path: Path) -> None:
    key = ClusterKey.fresh()
    path = tmp_path / "cluster.key"
    before = os.umask(0)
    try:
        key.save(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    assert ClusterKey.load(path) == key


def test_an_existing_key_file_is_not_replaced(tmp_path: Path) -> None:
    key = ClusterKey.fresh()
    key.save(tmp_path / "cluster.key")
    with pytest.raises(FileExistsError):
        ClusterKey.fresh().save(tmp_path / "cluster.key")
    assert ClusterKey.load(tmp_path / "cluster.key") == key


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cluster.key"
    ClusterKey.fresh().save(path)
    path.chmod(0o644)
    with pytest.raises(Refused, match=r"mode 0644.*chmod 600"):
        ClusterKey.load(path)


def test_a_missing_key_file_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"make one with `telegrad keygen FILE`"):
        ClusterKey.load(tmp_path / "none")


@pytest.mark.parametrize("contents", [b"", b"abcd", b"zz" * KEY_BYTES, b"\xff" * 64, b"ab" * 33])
def test_a_broken_key_file_is_named_but_not_quoted(tmp_path: Path, contents: bytes) -> None:
    path = tmp_path / "cluster.key"
    path.write_bytes(contents)
    path.chmod(0o600)
    with pytest.raises(UsageError, match="64 hexadecimal digits") as caught:
        ClusterKey.load(path)
    assert str(path) in str(caught.value)
    assert not contents or contents.decode("latin-1") not in str(caught.value)


def test_a_key_of_another_length_says_what_was_expected() -> None:
    with pytest.raises(UsageError, match="expected a cluster key of 32 bytes, got 3 bytes"):
        ClusterKey(b"abc")


def test_no_representation_shows_the_key() -> None:
    key = ClusterKey(b"SECRETSECRETSECRETSECRETSECRETSE")
    shown = f"{key} {key!r} {Identity('ps', 1, key)!r}"
    assert "SECRET" not in shown
    assert key.encode().decode().strip() not in shown


def test_a_key_cant_be_pickled() -> None:
    with pytest.raises(UsageError, match="can't be pickled"):
        pickle.dumps(ClusterKey.fresh())


@pytest.mark.parametrize(
    ("owner", "mode", "is_refused"),
    [
        (1000, 0o600, False),
        (1000, 0o640, True),
        (0, 0o640, False),
        (0, 0o440, False),
        (0, 0o660, True),
        (0, 0o644, True),
    ],
)
def test_of_a_key_that_root_owns_the_group_may_read_but_never_the_world(
    tmp_path, monkeypatch, owner, mode, is_refused
):
    key = ClusterKey.fresh()
    key.save(tmp_path / "key")
    status = os.stat_result((stat.S_IFREG | mode, 0, 0, 1, owner, 0, 65, 0, 0, 0))
    monkeypatch.setattr(os, "fstat", lambda fd: status)
    refusal = pytest.raises(Refused, match=f"mode {mode:04o}") if is_refused else nullcontext()
    with refusal:
        assert ClusterKey.load(tmp_path / "key") == key


def test_a_key_as_text_is_parsed_and_what_is_none_is_not_shown() -> None:
    key = ClusterKey.fresh()
    assert ClusterKey.parse(key.encode().decode(), "TELEGRAD_KEY") == key
    with pytest.raises(UsageError, match="64 hexadecimal digits in TELEGRAD_KEY") as caught:
        ClusterKey.parse("secret", "TELEGRAD_KEY")
    assert "secret" not in str(caught.value)
