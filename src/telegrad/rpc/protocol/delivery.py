"""Notices that must arrive: each is repeated, under one number, until it is acknowledged.

The receiver drops repetitions by their number (arrivals.py), so a notice takes effect exactly once
as long as its peer lives. The pause between repetitions doubles. Safe for several threads.
"""

import itertools
import math
from typing import Final

import msgspec

__all__ = ["Outbox"]

_FIRST_PAUSE: Final = 0.5  # Seconds.
_LONGEST_PAUSE: Final = 8.0


class _Entry(msgspec.Struct):
    message: bytes
    due: float
    pause: float


class Outbox:
    """What was posted to one peer and is not acknowledged."""

    __slots__ = ("_numbers", "entries")

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        # By number; others only read it.
        self.entries: dict[int, _Entry] = {}

    def __len__(self) -> int:
        return len(self.entries)

    def post(self, message: bytes, now: float) -> int:
        """Return the number under which the caller sends the message now."""
        number = next(self._numbers)
        self.entries[number] = _Entry(message, now + _FIRST_PAUSE, _FIRST_PAUSE)
        return number

    def acknowledged(self, number: int) -> None:
        """Forget a message that has arrived."""
        self.entries.pop(number, None)

    def due(self, now: float) -> list[tuple[int, bytes]]:
        """Return what to send again now, oldest first."""
        again: list[tuple[int, bytes]] = []
        # Not a list of the items, which others might change meanwhile; see `Calls._numbers_now`.
        for number in list(self.entries):
            entry = self.entries.get(number)
            if entry is not None and entry.due <= now:
                entry.pause = min(2 * entry.pause, _LONGEST_PAUSE)
                entry.due = now + entry.pause
                again.append((number, entry.message))
        return again

    def next_due(self) -> float:
        """Return when something is due; infinity if nothing is posted."""
        return min((entry.due for entry in list(self.entries.values())), default=math.inf)

    def clear(self) -> None:
        """Forget everything: the peer is gone."""
        self.entries.clear()
