"""A board in a directory that all workers see: a numbered file for each text.

Every user of a board holds a shared lock on it. A board that nobody locks was left behind by a
world that has ended, and is cleared when it is next opened. Invariant: a file appears as a whole.
"""

import contextlib
import fcntl
import os
import secrets
import shutil

from telegrad.errors import UsageError
from telegrad.rpc.transport.directory import check_private_directory

_LOCK = "lock"


class DirectoryBoard:
    """The board at a path; its directory is made if need be, for this user only."""

    pace = 0.1

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(path)
        self._end = 0
        """A lower bound on the number of texts."""
        self._lock: int | None = self._hold()
        while self._lock is None:
            self._lock = self._hold()

    def _hold(self) -> int | None:
        """Open the board and lock it; return None if it was removed meanwhile."""
        self._make()
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            lock = os.open(os.path.join(self.path, _LOCK), flags, 0o600)
        except FileNotFoundError:
            return None
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(lock, self.path):
                self._clear()
        # Another process may clear or remove the board between the two locks, before anything is
        # posted.
        fcntl.flock(lock, fcntl.LOCK_SH)
        if _is_at(lock, self.path):
            return lock
        os.close(lock)
        return None

    def _make(self) -> None:
        try:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.path, 0o700)
        except OSError as error:
            raise UsageError(
                f"expected a directory to meet in at {self.path}, which can't be made "
                f"({error.strerror}): name one that every worker can write to"
            ) from error
        check_private_directory(self.path)

    def __repr__(self) -> str:
        return f"DirectoryBoard({self.path!r})"

    def post(self, text: str) -> None:
        unseen = os.path.join(self.path, f".{secrets.token_hex(8)}")
        with open(os.open(unseen, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        try:
            while True:
                try:
                    os.link(unseen, self._file(self._end))
                    return
                except FileExistsError:
                    self._end += 1
        finally:
            os.unlink(unseen)

    def read(self, start: int) -> list[str]:
        found: list[str] = []
        with contextlib.suppress(FileNotFoundError):
            while True:
                with open(self._file(start + len(found))) as file:
                    found.append(file.read())
        self._end = max(self._end, start + len(found))
        return found

    def close(self) -> None:
        """Release the board; may be called again."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def _file(self, number: int) -> str:
        return os.path.join(self.path, str(number))

    def _clear(self) -> None:
        for name in os.listdir(self.path):
            if name != _LOCK:
                os.unlink(os.path.join(self.path, name))


def remove_unused_board(path: str) -> None:
    """Remove the directory of a board; raise OSError if a worker still uses it."""
    lock = os.open(os.path.join(path, _LOCK), os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(lock, path):
            shutil.rmtree(path)
    finally:
        os.close(lock)


def _is_at(lock: int, path: str) -> bool:
    """Say whether this is the lock of the board that is at that path now."""
    try:
        return os.path.samestat(os.fstat(lock), os.stat(os.path.join(path, _LOCK)))
    except FileNotFoundError:
        return False
