"""A user's directory on this machine, where programs without any configuration meet.

Only this user's processes can enter it. It holds the *user's key*, made once, and the meeting
places: rank 0's socket for a world of fixed size, a board for an open one.
"""

import contextlib
import hashlib
import os
import socket
import tempfile
import time
from collections.abc import Iterator

from telegrad.errors import Refused, UsageError
from telegrad.rpc.membership import environment
from telegrad.rpc.membership.directory_board import DirectoryBoard, remove_unused_board
from telegrad.rpc.membership.rendezvous import Meeting
from telegrad.rpc.membership.roster import WorldMismatch
from telegrad.rpc.security.key_file import KeySource
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.transport.directory import check_private_directory, remove_abandoned_socket

_KEY = "user.key"
_DAY = 86400.0
# The most bytes of the directory's path: a socket's path has at most 103, 30 for its name.
_LONGEST = 73


def user_directory() -> str:
    """Return a directory that only this user's processes can enter; the same for all of them.

    It is in the user's runtime or home directory, where no other user can make it first, or else
    among the temporary files.
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
            f"own (mkdir -m 700), or HOME, or {environment.KEY_FILE} to a key that `telegrad "
            "keygen FILE` made"
        )
    check_private_directory(path)
    return path


def _own_places() -> Iterator[str]:
    """Yield possible places that belong to the user, the best first."""
    # The second is usually the first, too, so a process without the variable finds it.
    for runtime in (os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{os.getuid()}"):
        if os.path.isabs(runtime) and _is_private(runtime):
            yield os.path.join(runtime, "telegrad")
    home = os.path.expanduser("~")
    if os.path.isdir(home) and os.stat(home).st_uid == os.getuid():
        # Several machines may share a home, but a socket belongs to one.
        machine = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
        yield os.path.join(home, f".telegrad-{machine}")


def _is_private(path: str) -> bool:
    try:
        check_private_directory(path)
    except (Refused, UsageError):
        return False
    return True


def _is_made(path: str) -> bool:
    """Make the directory unless it exists; say whether it does now."""
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
            # The file appears as a whole, and the first process's file stays.
            os.link(unseen, path)
        except FileExistsError:
            pass
        finally:
            os.unlink(unseen)
    return ClusterKey.load(path)


def meeting_named(name: str, key: KeySource, *, is_open: bool = False) -> Meeting:
    """Return the meeting place of that name in the user's directory."""
    directory = user_directory()
    _sweep(directory)
    socket_path = os.path.join(directory, f"{name}.sock")
    if not is_open:
        return Meeting(f"unix://{socket_path}", key)
    try:
        remove_abandoned_socket(socket_path)
    except UsageError:
        raise WorldMismatch(
            f"expected an open world to meet at {name}, but one of fixed size does: give all "
            "workers a world_size, or none"
        ) from None
    return Meeting("", key, board=DirectoryBoard(os.path.join(directory, f"{name}.world")))


def _sweep(directory: str) -> None:
    """Remove meeting places that are a day old, if rank 0 was killed or an open world has ended."""
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        with contextlib.suppress(OSError, UsageError):
            if time.time() - os.stat(path).st_mtime <= _DAY:
                continue
            if name.endswith(".sock"):
                remove_abandoned_socket(path)
            elif name.endswith(".world"):
                remove_unused_board(path)
