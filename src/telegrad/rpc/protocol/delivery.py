"""Notices for which a peer had no room: they are sent, in their order, when it has.

A stream delivers what was sent or breaks, so nothing is repeated; with its connection all goes.
Safe for several threads.
"""

import collections
import math
from typing import Final

__all__ = ["Outbox"]

_PAUSE: Final = 0.25  # Seconds between two tries.


class Outbox:
    """What waits for one peer, the oldest first."""

    __slots__ = ("_due", "waiting")

    def __init__(self) -> None:
        self._due = math.inf
        self.waiting: collections.deque[bytes] = collections.deque()

    def post(self, message: bytes, now: float) -> None:
        """Keep a message that could not be sent."""
        self.waiting.append(message)
        self._due = min(self._due, now + _PAUSE)

    def take(self, now: float) -> bytes | None:
        """Return what is to be tried now, if anything is."""
        try:
            return self.waiting.popleft() if self._due <= now else None
        except IndexError:
            self._due = math.inf
            return None

    def put_back(self, message: bytes, now: float) -> None:
        """There was no room for the first either: all are tried again after a pause."""
        self.waiting.appendleft(message)
        self._due = now + _PAUSE

    def next_due(self) -> float:
        """Return when something is to be tried; infinity if nothing waits."""
        return self._due if self.waiting else math.inf

    def clear(self) -> None:
        """Forget everything: the connection has ended."""
        self.waiting.clear()
