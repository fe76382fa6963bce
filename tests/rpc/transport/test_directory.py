"""Private directories for Unix sockets: closed to others, and gone with their maker."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rpc.connected import connected, hosting, identities

from telegrad.errors import Refused, UsageError
from telegrad.rpc.transport import PrivateDirectory, listen


@pytest.fixture
def place() -> Iterator[str]:
    """A short path: a Unix socket's has at most 107 bytes."""
    with PrivateDirectory.make() as made:
        inner = os.path.join(made.path, "p")
        os.mkdir(inner, 0o700)
        yield inner


def listen_in(path: str) -> None:
    ps, _ = identities()
    listen(f"unix://{path}/ps.sock", identity=ps, on_connection=lambda connection: None).close()


def test_a_made_directory_is_private_and_removed_at_the_end(place: str) -> None:
    with PrivateDirectory.make(place) as made:
        assert os.stat(made.path).st_mode & 0o777 == 0o700
    assert os.listdir(place) == []
    made.close()


@pytest.mark.processes
def test_the_directory_of_a_killed_process_is_removed_by_the_next(place: str) -> None:
    source = (
        "import sys; from telegrad.rpc.transport import PrivateDirectory; "
        "print(PrivateDirectory.make(sys.argv[1]).path, flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", source, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout is not None
        abandoned = child.stdout.readline().decode().strip()
        with PrivateDirectory.make(place):
            assert os.path.isdir(abandoned), "a directory in use was removed"
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert os.path.isdir(abandoned)
    with PrivateDirectory.make(place):
        assert not os.path.exists(abandoned)


def test_other_directories_are_never_removed_whatever_they_are_called(place: str) -> None:
    precious = Path(place, "telegrad-results")
    precious.mkdir(mode=0o700)
    (precious / "weights").write_text("trained for a month")
    os.utime(precious, (0, 0))
    with PrivateDirectory.make(place):
        assert (precious / "weights").exists()


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_directory_open_to_others_is_refused(place: str, mode: int) -> None:
    os.chmod(place, mode)
    with pytest.raises(Refused, match=f"{mode:04o}.*chmod 700"):
        listen_in(place)
    os.chmod(place, 0o700)
    listen_in(place)


def test_a_link_to_a_private_directory_is_refused(place: str, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(place)
    with pytest.raises(Refused, match="expected a directory"):
        listen_in(str(link))


def test_a_directory_of_another_user_is_refused(place: str) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a directory away")
    os.chown(place, 12345, -1)
    with pytest.raises(Refused, match="of user 12345"):
        listen_in(place)


def test_a_missing_directory_is_named(place: str) -> None:
    with pytest.raises(UsageError, match="no directory"):
        listen_in(f"{place}/none")


def test_a_path_too_long_for_a_socket_says_so(place: str) -> None:
    deep = os.path.join(place, "d" * 100)
    os.mkdir(deep, 0o700)
    with pytest.raises(UsageError, match="too long"):
        listen_in(deep)


@pytest.mark.parametrize("name", ["d" * 80, "\udce4"], ids=["too long", "no text"])
def test_a_temporary_directory_that_no_address_can_name_is_passed_over(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unfit = tmp_path / name
    unfit.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(unfit))
    monkeypatch.setattr(tempfile, "tempdir", str(unfit))
    with PrivateDirectory.make() as made:
        listen_in(made.path)
        assert os.listdir(unfit) == []


def test_a_runtime_directory_that_is_not_absolute_is_passed_over(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("XDG_RUNTIME_DIR", ".")
    with PrivateDirectory.make() as made:
        assert os.path.isabs(made.path)


def test_a_worker_with_the_longest_name_has_a_socket_of_its_own() -> None:
    ps, _ = identities()
    with PrivateDirectory.make() as made:
        one, two = (made.socket_address("w" * 127 + last) for last in "12")
        listeners = [listen(each, identity=ps, on_connection=print) for each in (one, two)]
        assert len(os.listdir(made.path)) == 3
        for each in listeners:
            each.close()


def test_a_closed_listener_leaves_no_socket_file(place: str) -> None:
    listen_in(place)
    assert os.listdir(place) == []


def test_the_socket_file_of_a_dead_worker_is_replaced(place: str) -> None:
    path = f"{place}/ps.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(path)
    assert os.path.exists(path)
    with connected(f"unix://{path}", *identities()):
        pass
    assert not os.path.exists(path)


def test_the_place_of_a_living_worker_is_not_taken(place: str) -> None:
    ps, _ = identities()
    address = f"unix://{place}/ps.sock"
    with (
        hosting(address, ps),
        pytest.raises(UsageError, match=r"another worker listens .*\(RANK\)"),
    ):
        listen_in(place)


def test_a_file_that_is_no_socket_is_left_alone(place: str) -> None:
    Path(place, "ps.sock").write_text("precious")
    with pytest.raises(UsageError):
        listen_in(place)
    assert Path(place, "ps.sock").read_text() == "precious"


def test_where_no_directory_can_be_written_to_the_error_says_what_to_do(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found_none() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", found_none)
    monkeypatch.setattr(os, "access", lambda path, mode: path == place)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with pytest.raises(UsageError, match=r"set TMPDIR to one, or .*unix_sockets=False"):
        PrivateDirectory.make()
    monkeypatch.setenv("XDG_RUNTIME_DIR", place)
    with PrivateDirectory.make() as directory:
        assert directory.path.startswith(place)
