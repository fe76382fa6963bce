"""Private directories for Unix sockets, which only this user's processes can enter.

A directory's maker holds a lock in it, which the kernel drops with the process, however it ended.
So a directory whose lock is free was abandoned, and the next worker to make one removes it; one
that is `kept` is removed by a shell that waits for its maker's end. Invariant: a directory in use
is never removed.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import socket
import stat
import subprocess
import tempfile
from pathlib import Path

from telegrad.errors import Refused, UsageError

_PREFIX = "telegrad-"
_LOCK = "telegrad.lock"
# The most bytes of a Unix socket's path: 107 on Linux, 103 on other systems.
_LONGEST_PATH = 103
_DIGEST = 16
# Seconds to wait for a keeping shell to end, which takes a millisecond.
_LONGEST_END = 2.0
_LONGEST_PARENT = _LONGEST_PATH - len(f"/{_PREFIX}12345678/.sock") - _DIGEST


class PrivateDirectory:
    """A directory with mode 0700 that is removed when its maker ends."""

    def __init__(self, path: str, lock: int) -> None:
        self.path = path
        self._lock: int | None = lock
        self._keeper: subprocess.Popen[bytes] | None = None

    @classmethod
    def make(cls, parent: str | None = None) -> "PrivateDirectory":
        """Make a directory (in the user's runtime directory), and remove abandoned ones."""
        parent = parent or _runtime_directory()
        _remove_abandoned(parent)
        path = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
        # Locked under another name first: others must not see the lock file unlocked.
        unseen = os.path.join(path, _LOCK + ".new")
        lock = os.open(unseen, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL, 0o600)
        _take(lock)
        os.rename(unseen, os.path.join(path, _LOCK))
        return cls(path, lock)

    def socket_address(self, name: str) -> str:
        """Return the address of a worker's socket in here."""
        path = f"{os.path.join(self.path, name)}.sock"
        if len(os.fsencode(path)) > _LONGEST_PATH:
            digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
            path = f"{os.path.join(self.path, digest)}.sock"
        return f"unix://{path}"

    def keep(self) -> None:
        """Have the directory removed at once even if this process is killed."""
        # `close` writes it a line; if its input ends without one, this process was killed.
        command = ["/bin/sh", "-c", 'read -r _ || exec rm -rf -- "$0"', self.path]
        with contextlib.suppress(OSError):
            # In a session of its own, so that Ctrl-C or a signal to the group does not reach it.
            self._keeper = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )

    def close(self) -> None:
        """Remove the directory; may be called again."""
        lock, self._lock = self._lock, None
        if lock is None:
            return
        try:
            shutil.rmtree(self.path, ignore_errors=True)
            if self._keeper is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._keeper.communicate(b"\n", _LONGEST_END)
        finally:
            os.close(lock)

    def __enter__(self) -> "PrivateDirectory":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def check_private_directory(path: str) -> None:
    """Raise Refused unless the directory is this user's and closed to all others."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        raise UsageError(
            f"no directory {path} for the worker's socket: make it, mode 0700"
        ) from None
    if not stat.S_ISDIR(status.st_mode):
        raise Refused(f"expected a directory for the worker's socket, {path} is none")
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise Refused(
            f"expected a directory of user {os.getuid()} with mode 0700 for the worker's socket, "
            f"got {path} of user {status.st_uid} with mode {stat.S_IMODE(status.st_mode):04o}: "
            "run `chmod 700` on it, or use PrivateDirectory.make()"
        )


def remove_abandoned_socket(path: str) -> None:
    """Remove the socket file of a dead worker; raise if its worker still lives."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            if stat.S_ISSOCK(os.lstat(path).st_mode):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
            return
        except OSError:
            return
    raise UsageError(
        f"another worker listens at unix://{path}, and two can't have one address: give each "
        "worker a rank of its own (RANK), or let this job meet elsewhere (MASTER_PORT)"
    )


def _runtime_directory() -> str:
    """Return a directory with a short path that can be sent to others as text."""
    try:
        usual = tempfile.gettempdir()
    except FileNotFoundError:
        usual = ""
    for place in (os.environ.get("XDG_RUNTIME_DIR", ""), usual, "/tmp"):
        # A name with undecodable bytes is not printable, and can't be part of an address.
        fits = len(os.fsencode(place)) <= _LONGEST_PARENT and place.isprintable()
        if fits and os.path.isabs(place) and os.path.isdir(place) and os.access(place, os.W_OK):
            return place
    raise UsageError(
        "expected a directory for the workers' sockets in XDG_RUNTIME_DIR, TMPDIR or /tmp that can "
        f"be written to and has a path of at most {_LONGEST_PARENT} bytes, got none: set TMPDIR to "
        "one, or do without by rpc.Options(unix_sockets=False)"
    )


def _remove_abandoned(parent: str) -> None:
    for path in sorted(Path(parent).glob(f"{_PREFIX}*")):
        with contextlib.suppress(OSError, Refused, UsageError):
            check_private_directory(str(path))
            # Without this file it is not a worker's, or not yet: opening fails, and it stays.
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC)
            try:
                if _take(lock):
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)


def _take(lock: int) -> bool:
    """Take the lock if it is free; say whether it was."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
