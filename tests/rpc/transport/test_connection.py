"""Authenticated connections: what both ends see, and how bytes and descriptors move."""

import array
import contextlib
import errno
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from tests.rpc.connected import (
    PATIENCE,
    Clock,
    connected,
    hosting,
    identities,
    mint_cluster,
    receive,
    receive_exactly,
)

from telegrad.errors import (
    AuthenticationFailed,
    ProtocolViolation,
    Refused,
    UsageError,
    WorkerLost,
)
from telegrad.rpc.security.introduction import Limits
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.transport import (
    Connection,
    Identity,
    PrivateDirectory,
    connect,
    dialer,
    listen,
    parse_address,
)

KINDS = ["unix", "tcp", "tls"]
Pair = tuple[Connection, Connection]


@pytest.fixture
def directory() -> Iterator[PrivateDirectory]:
    with PrivateDirectory.make() as made:
        yield made


@pytest.fixture(params=KINDS)
def pair(
    request: pytest.FixtureRequest, directory: PrivateDirectory, tmp_path: Path
) -> Iterator[Pair]:
    """The dialling trainer's connection and the listening ps's, over every kind of wire."""
    if request.param == "tls":
        workers = mint_cluster(tmp_path / "cluster", "ps", "trainer")
        ps, trainer = workers["ps"], workers["trainer"]
    else:
        ps, trainer = identities()
    address = (
        directory.socket_address("ps")
        if request.param == "unix"
        else f"{request.param}://127.0.0.1:0"
    )
    with connected(address, ps, trainer) as made:
        yield made


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """Start the work in a thread; its result or its error ends up in the list."""
    results: list[object] = []

    def run() -> None:
        try:
            results.append(work())
        except OSError as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, results


def joined(thread: threading.Thread) -> None:
    thread.join(PATIENCE)
    assert not thread.is_alive(), "the thread is still blocked"


def test_bytes_arrive_in_order_in_both_directions(pair: Pair) -> None:
    dialled, accepted = pair
    dialled.send([b"one ", bytearray(b"two "), memoryview(b"three")])
    accepted.send([b"four"])
    assert receive_exactly(accepted, 13) == b"one two three"
    assert receive_exactly(dialled, 4) == b"four"


def test_large_and_many_buffers_arrive_whole(pair: Pair) -> None:
    dialled, accepted = pair
    large = os.urandom(3 << 20)
    buffers = [b"head", large, b"", *(bytes([i % 251]) * 7 for i in range(3000)), large[:100_001]]
    thread, _ = in_thread(lambda: dialled.send(buffers))
    expected = b"".join(buffers)
    assert receive_exactly(accepted, len(expected)) == expected
    joined(thread)


def test_both_directions_may_be_full_at_once(pair: Pair) -> None:
    dialled, accepted = pair
    data = os.urandom(4 << 20)
    senders = [in_thread(lambda end=end: end.send([b"x", data]))[0] for end in pair]  # type: ignore[misc]
    reader, results = in_thread(lambda: receive_exactly(dialled, len(data) + 1))
    assert receive_exactly(accepted, len(data) + 1) == b"x" + data
    for thread in (*senders, reader):
        joined(thread)
    assert results == [b"x" + data]


def test_reading_without_waiting_says_when_nothing_is_there(pair: Pair) -> None:
    dialled, accepted = pair
    buffer = memoryview(bytearray(10))
    with pytest.raises(BlockingIOError):
        accepted.recv_into_nowait(buffer)
    dialled.send([b"abc"])
    assert receive_exactly(accepted, 2) == b"ab"
    assert accepted.recv_into_nowait(buffer) == 1
    assert bytes(buffer[:1]) == b"c"


def test_the_peers_close_reads_as_the_end(pair: Pair) -> None:
    dialled, accepted = pair
    dialled.send([b"last words"])
    dialled.close()
    assert receive_exactly(accepted, 10) == b"last words"
    assert receive(accepted, memoryview(bytearray(10))) == 0
    assert accepted.recv_into_nowait(memoryview(bytearray(10))) == 0


def test_shutdown_wakes_a_reader_that_waits(pair: Pair) -> None:
    _, accepted = pair
    thread, results = in_thread(lambda: receive(accepted, memoryview(bytearray(10))))
    accepted.shutdown()
    joined(thread)
    assert results == [0]


