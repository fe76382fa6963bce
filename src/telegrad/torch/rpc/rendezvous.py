"""Where the workers of a program meet, by the URL that it gives to ``init_rpc``.

``env://`` and ``tcp://host:port`` name rank 0's address; ``file:///path`` any path that all
workers name alike: telegrad meets at a socket that is found by it, and leaves the file alone.

Programs written for PyTorch know of no key. On one machine telegrad finds one for them: the
*user's key*, made once, in a directory that only this user can enter. Those workers meet in that
directory, too, at a socket named after the port: the port itself may be taken by PyTorch's own
store, which process groups and ``torchrun`` have at the same address. Beyond one machine programs
need certificates, as every cluster does.
"""

import contextlib
import hashlib
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from telegrad.errors import Refused, UsageError
from telegrad.rpc.membership import environment
from telegrad.rpc.membership.rendezvous import Meeting
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.transport import Address
from telegrad.rpc.transport.directory import check_private_directory, remove_abandoned_socket

__all__ = ["MeetingPlace", "find_place", "user_directory", "users_key"]

_KEY = "user.key"
_DAY = 86400.0
# Bytes of the directory's path: a socket in it has at most 30 more, of 103.
_LONGEST = 73


class MeetingPlace(NamedTuple):
    """Where to meet, as whom, and how many there are."""

    meeting: Meeting
    rank: int
    world_size: int


def find_place(init_method: str, rank: int, world_size: int | None) -> MeetingPlace:
    """Return where to meet, by a URL and the arguments beside it.

    Arguments:
        init_method: The URL.
        rank: This worker's number; below 0 for what the URL or the environment says.
        world_size: How many workers there are; None for what the URL or the environment says.

    Raises:
        ValueError: For another URL, or if nothing says the rank or the size.
    """
    url = urlsplit(init_method)
    if url.scheme not in ("env", "tcp", "file"):
        raise ValueError(
            f"expected env://, tcp://host:port or file:///path as init_method, got {init_method!r}"
        )
    asked = {name: values[0] for name, values in parse_qs(url.query).items()}
    if url.scheme == "env":
        asked = {"rank": os.environ.get("RANK", ""), "world_size": os.environ.get("WORLD_SIZE", "")}
    own_rank = rank if rank >= 0 else _number(url.scheme, asked, "rank")
    size = world_size if world_size else _number(url.scheme, asked, "world_size")
    if url.scheme == "file":
        return MeetingPlace(_meeting_by_path(url.path), own_rank, size)
    if url.scheme == "tcp":
        if url.hostname is None or url.port is None:
            raise ValueError(f"expected tcp://host:port as init_method, got {init_method!r}")
        return MeetingPlace(_meeting_at(url.hostname, url.port), own_rank, size)
    host = os.environ.get(environment.MASTER_ADDR, "127.0.0.1")
    port = os.environ.get(environment.MASTER_PORT)
    if port is None:
        raise ValueError(f"environment variable {environment.MASTER_PORT} expected, but not set")
    return MeetingPlace(_meeting_at(host, int(port)), own_rank, size)


def _number(scheme: str, asked: dict[str, str], name: str) -> int:
    text = asked.get(name)
    if not text:
        if scheme == "env":
            raise ValueError(f"environment variable {name.upper()} expected, but not set")
        raise ValueError(f"{name} parameter missing: give it to init_rpc or in the URL")
    return int(text)


def _meeting_at(host: str, port: int) -> Meeting:
    if not _names_secrets():
        Address("tcp", host=host, port=port).check()
        return _meeting_named(f"port-{port}", users_key())
    key, credentials = environment.find_secrets(os.environ)
    scheme = "tcp" if credentials is None else "tls"
    return Meeting(Address(scheme, host=host, port=port).text, key, credentials)


def _meeting_by_path(path: str) -> Meeting:
    name = hashlib.sha256(os.path.realpath(path).encode()).hexdigest()[:24]
    key, credentials = (
        environment.find_secrets(os.environ) if _names_secrets() else (users_key(), None)
    )
    if credentials is not None:
        raise UsageError(
            "expected tcp://host:port or env:// as init_method of a cluster over several machines, "
            f"got file://{path}"
        )
    return _meeting_named(name, key)


def _meeting_named(name: str, key: ClusterKey) -> Meeting:
    directory = user_directory()
    _sweep(directory)
    return Meeting(f"unix://{os.path.join(directory, name)}.sock", key)


def _sweep(directory: str) -> None:
    """Remove the meeting places of clusters whose rank 0 was killed, a day later."""
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        with contextlib.suppress(OSError, UsageError):
            if name.endswith(".sock") and time.time() - os.stat(path).st_mtime > _DAY:
                remove_abandoned_socket(path)


def _names_secrets() -> bool:
    """Tell whether the environment names a key or certificates."""
    return bool(os.environ.get(environment.KEY_FILE) or os.environ.get(environment.CREDENTIALS))


def user_directory() -> str:
    """Return a directory that only this user's processes can enter; the same for all of them.

    It is in the user's runtime directory or the home directory, where nobody else can make it
    first; only where there is neither, among the temporary files.
    """
    for path in _own_places():
        if len(os.fsencode(path)) <= _LONGEST and _is_made(path):
            check_private_directory(path)
            return path
    path = os.path.join(tempfile.gettempdir(), f"telegrad-user-{os.getuid()}")
    if not _is_made(path) or os.lstat(path).st_uid != os.getuid():
        raise Refused(
            f"expected a directory of user {os.getuid()} for the key of this machine's workers, "
            f"but {path} is another's or can't be made: set XDG_RUNTIME_DIR to a directory of your "
            f"own (mkdir -m 700), or HOME, or {environment.KEY_FILE} to a key that "
            "ClusterKey.fresh().save(path) of telegrad.rpc.security.keys made"
        )
    check_private_directory(path)
    return path


def _own_places() -> Iterator[str]:
    """Yield the places for it that belong to the user, the best first."""
    # The second is where the first is as a rule: a process that lacks the variable finds it, too.
    for runtime in (os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{os.getuid()}"):
        if os.path.isabs(runtime) and _is_private(runtime):
            yield os.path.join(runtime, "telegrad")
    home = os.path.expanduser("~")
    if os.path.isdir(home) and os.stat(home).st_uid == os.getuid():
        # Several machines may have one home; a socket is of one.
        machine = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
        yield os.path.join(home, f".telegrad-{machine}")


def _is_private(path: str) -> bool:
    try:
        check_private_directory(path)
    except (Refused, UsageError):
        return False
    return True


def _is_made(path: str) -> bool:
    """Make the directory if it is not there; say whether it is."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return True
    except OSError:
        return False
    return True


def users_key() -> ClusterKey:
    """Return the key of the clusters that this user's programs make on this machine."""
    directory = user_directory()
    path = os.path.join(directory, _KEY)
    if not os.path.exists(path):
        unseen = os.path.join(directory, f"{_KEY}.{os.getpid()}")
        ClusterKey.fresh().save(unseen)
        try:
            # Whole or not at all, and the first one stays.
            os.link(unseen, path)
        except FileExistsError:
            pass
        finally:
            os.unlink(unseen)
    return ClusterKey.load(path)
