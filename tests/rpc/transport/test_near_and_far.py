"""Two ways to one worker: a Unix socket for those of its machine, TLS for all others."""

import contextlib
import os
from collections.abc import Iterator

import numpy as np
import pytest
from tests.rpc import simulated

from telegrad.errors import UsageError, WorkerLost
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.options import Options
from telegrad.rpc.security.keyed_credentials import KeyedCredentials
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.startup import begin_worker
from telegrad.rpc.transport import address as addresses
from telegrad.rpc.transport.address import is_near, parse_addresses, ways_from_here
from telegrad.rpc.transport.machine import this_machine
from telegrad.rpc.worker import Worker

KEY = ClusterKey.fresh()
LARGE = np.arange(4 << 20, dtype=np.float64)
"""32 MiB."""


@contextlib.contextmanager
def worker(name: str, number: int, **options: object) -> Iterator[Worker]:
    """A worker of a cluster that uses TLS, as init_rpc starts it."""
    made, directory = begin_worker(
        name,
        number,
        KEY,
        Options(host="127.0.0.1", **options),  # type: ignore[arg-type]
        credentials=KeyedCredentials(name, KEY),
    )
    try:
        yield made
    finally:
        made.close()
        if directory is not None:
            directory.close()


@contextlib.contextmanager
def pair(**options: object) -> Iterator[tuple[Worker, Worker]]:
    with worker("a", 0) as a, worker("b", 1, **options) as b:
        a.add_peer(WorkerInfo("b", 1, b.info.incarnation), b.address)
        b.add_peer(WorkerInfo("a", 0, a.info.incarnation), a.address)
        yield a, b


def echo(value: object) -> object:
    return value


def wire_of(a: Worker) -> tuple[str, bool]:
    """How the path to b goes: by which kind of connection, and whether memory is shared."""
    path = a.peers.find("b").outgoing
    assert path is not None
    connection = path.connection  # type: ignore[attr-defined]
    return type(connection).__name__, connection.same_host


def segment_bytes(made: Worker) -> int:
    pool = made.host.segment_pool  # type: ignore[attr-defined]
    return 0 if pool is None else pool.resident


def test_a_large_array_goes_through_shared_memory_on_one_machine_of_a_tls_cluster() -> None:
    with pair() as (a, b):
        near, far = parse_addresses(b.address)
        assert (near.scheme, near.machine, far.scheme) == ("unix", this_machine(), "tls")
        assert np.array_equal(a.rpc_sync("b", echo, (LARGE,)), LARGE)
        assert wire_of(a) == ("PlainConnection", True)
        assert segment_bytes(a) >= LARGE.nbytes


def test_another_machine_is_spoken_to_by_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    with pair() as (a, _):
        # As if this process had been moved.
        monkeypatch.setattr(addresses, "this_machine", lambda: "0123456789abcdef")
        assert np.array_equal(a.rpc_sync("b", echo, (LARGE,)), LARGE)
        assert wire_of(a) == ("SecureConnection", False)
        assert segment_bytes(a) == 0


def test_a_socket_that_has_gone_leaves_the_other_way() -> None:
    with pair() as (a, b):
        os.unlink(parse_addresses(b.address)[0].path)
        assert a.rpc_sync("b", simulated.who) == "b"
        assert wire_of(a) == ("SecureConnection", False)


def test_a_worker_that_has_ended_is_lost_by_both_ways() -> None:
    with pair() as (a, b):
        b.close()
        with pytest.raises(WorkerLost, match=r"reached at tls://127\.0\.0\.1:\d+, where b should"):
            a.rpc_sync("b", simulated.who)


def test_without_unix_sockets_there_is_one_way() -> None:
    with pair(unix_sockets=False) as (a, b):
        assert b.address.startswith("tls://127.0.0.1:")
        assert a.rpc_sync("b", simulated.who) == "b"
        assert wire_of(a) == ("SecureConnection", False)


def test_where_the_machine_is_not_told_there_is_one_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("telegrad.rpc.startup.this_machine", lambda: "")
    with worker("b", 1) as b:
        assert b.address.startswith("tls://")


def test_the_machine_is_a_kernel_its_namespaces_and_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    here = this_machine()
    assert here == this_machine()
    assert len(here) == 16
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert this_machine() != here
    monkeypatch.undo()
    monkeypatch.setattr(os, "readlink", lambda path: f"{path}:[7]")
    assert this_machine() != here


def test_addresses_are_read_as_they_are_written() -> None:
    both = f"unix://{this_machine()}/a,b/c.sock,tls://10.0.0.7:80"
    assert ",".join(each.text for each in parse_addresses(both)) == both
    assert [each.scheme for each in ways_from_here(both)] == ["unix", "tls"]
    elsewhere = both.replace(this_machine(), "0" * 16)
    assert [each.scheme for each in ways_from_here(elsewhere)] == ["tls"]
    assert is_near(both)
    assert is_near("")
    assert is_near("unix:///x")
    assert not is_near(elsewhere)
    assert not is_near("tls://10.0.0.7:80")
    assert is_near("no address at all"), "a peer may say anything, and it raises nothing"
    assert parse_addresses("unix:///a,b")[0].path == "/a,b"
    with pytest.raises(UsageError, match="absolute path after unix://"):
        parse_addresses("unix://machine/x,tls://10.0.0.7:80")
