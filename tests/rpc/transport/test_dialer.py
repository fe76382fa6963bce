"""Dialling a peer that does not answer: nobody waits for it longer than its own deadline."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.rpc.connected import PATIENCE, Clock, hosting, identities, mint_cluster
from tests.rpc.inside import sleepers
from tests.rpc.neighbours import eventually, neighbours

from telegrad.errors import CallTimeout, NotInitialized, WorkerLost
from telegrad.rpc.calls.future import Future
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.options import Options
from telegrad.rpc.security.introduction import NONCE_BYTES, Ends, Introduction, Side
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.security.tls import Credentials
from telegrad.rpc.startup import own_host, start_worker
from telegrad.rpc.transport import address, connect, dialer


def test_a_call_does_not_wait_beyond_its_deadline_for_anothers_dialling() -> None:
    a = start_worker("a", 0, "tcp://127.0.0.1:0", ClusterKey.fresh(), Options(lost_after=PATIENCE))
    failed: list[BaseException] = []

    def call_patiently() -> None:
        with pytest.raises(WorkerLost) as caught:
            a.rpc_sync("b", abs, (-1,))
        failed.append(caught.value)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        a.add_peer(WorkerInfo("b", 1, 1), f"tcp://127.0.0.1:{silent.getsockname()[1]}")
        patient = threading.Thread(target=call_patiently)
        patient.start()
        try:
            dialled, _ = silent.accept()
            with pytest.raises(CallTimeout, match="'b' could not be reached before the deadline"):
                a.rpc_async("b", abs, (-1,), timeout=0.1)
            assert patient.is_alive(), "the one that dials goes on"
            dialled.close()
        finally:
            patient.join(PATIENCE)
            a.close()
    assert len(failed) == 1


def test_a_failed_dialling_is_told_to_all_who_waited_for_it() -> None:
    a = start_worker("a", 0, "tcp://127.0.0.1:0", ClusterKey.fresh(), Options(lost_after=PATIENCE))
    count = 4
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        ThreadPoolExecutor(count) as threads,
    ):
        a.add_peer(WorkerInfo("b", 1, 1), f"tcp://127.0.0.1:{silent.getsockname()[1]}")
        try:
            calls = [threads.submit(a.rpc_sync, "b", abs, (-1,)) for _ in range(count)]
            dialled, _ = silent.accept()
            attempt = a.peers.find("b").attempt
            assert isinstance(attempt, Future)
            assert eventually(lambda: sleepers(attempt) == count - 1)
            # Whoever dials again is not answered.
            dialled.close()
            errors = [call.exception(PATIENCE / 2) for call in calls]
            assert {type(error) for error in errors} == {WorkerLost}
            assert len({str(error) for error in errors}) == 1
            silent.close()
            with pytest.raises(WorkerLost, match="Connection refused"):
                a.rpc_sync("b", abs, (-1,))
        finally:
            a.close()


def test_a_worker_that_shuts_down_while_it_dials_says_so_and_takes_nobody_for_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with neighbours("a", "b") as (a, _):
        dial = a.host.dial

        def shut_down_first(*given: Any) -> Any:
            a.close()
            return dial(*given)

        monkeypatch.setattr(a.host, "dial", shut_down_first)
        with pytest.raises(NotInitialized, match="worker 'a' has shut down"):
            a.rpc_sync("b", abs, (-1,))


def die_at(stage: str, server: socket.socket, credentials: Credentials | None) -> None:
    """Take part in a handshake as the worker b and end before a message is answered."""
    wire, _ = server.accept()
    if credentials is not None and stage != "greeting":
        wire = credentials.current().server.wrap_socket(wire, server_side=True)
    with wire, server:
        assert wire.recv(1 << 16)
        if stage == "proof":
            ends = None if credentials else Ends(wire.getpeername(), wire.getsockname())
            own = Introduction(Side.LISTENER, "b", 1, b"n" * NONCE_BYTES, ends=ends)
            wire.sendall(own.encode())
            assert wire.recv(1 << 16)


@pytest.mark.parametrize("scheme", ["tcp", "tls"])
@pytest.mark.parametrize("stage", ["greeting", "introduction", "proof"])
def test_a_worker_that_dies_while_it_is_dialled_is_lost_and_has_refused_nobody(
    stage: str, scheme: str, tmp_path: Path
) -> None:
    key, mine, theirs = ClusterKey.fresh(), None, None
    if scheme == "tls":
        who = mint_cluster(tmp_path / "cluster", "a", "b")
        key, mine, theirs = who["a"].key, who["a"].credentials, who["b"].credentials
    a = start_worker("a", 0, f"{scheme}://127.0.0.1:0", key, credentials=mine)
    with (
        contextlib.closing(a),
        socket.create_server(("127.0.0.1", 0)) as server,
        ThreadPoolExecutor(1) as threads,
    ):
        a.add_peer(WorkerInfo("b", 1, 1), f"{scheme}://127.0.0.1:{server.getsockname()[1]}")
        dying = threads.submit(die_at, stage, server, theirs)
        with pytest.raises(WorkerLost, match=r"'b' was lost: .* the connection|where b should be"):
            a.rpc_sync("b", abs, (-1,))
        dying.result(PATIENCE)


@contextlib.contextmanager
def swallowing(host: str, port: int) -> Iterator[None]:
    """Listen with a queue that is full: the kernel drops what comes, as a firewall does."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(socket.create_server((host, port), backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex((host, port))
        yield


