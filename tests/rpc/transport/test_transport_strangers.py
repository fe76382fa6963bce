"""A listener among strangers: each is closed and logged once, and workers get through."""

import contextlib
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.rpc.connected import PATIENCE, Clock, Host, hosting, identities, receive, receive_exactly
from tests.rpc.inside import unproved

from telegrad.errors import ProtocolViolation
from telegrad.rpc.security.introduction import Ends, Introduction, Side
from telegrad.rpc.transport import Connection, connect, listen, listener

PS, TRAINER = identities()
WRONG_PROOF = b"\x01" + b"p" * 32


@pytest.fixture
def host() -> Iterator[Host]:
    with hosting("tcp://127.0.0.1:0", PS) as made:
        yield made


def dial(host: Host) -> socket.socket:
    port = int(host.address.rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)


def introduction(stranger: socket.socket) -> bytes:
    """Return what a worker would say on this connection to be asked for its proof."""
    ends = Ends(stranger.getsockname(), stranger.getpeername())
    return Introduction(Side.DIALLER, "eve", 1, b"e" * 32, expected=PS.name, ends=ends).encode()


def is_closed(stranger: socket.socket) -> bool:
    """Say whether the other side closes in time; what it says before is of no interest."""
    try:
        while stranger.recv(4096):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "the condition never came true"
        threading.Event().wait(0.005)


def a_worker_gets_through(host: Host) -> None:
    with contextlib.closing(connect(host.address, identity=TRAINER, expect="ps")) as dialled:
        accepted = host.accept()
        dialled.send([b"hello"])
        assert receive_exactly(accepted, 5) == b"hello"
        accepted.close()


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        pytest.param(
            lambda _: b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            "expected a worker's introduction",
            id="another protocol",
        ),
        pytest.param(
            lambda _: os.urandom(5000), "expected a worker's introduction", id="random bytes"
        ),
        pytest.param(
            lambda _: b"\x80\x04\x95" + b"\0" * 300,
            "expected a worker's introduction",
            id="a pickle",
        ),
        pytest.param(
            lambda stranger: introduction(stranger) + WRONG_PROOF,
            "did not prove the cluster's key",
            id="a wrong proof",
        ),
        pytest.param(
            lambda stranger: introduction(stranger) + WRONG_PROOF + b"payload" * 1000,
            "did not prove the cluster's key",
            id="eager payload",
        ),
        pytest.param(
            lambda stranger: introduction(stranger).replace(b"telegrad\x01", b"telegrad\x02"),
            "our own message sent back",
            id="a listener's",
        ),
    ],
)
def test_a_stranger_is_closed_and_logged_once_with_its_address(
    host: Host,
    said: Callable[[socket.socket], bytes],
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "telegrad.rpc"), dial(host) as stranger:
        port = stranger.getsockname()[1]
        stranger.sendall(said(stranger))
        assert is_closed(stranger)
        a_worker_gets_through(host)
    (record,) = caplog.records
    assert f"127.0.0.1 port {port}" in record.getMessage()
    assert reason in record.getMessage()


def test_a_stranger_that_hangs_up_midway_is_logged_once(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "telegrad.rpc"):
        with dial(host) as stranger:
            stranger.sendall(introduction(stranger)[:100])
        until(lambda: bool(caplog.records))
        a_worker_gets_through(host)
    (record,) = caplog.records
    assert "100 bytes of it came" in record.getMessage()


