"""What was read from files, and is read again once one of them has changed.

Invariant: files that can't be read or used change nothing. What was read before holds, and one
line is logged.
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
    """The value of a function that reads these files; some of them need not be there."""

    def __init__(self, paths: Sequence[str | os.PathLike[str]], read: Callable[[], T]) -> None:
        self._paths = paths
        self._read = read
        self._lock = threading.RLock()
        # In this order: a change in between is seen at the next look.
        self._seen = self._look()
        self._value = read()

    def current(self) -> T:
        """Return what is in the files now."""
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
    """Return what is different once a file was changed, replaced, or its mode was."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
