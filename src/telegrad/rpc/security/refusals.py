"""What a worker refuses, in the log: the first few a minute of each source, then how many more.

A stranger that can reach a port could fill the disk with refusals. Invariant: however many are
refused, from however many sources, a minute takes `_MOST` lines and as many counts.
"""

import logging
import math
import threading
from typing import Any, Final

from telegrad.rpc.security.audit import audit

_log: Final = logging.getLogger("telegrad.rpc")
_MINUTE: Final = 60.0
_FIRST: Final = 5  # Told of each source in a minute.
_MOST: Final = 50  # Told of all of them.
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
        """When the minute is over; what was only counted is told then, by `catch_up`."""

    def note(self, source: str, now: float, message: str, **fields: Any) -> None:
        """Log a refusal, or count it; `fields` are for the audit's line."""
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
        """Tell how many were only counted, if the minute is over."""
        if now < self.due:
            return
        with self._lock:
            untold, self._untold = self._untold, {}
            self._told, self._lines, self.due = {}, 0, math.inf
        for source, count in untold.items():
            _log.warning("refused %d more from %s within a minute", count, source)
            audit("refused", self._worker, source=source, count=count)
