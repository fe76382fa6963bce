"""Which numbered messages of a peer have come before, so that none is handled twice.

Streams of the operating system don't repeat or reorder, so in life `accept` is one comparison; a
simulated network does both. Numbers count up from 1. A number far behind the newest is taken for
a late duplicate: whoever sent it has given up by then.
"""

import sys
from typing import Final

__all__ = ["Arrivals"]

# A number less than this far behind the newest is never taken for a late duplicate by its age
# alone; one more than twice as far always is.
_WINDOW: Final = 1 << 14


class Arrivals:
    """The numbers below `_next` have all come; `_ahead` are those beyond it that came early."""

    __slots__ = ("_ahead", "_next")

    def __init__(self) -> None:
        self._next = 1
        self._ahead: set[int] = set()

    def accept(self, number: int) -> bool:
        """Say whether the message is new, and remember it."""
        if number == self._next and not self._ahead:
            self._next = number + 1
            return True
        if self.has(number):
            return False
        self._ahead.add(number)
        while self._next in self._ahead:
            self._ahead.remove(self._next)
            self._next += 1
        if number - self._next > 2 * _WINDOW:
            # By halves, so that it costs little a message.
            self._next = number - _WINDOW
            self._ahead = {n for n in self._ahead if n >= self._next}
        return True

    def close(self) -> None:
        """Take every message from now on for one that has come."""
        self._next = sys.maxsize

    def has(self, number: int) -> bool:
        """Say whether the message has come."""
        return number < self._next or number in self._ahead