def test_an_address_that_swallows_all_leaves_time_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ps, trainer = identities()
    with hosting("tcp://127.0.0.1:0", ps) as host:
        port = int(host.address.rpartition(":")[2])
        hosts = ("127.0.0.2", "127.0.0.1")
        found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, port)) for address in hosts]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        with swallowing("127.0.0.2", port):
            connection = connect(f"tcp://both:{port}", identity=trainer, expect="ps", timeout=6.0)
            connection.close()
            host.accept().close()


def test_the_last_of_several_attempts_does_not_outlast_the_patience(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    allowed: list[float] = []

    def wait_in_vain(*_: object) -> None:
        timeout = allowed[-1]
        clock.sleep(timeout)
        raise dialer._Unreachable("timed out", is_busy=False)

    def begin(*given: Any) -> None:
        allowed.append(given[-1])

    monkeypatch.setattr(dialer, "time", clock)
    monkeypatch.setattr(dialer, "_begin", begin)
    monkeypatch.setattr(dialer, "_open", wait_in_vain)
    _, trainer = identities()
    with pytest.raises(WorkerLost, match=r"tried 2 times in 13\.0 s"):
        connect("tcp://127.0.0.1:1", identity=trainer, timeout=10.0, patience=13.0)
    assert allowed == [10.0, pytest.approx(2.99)]


def unknown_at_first(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Let the name "soon" be known after that many looks for it."""
    look_up, looks = socket.getaddrinfo, iter(range(times))

    def getaddrinfo(host: str, *args: Any, **kwargs: Any) -> Any:
        if host == "soon" and next(looks, None) is not None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return look_up("127.0.0.1" if host == "soon" else host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(address, "time", Clock())


def test_a_host_that_is_not_known_yet_is_looked_up_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ps, trainer = identities()
    with hosting("tcp://127.0.0.1:0", ps) as host:
        port = host.address.rpartition(":")[2]
        unknown_at_first(monkeypatch, 3)
        connect(f"tcp://soon:{port}", identity=trainer, expect="ps", patience=10.0).close()
        host.accept().close()
    assert caplog.text.count("the host of tcp://soon:") == 1


def test_a_host_that_stays_unknown_is_told_of_when_the_patience_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, trainer = identities()
    unknown_at_first(monkeypatch, 1000)
    with pytest.raises(WorkerLost, match=r"the host of tcp://soon:1 is not known \(Name or"):
        connect("tcp://soon:1", identity=trainer, patience=10.0)
    assert address.time.monotonic() == pytest.approx(10.0)


def test_the_own_address_is_found_when_the_master_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown_at_first(monkeypatch, 3)
    assert own_host(address.parse_address("tls://soon:29500"), 10.0) == "127.0.0.1"