def test_shutdown_wakes_a_writer_that_waits(pair: Pair) -> None:
    dialled, accepted = pair
    started = threading.Event()

    def flood() -> None:
        while True:
            started.set()
            dialled.send([bytes(1 << 20)])

    thread, results = in_thread(flood)
    assert started.wait(PATIENCE)
    receive_exactly(accepted, 1)
    dialled.shutdown()
    joined(thread)
    assert isinstance(results[0], OSError)


def test_sending_after_shutdown_is_an_error_not_a_loss(pair: Pair) -> None:
    dialled, _ = pair
    dialled.shutdown()
    with pytest.raises(OSError):
        dialled.send([b"x"])


def test_closing_twice_is_harmless(pair: Pair) -> None:
    for end in pair:
        end.close()
        end.close()


def test_both_ends_know_each_other(directory: PrivateDirectory) -> None:
    ps, trainer = identities()
    trainer = msgspec.structs.replace(trainer, limits=Limits(dimensions=5))
    with connected("tcp://127.0.0.1:0", ps, trainer) as (dialled, accepted):
        assert (dialled.peer_name, dialled.peer_incarnation) == ("ps", 7)
        assert (accepted.peer_name, accepted.peer_incarnation) == ("trainer", 8)
        assert dialled.limits == accepted.limits == Limits(dimensions=5)
        assert not dialled.same_host
        nodelay = socket.socket(fileno=os.dup(dialled.fileno()))
        with nodelay:
            assert nodelay.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_unix_connection_names_the_peers_process(directory: PrivateDirectory) -> None:
    with connected(directory.socket_address("ps"), *identities()) as (dialled, accepted):
        assert dialled.peer_pid == accepted.peer_pid == os.getpid()


def test_descriptors_are_there_when_their_frame_is(directory: PrivateDirectory) -> None:
    with connected(directory.socket_address("ps"), *identities()) as pair:
        dialled, accepted = pair
        assert dialled.same_host
        assert accepted.same_host
        for sender, receiver in (pair, pair[::-1]):
            read_end, write_end = os.pipe()
            sender.send([b"frame 1"], [read_end])
            sender.send([b"frame 2"])
            sender.send([b"frame 3"], [write_end, write_end])
            assert receive_exactly(receiver, 21) == b"frame 1frame 2frame 3"
            first, second, third = (receiver.take_fd() for _ in range(3))
            os.write(second, b"through the pipe")
            assert os.read(first, 100) == b"through the pipe"
            for fd in (read_end, write_end, first, second, third):
                os.close(fd)


def test_more_descriptors_than_the_kernel_takes_at_once_arrive(directory: PrivateDirectory) -> None:
    with connected(directory.socket_address("ps"), *identities()) as (dialled, accepted):
        dialled.send([b"x"], [0] * 400)
        fds = [accepted.take_fd() for _ in range(400)]
        assert len(set(fds)) == 400
        for fd in fds:
            os.close(fd)


def test_missing_descriptors_are_a_violation_and_untaken_ones_are_closed(
    directory: PrivateDirectory,
) -> None:
    before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    with connected(directory.socket_address("ps"), *identities()) as (dialled, accepted):
        with pytest.raises(ConnectionError, match=r"expected a file descriptor .* got none"):
            accepted.take_fd()
        dialled.send([b"x"], [0, 0])
        os.close(accepted.take_fd())
    assert not before or set(os.listdir("/proc/self/fd")) == before


def test_descriptors_that_a_process_may_not_have_are_named_as_the_cause(
    directory: PrivateDirectory,
) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with connected(directory.socket_address("ps"), *identities()) as (dialled, accepted):
        dialled.send([b"x"], [0, 0])
        lowest = os.dup(0)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 1, hard))
        try:
            with pytest.raises(OSError, match=r"no more open files \(ulimit -n\)"):
                accepted.take_fd()
            os.close(os.dup(0))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_view_of_larger_items_is_refused_and_not_sent_wrongly() -> None:
    with connected("tcp://127.0.0.1:0", *identities()) as (dialled, _):
        for buffers in ([array.array("d", [1.0])], [b"x", array.array("d", [1.0])]):
            with pytest.raises(TypeError, match="cast it"):
                dialled.send([memoryview(buffer) for buffer in buffers])


def test_descriptors_cant_go_where_hosts_may_differ() -> None:
    with (
        connected("tcp://127.0.0.1:0", *identities()) as (dialled, _),
        pytest.raises(ValueError, match="same_host"),
    ):
        with pytest.raises(ConnectionError, match="can't carry"):
            dialled.take_fd()
        dialled.send([b"x"], [0])