def test_a_silent_stranger_is_closed_at_the_deadline_while_workers_get_through(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(listener, "time", clock)
    with (
        hosting("tcp://127.0.0.1:0", PS, handshake_timeout=0.2) as host,
        caplog.at_level(logging.WARNING, "telegrad.rpc"),
        dial(host) as silent,
        dial(host) as slow,
    ):
        slow.sendall(introduction(slow))
        a_worker_gets_through(host)
        clock.sleep(0.2)
        assert is_closed(silent)
        assert is_closed(slow)
    assert [record.getMessage().count("deadline") for record in caplog.records] == [1, 1]


def test_descriptors_that_an_impostor_sends_to_who_dials_it_are_closed(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()

        def answer() -> None:
            with server.accept()[0] as accepted:
                socket.send_fds(accepted, [b"?" * 200], [accepted.fileno()] * 3)
                is_closed(accepted)

        before = psutil.Process().num_fds()
        answering = threading.Thread(target=answer)
        answering.start()
        with pytest.raises(ProtocolViolation, match=re.escape(path)):
            connect(f"unix://{path}", identity=TRAINER, timeout=PATIENCE)
        answering.join(PATIENCE)
        assert psutil.Process().num_fds() == before


def test_of_too_many_strangers_the_oldest_goes() -> None:
    with (
        hosting("tcp://127.0.0.1:0", PS, most_unproved=5) as host,
        contextlib.ExitStack() as stack,
    ):
        strangers = [stack.enter_context(dial(host)) for _ in range(20)]
        a_worker_gets_through(host)
        for stranger in strangers[:15]:
            assert is_closed(stranger)
        strangers[-1].settimeout(0)
        with pytest.raises(BlockingIOError):
            strangers[-1].recv(1)


def test_a_connection_that_cant_be_served_is_closed_and_the_listener_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    served: list[Connection] = []

    def serve(connection: Connection) -> None:
        served.append(connection)
        if len(served) == 1:
            raise RuntimeError("no room")

    with listen("tcp://127.0.0.1:0", identity=PS, on_connection=serve) as listener:
        with contextlib.closing(
            connect(listener.address, identity=TRAINER, expect=PS.name)
        ) as first:
            assert receive(first, memoryview(bytearray(1))) == 0
        with contextlib.closing(connect(listener.address, identity=TRAINER, expect=PS.name)):
            until(lambda: len(served) == 2)
    served[1].close()
    assert "could not be served" in caplog.text


def test_closing_a_listener_drops_strangers_and_frees_the_port() -> None:
    with hosting("tcp://127.0.0.1:0", PS) as host:
        stranger = dial(host)
    with stranger:
        assert is_closed(stranger)
    with hosting(host.address, PS) as again:
        a_worker_gets_through(again)


def test_a_listener_can_be_closed_from_its_own_callback_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    listener = listen(
        "tcp://127.0.0.1:0", identity=PS, on_connection=lambda connection: listener.close()
    )
    with contextlib.closing(connect(listener.address, identity=TRAINER, expect=PS.name)):
        # Those of earlier tests may end meanwhile.
        until(lambda: set(threading.enumerate()) <= before)
    listener.close()


def test_a_listener_without_descriptors_rests_and_goes_on(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    resource = pytest.importorskip("resource", reason="this system has no limits to lower")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    where = ("127.0.0.1", int(host.address.rpartition(":")[2]))
    with contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(socket.socket()) for _ in range(20)]
        for stranger in strangers:
            stranger.settimeout(PATIENCE)
        dialled = []
        highest = os.open(os.devnull, os.O_RDONLY)
        stack.callback(os.close, highest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 5, hard))

        def is_noticed() -> bool:
            if "can't accept connections for now" in caplog.text:
                return True
            # Once more: a thread of an earlier test may have closed one that it had, and the
            # stranger before have got it.
            with contextlib.suppress(OSError):
                while True:
                    stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
            if unproved(host.listener) == len(dialled):
                dialled.append(strangers.pop())
                dialled[-1].connect(where)
            return False

        try:
            until(is_noticed)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for stranger in dialled:
            stranger.sendall(b"nonsense")
            assert is_closed(stranger)
    a_worker_gets_through(host)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(said=st.binary(max_size=400), introduced=st.booleans())
def test_whatever_strangers_say_none_gets_in(host: Host, said: bytes, introduced: bool) -> None:
    with dial(host) as stranger:
        # It may be reset as soon as enough was said.
        with contextlib.suppress(OSError):
            stranger.sendall((introduction(stranger) if introduced else b"") + said)
            stranger.shutdown(socket.SHUT_WR)
        assert is_closed(stranger)
    assert host.arrived.empty()


def test_a_thousand_strangers_leave_no_descriptor(host: Host) -> None:
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("this system does not list a process's descriptors")
    a_worker_gets_through(host)
    before = len(os.listdir("/proc/self/fd"))
    for turn in range(1000):
        with dial(host) as stranger:
            stranger.sendall(b"telegrad" if turn % 2 else b"nonsense")
    a_worker_gets_through(host)
    until(lambda: len(os.listdir("/proc/self/fd")) == before)
