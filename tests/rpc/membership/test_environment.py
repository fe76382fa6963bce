"""How a worker finds its key and certificate by its environment."""

import datetime
import os
from pathlib import Path

import pytest

from telegrad.errors import UsageError
from telegrad.rpc.membership.environment import CREDENTIALS, KEY_FILE, find_secrets, threads_each
from telegrad.rpc.security.certificates import mint
from telegrad.rpc.security.keys import ClusterKey


@pytest.fixture
def minted(tmp_path: Path) -> Path:
    return mint(tmp_path / "cluster", ["ps"], now=datetime.datetime.now(datetime.UTC))[0]


def test_a_key_file_alone_is_enough_on_one_machine(tmp_path: Path) -> None:
    key = ClusterKey.fresh()
    key.save(tmp_path / "key")
    found, credentials = find_secrets({KEY_FILE: str(tmp_path / "key")})
    assert found.valid() == (key,)
    assert credentials is None


def test_a_minted_directory_holds_both(minted: Path) -> None:
    key, credentials = find_secrets({CREDENTIALS: str(minted)})
    assert key.valid() == (ClusterKey.load(minted / "cluster.key"),)
    assert credentials is not None
    assert credentials.directory == minted


def test_a_key_file_takes_precedence_over_the_directorys(minted: Path, tmp_path: Path) -> None:
    key = ClusterKey.fresh()
    key.save(tmp_path / "key")
    found, credentials = find_secrets({CREDENTIALS: str(minted), KEY_FILE: str(tmp_path / "key")})
    assert found.valid() == (key,)
    assert credentials is not None


def test_without_any_the_error_lists_the_ways() -> None:
    said = r"telegrad run.*LocalCluster.*TELEGRAD_KEY_FILE.*keygen FILE.*TELEGRAD_CREDENTIALS"
    with pytest.raises(UsageError, match=said):
        find_secrets({})


def test_processes_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)), raising=False)
    assert [threads_each(n) for n in (1, 3, 5, 16, 40)] == ["16", "5", "3", "1", "1"]
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert threads_each(2) == "1"