def test_segments_can_be_switched_off(directory: PrivateDirectory) -> None:
    ps, trainer = identities()
    plain = msgspec.structs.replace(trainer, segments=False)
    with connected(directory.socket_address("ps"), ps, plain) as (dialled, accepted):
        assert not dialled.same_host
        assert not accepted.same_host
        dialled.send([b"works"])
        assert receive_exactly(accepted, 5) == b"works"


def test_without_memory_files_bytes_still_move(
    monkeypatch: pytest.MonkeyPatch, directory: PrivateDirectory
) -> None:
    monkeypatch.setattr("telegrad.rpc.transport.pending_connection.SEGMENTS", False)
    with connected(directory.socket_address("ps"), *identities()) as (dialled, accepted):
        dialled.send([b"one", b"", b"two"])
        assert receive_exactly(accepted, 6) == b"onetwo"
        assert not dialled.same_host


def test_a_wrong_key_is_refused_on_both_sides() -> None:
    ps, _ = identities()
    stranger = Identity("trainer", 1, ClusterKey.fresh())
    with (
        hosting("tcp://127.0.0.1:0", ps) as host,
        pytest.raises(AuthenticationFailed, match=f"{host.address}.*refused our proof"),
    ):
        connect(host.address, identity=stranger, expect="ps")


def test_another_worker_than_expected_is_refused() -> None:
    ps, trainer = identities()
    with (
        hosting("tcp://127.0.0.1:0", ps) as host,
        pytest.raises(AuthenticationFailed, match=r"expected the worker master .* got ps"),
    ):
        connect(host.address, identity=trainer, expect="master")


def test_a_port_in_use_is_an_error_that_says_so() -> None:
    ps, _ = identities()
    with (
        hosting("tcp://127.0.0.1:0", ps) as host,
        pytest.raises(UsageError, match=r"in use by another process.*MASTER_PORT"),
    ):
        listen(host.address, identity=ps, on_connection=lambda connection: None)


@pytest.fixture
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialer, "time", Clock())


@pytest.mark.usefixtures("_clock")
@pytest.mark.parametrize(
    ("expect", "where", "advice"),
    [
        ("ps", ", where ps should be", r"waits in rpc\.shutdown\(\) until everyone has finished"),
        (None, "", r"is the address right \(MASTER_ADDR, MASTER_PORT\)"),
    ],
)
def test_an_unreachable_worker_is_an_error_with_what_was_tried(
    expect: str | None, where: str, advice: str
) -> None:
    _, trainer = identities()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(
            WorkerLost, match=rf"{where}: tried 4 times in 0\.1 s.*{advice}"
        ) as caught:
            connect(address, identity=trainer, expect=expect, patience=0.1)
    assert address in str(caught.value)
    assert "refused" in str(caught.value)


def test_a_socket_that_reached_itself_has_reached_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    class SameEnds(socket.socket):
        def connect(self, address: object) -> None:
            self.bind(("127.0.0.1", 0))
            super().connect(self.getsockname())

    _, trainer = identities()
    monkeypatch.setattr(socket, "socket", SameEnds)
    with pytest.raises(WorkerLost, match="nobody listens there"):
        connect("tcp://127.0.0.1:1", identity=trainer)


def test_a_family_that_the_kernel_lacks_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    class WithoutIPv6(socket.socket):
        def __init__(self, family: int = -1, *rest: object, **options: object) -> None:
            if family == socket.AF_INET6:
                raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
            super().__init__(family, *rest, **options)  # type: ignore[arg-type]

    def both(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        four = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))
        six = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port, 0, 0))
        return [six, four] if host == "localhost" else [four]

    ps, trainer = identities()
    monkeypatch.setattr(socket, "socket", WithoutIPv6)
    monkeypatch.setattr(socket, "getaddrinfo", both)
    with hosting("tcp://127.0.0.1:0", ps) as host:
        port = parse_address(host.listener.address).port
        connect(f"tcp://localhost:{port}", identity=trainer, expect="ps").close()


def test_a_name_is_listened_at_where_one_of_its_addresses_is_this_machines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    who = mint_cluster(tmp_path / "cluster", "ps", "trainer")

    def find(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        # The first is one of those that documents use.
        hosts = ("192.0.2.1", "127.0.0.1") if host == "both" else (host,)
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (each, port)) for each in hosts]

    monkeypatch.setattr(socket, "getaddrinfo", find)
    with hosting("tls://both:0", who["ps"]) as host:
        port = host.address.rpartition(":")[2]
        connect(f"tls://127.0.0.1:{port}", identity=who["trainer"], expect="ps").close()
        host.accept().close()
    with pytest.raises(UsageError, match=r"can't listen at tls://192\.0\.2\.1:0"):
        listen("tls://192.0.2.1:0", identity=who["ps"], on_connection=print)


