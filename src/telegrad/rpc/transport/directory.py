"""Private directories for Unix sockets, which only this user's processes can enter.

A directory is kept alive by a lock that its maker holds; the kernel drops the lock with the
process, however it ended. So a directory whose lock is free was abandoned, and the next one to make
a directory removes it; one that is `kept` is removed by a shell that waits for its maker's end.
Invariant: a directory in use is never removed.
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
# Bytes of a Unix socket's path, on Linux 107; 103 on other systems.
_LONGEST_PATH = 103
_DIGEST = 16
# Seconds for the shell that keeps a directory to end; it takes a millisecond.
_LONGEST_END = 2.0
_LONGEST_PARENT = _LONGEST_PATH - len(f"/{_PREFIX}12345678/.sock") - _DIGEST


class PrivateDirectory:
    """A directory with mode 0700 that goes when its maker does."""

    def __init__(self, path: str, lock: int) -> None:
        self.path = path
        self._lock: int | None = lock
        self._keeper: subprocess.Popen[bytes] | None = None

    @classmethod
    def make(cls, parent: str | None = None) -> "PrivateDirectory":
        """Make a new one (in the user's runtime directory), and remove abandoned ones."""
        parent = parent or _runtime_directory()
        _remove_abandoned(parent)
        path = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
        # Locked under another name first: nobody may see the lock file before the lock is held.
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
        """Have the directory removed at once also if this process is killed."""
        # A line is written to it in the end; what ends without one was killed.
        command = ["/bin/sh", "-c", 'read -r _ || exec rm -rf -- "$0"', self.path]
        with contextlib.suppress(OSError):
            # In a session of its own: a Ctrl-C, or what kills a group, is not for it.
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
    """Raise Refused unless the directory is ours and closed to everybody else."""
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
    """Remove the socket file of a worker that has died; refuse the place of one that lives."""
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
    raise UsageError(f"another worker listens at unix://{path}: two workers can't have one address")


def _runtime_directory() -> str:
    """Return a place for short paths that can be sent to others as text."""
    try:
        usual = tempfile.gettempdir()
    except FileNotFoundError:
        usual = ""
    for place in (os.environ.get("XDG_RUNTIME_DIR", ""), usual, "/tmp"):
        # A name that its encoding does not explain is not printable, and no text for an address.
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
            # Without this file it is not ours, or not yet: opening fails and it is left alone.
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC)
            try:
                if _take(lock):
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)


def _take(lock: int) -> bool:
    """Take the lock if nobody else holds it; say whether that was so."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
