"""A board in a directory that all workers see: a numbered file for each text.

Every user of a board holds a shared lock on it. A board that nobody locks was left behind by a
world that has ended, and is cleared when it is next opened. Invariant: a file appears as a whole.
"""

import contextlib
import fcntl
import os
import secrets

from telegrad.errors import UsageError
from telegrad.rpc.transport.directory import check_private_directory

_LOCK = "lock"


class DirectoryBoard:
    """The board at a path; its directory is made if need be, for this user only."""

    pace = 0.1

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(path)
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
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._end = 0
        """A lower bound on the number of texts."""
        self._lock: int | None = os.open(os.path.join(self.path, _LOCK), flags, 0o600)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._clear()
        # Another process may clear the board between the two locks, before anything is posted.
        fcntl.flock(self._lock, fcntl.LOCK_SH)

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