def test_a_listener_that_comes_late_is_found_by_patience() -> None:
    ps, trainer = identities()
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{reserved.getsockname()[1]}"
    thread, results = in_thread(
        lambda: connect(address, identity=trainer, expect="ps", patience=PATIENCE)
    )
    with hosting(address, ps) as host:
        host.accept().close()
        joined(thread)
        (connection,) = results
        assert isinstance(connection, Connection)
        connection.close()


@pytest.mark.usefixtures("_clock")
def test_a_full_queue_is_tried_again_within_the_timeout(directory: PrivateDirectory) -> None:
    _, trainer = identities()
    path = os.path.join(directory.path, "busy.sock")
    with socket.socket(socket.AF_UNIX) as busy, contextlib.ExitStack() as stack:
        busy.bind(path)
        busy.listen(0)
        with pytest.raises(BlockingIOError):
            for _ in range(100):
                waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
                waiting.setblocking(False)
                waiting.connect(path)
        with pytest.raises(WorkerLost, match="tried 5 times"):
            connect(f"unix://{path}", identity=trainer, timeout=0.3)


@pytest.mark.parametrize(
    ("kind", "doubt"),
    [
        ("unix", "does it still run"),
        ("tcp", r"have both sides certificates \(TELEGRAD_CREDENTIALS\), or neither"),
    ],
)
def test_a_listener_that_ends_during_the_handshake_is_doubted_for_what_can_be(
    kind: str, doubt: str, directory: PrivateDirectory
) -> None:
    _, trainer = identities()
    path = os.path.join(directory.path, "ending.sock")
    with socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET) as ending:
        ending.bind(path if kind == "unix" else ("127.0.0.1", 0))
        ending.listen()

        def end() -> None:
            accepted, _ = ending.accept()
            accepted.recv(1)
            accepted.close()  # with bytes unread: the other side sees a reset

        thread, _ = in_thread(end)
        address = (
            f"unix://{path}" if kind == "unix" else f"tcp://127.0.0.1:{ending.getsockname()[1]}"
        )
        with pytest.raises(ProtocolViolation, match=f"is it a worker, and {doubt}\\?"):
            connect(address, identity=trainer, timeout=PATIENCE)
        joined(thread)


def test_a_listener_that_never_answers_is_left_at_the_timeout() -> None:
    _, trainer = identities()
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(AuthenticationFailed, match="deadline"):
            connect(f"tcp://127.0.0.1:{silent.getsockname()[1]}", identity=trainer, timeout=0.05)


@pytest.mark.parametrize("address", ["tcp://0.0.0.0:0", "tcp://192.0.2.1:29500", "tcp://[::]:0"])
def test_plain_tcp_beyond_this_machine_is_refused_with_what_to_do(address: str) -> None:
    ps, trainer = identities()
    with pytest.raises(Refused, match="telegrad keygen"):
        listen(address, identity=ps, on_connection=lambda connection: None)
    with pytest.raises(Refused, match="telegrad keygen"):
        connect(address, identity=trainer)


def test_tls_without_certificates_is_refused_with_what_to_do() -> None:
    ps, trainer = identities()
    with pytest.raises(Refused, match="telegrad keygen DIR --workers ps"):
        listen("tls://127.0.0.1:0", identity=ps, on_connection=lambda connection: None)
    with pytest.raises(Refused, match="telegrad keygen DIR --workers trainer"):
        connect("tls://127.0.0.1:1", identity=trainer)


@pytest.mark.parametrize(
    "text", ["unix:///tmp/x/ps.sock", "tcp://127.0.0.1:29500", "tls://[fe80::1]:5", "tcp://host:0"]
)
def test_addresses_survive_as_text(text: str) -> None:
    assert parse_address(text).text == text


@pytest.mark.parametrize(
    "text",
    ["", "ps", "http://x:1", "tcp://x", "tcp://:5", "tcp://x:99999", "unix://a", "tls://x:-1"],
)
def test_a_bad_address_is_an_error_with_the_forms_there_are(text: str) -> None:
    with pytest.raises(UsageError, match="expected"):
        parse_address(text)


def test_an_unknown_host_is_named() -> None:
    _, trainer = identities()
    with pytest.raises(WorkerLost, match=r"nowhere\.invalid"):
        connect("tcp://nowhere.invalid:1", identity=trainer)
