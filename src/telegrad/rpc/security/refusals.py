"""Logging a worker's refusals: the first few of each source in a minute, then only their number.

A stranger that can reach a port could fill the disk with refusals. Invariant: however many there
are, from however many sources, at most `_MOST` lines and as many counts are logged a minute.
"""

import logging
import math
import threading
from typing import Any, Final

from telegrad.rpc.security.audit import audit

_log: Final = logging.getLogger("telegrad.rpc")
_MINUTE: Final = 60.0
_FIRST: Final = 5  # Lines for each source in a minute.
_MOST: Final = 50  # Lines for all sources.
_OTHERS: Final = "others"


class Refusals:
    """The refusals of one worker's listener, or among its peers."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._lock = threading.RLock()
        self._told: dict[str, int] = {}
        self._untold: dict[str, int] = {}
        self._lines = 0
        self.due = math.inf
        """When the minute is over, and `catch_up` logs the counts."""

    def note(self, source: str, now: float, message: str, **fields: Any) -> None:
        """Log a refusal, or only count it; `fields` are for the audit log."""
        self.catch_up(now)
        with self._lock:
            self.due = min(self.due, now + _MINUTE)
            if self._lines >= _MOST or self._told.get(source, 0) >= _FIRST:
                is_counted = source in self._untold or len(self._untold) < _MOST
                source = source if is_counted else _OTHERS
                self._untold[source] = self._untold.get(source, 0) + 1
                return
            self._lines += 1
            self._told[source] = self._told.get(source, 0) + 1
        _log.warning("%s", message)
        audit("refused", self._worker, source=source, **fields)

    def catch_up(self, now: float) -> None:
        """Log the counts of unlogged refusals, if the minute is over."""
        if now < self.due:
            return
        with self._lock:
            untold, self._untold = self._untold, {}
            self._told, self._lines, self.due = {}, 0, math.inf
        for source, count in untold.items():
            _log.warning("refused %d more from %s within a minute", count, source)
            audit("refused", self._worker, source=source, count=count)
