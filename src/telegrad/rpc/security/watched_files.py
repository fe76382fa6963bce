"""A value read from files, and read again when one of them changes.

Invariant: if the files can't be read or used, the old value is kept, and a line is logged.
"""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from telegrad.errors import TelegradError

_log = logging.getLogger("telegrad.rpc")

T = TypeVar("T")


class WatchedFiles(Generic[T]):
    """The result of a function that reads files, some of which may be missing."""

    def __init__(self, paths: Sequence[str | os.PathLike[str]], read: Callable[[], T]) -> None:
        self._paths = paths
        self._read = read
        self._lock = threading.RLock()
        # Look first, then read, so that a change in between is noticed next time.
        self._seen = self._look()
        self._value = read()

    def current(self) -> T:
        """Return the value that the files have now."""
        if self._look() != self._seen:
            with self._lock:
                self._seen = self._look()
                try:
                    self._value = self._read()
                except (TelegradError, OSError) as error:
                    _log.warning("what was read before holds, for now: %s", error)
        return self._value

    def _look(self) -> list[tuple[int, ...] | None]:
        return [_state(path) for path in self._paths]


def _state(path: str | os.PathLike[str]) -> tuple[int, ...] | None:
    """Return a state that differs once a file, or its mode, was changed or replaced."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
