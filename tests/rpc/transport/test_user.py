"""Unix sockets: a worker speaks with processes of its own user alone."""

import os
import socket
import struct
from pathlib import Path

import pytest
from tests.rpc.connected import PATIENCE, Host, hosting, identities

from telegrad.errors import AuthenticationFailed, PeerError
from telegrad.rpc.transport import PrivateDirectory, connect
from telegrad.rpc.transport import user as users
from telegrad.rpc.transport.user import check_same_user, peer_process

PS, TRAINER = identities()
NOBODY = 65534


@pytest.fixture
def directory():
    with PrivateDirectory.make() as made:
        yield made


@pytest.fixture
def host(directory):
    with hosting(directory.socket_address("ps"), PS) as made:
        yield made


def test_a_process_of_the_same_user_is_let_in(host: Host) -> None:
    connect(host.address, identity=TRAINER, expect="ps").close()
    host.accept().close()


def test_a_listener_of_another_user_is_not_spoken_to(host: Host, monkeypatch) -> None:
    monkeypatch.setattr(users, "peer_process", lambda sock: (1, 4711))
    with pytest.raises(AuthenticationFailed) as caught:
        connect(host.address, identity=TRAINER, expect="ps")
    message = str(caught.value)
    assert f"expected a process of user {os.geteuid()} at the other end" in message
    assert "got one of user 4711" in message
    assert "run all workers of this machine as one user" in message
    assert "unix_sockets=False" in message


def test_where_the_system_does_not_tell_there_are_no_unix_sockets(host: Host, monkeypatch) -> None:
    monkeypatch.setattr(users, "peer_process", lambda sock: None)
    with pytest.raises(AuthenticationFailed, match=r"does not tell who is at .*unix_sockets=False"):
        connect(host.address, identity=TRAINER, expect="ps")


def test_the_user_is_found_where_the_system_tells_it_as_macos_does(monkeypatch) -> None:
    class Local:
        family = socket.AF_UNIX

        def getsockopt(self, level: int, option: int, size: int) -> bytes:
            assert (level, option) == (0, 1)
            return struct.pack("IIh", 0, 501, 1).ljust(size, b"\0")

    monkeypatch.delattr(socket, "SO_PEERCRED", raising=False)
    monkeypatch.setattr(socket, "LOCAL_PEERCRED", 1, raising=False)
    assert peer_process(Local()) == (0, 501)  # type: ignore[arg-type]
    monkeypatch.setattr(os, "geteuid", lambda: 501)
    check_same_user(Local())  # type: ignore[arg-type]


def test_a_tcp_socket_has_no_user() -> None:
    with socket.socket() as sock:
        assert peer_process(sock) is None


def as_nobody(address: str) -> str:
    """Dial as another user, who has the key; return how that ended."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            try:
                connect(address, identity=TRAINER, expect="ps", timeout=PATIENCE)
                said = "let in"
            except PeerError as error:
                said = str(error)
            os.write(write, said.encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    with open(read, "rb") as pipe:
        return pipe.read().decode()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_another_user_with_the_key_is_refused_by_both_sides(
    host: Host, directory: PrivateDirectory, caplog, monkeypatch
) -> None:
    # As if the directory had not been private.
    Path(directory.path).chmod(0o755)
    Path(host.address.removeprefix("unix://")).chmod(0o777)
    assert "expected a process of user 65534 at the other end" in as_nobody(host.address)
    # One that does not look is refused all the same.
    monkeypatch.setattr("telegrad.rpc.transport.pending_connection.check_same_user", _unless_nobody)
    assert "let in" not in as_nobody(host.address)
    assert "expected a process of user 0 at the other end" in caplog.text
    assert "got one of user 65534" in caplog.text


def _unless_nobody(sock: socket.socket) -> None:
    if os.geteuid() != NOBODY:
        check_same_user(sock)
