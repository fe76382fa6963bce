"""The calls that one side of a connection has made and that are not answered yet.

This is the hot path, so events are method calls and effects are return values: `begin`, `finish`
when an answer came, `give_up` and `expired` when time passed, `drain` when the peer was lost.
Invariant: each call is returned exactly once, by whichever of these comes first, so no call is
settled twice. Every method may be called from several threads at once.
"""

import itertools
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from telegrad.rpc.calls.call import Call


class Calls:
    """Open calls by number; numbers count up from 1 and are never used again."""

    __slots__ = ("_numbers", "given_up", "open")

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        # By number; others only read it.
        self.open: dict[int, Call] = {}
        self.given_up: dict[int, list[int]] = {}
        """The references in calls given up, which the peer may still refuse to unpack."""

    def __len__(self) -> int:
        return len(self.open)

    def begin(self, call: "Call") -> int:
        """Open a call and return its number."""
        number = next(self._numbers)
        self.open[number] = call
        return number

    def finish(self, number: int) -> "Call | None":
        """Close the call and return it; None if it is not open (late, or never begun)."""
        return self.open.pop(number, None)

    def give_up(self, number: int) -> "Call | None":
        """Close a call that the peer may still serve; None if it is not open."""
        call = self.open.get(number)
        if call is not None and call.forks:
            # Stored before closing, so that a refusal finds them in one place or the other. They
            # stay even if another thread has closed the call: it may have given it up, too.
            self.given_up[number] = call.forks
        return self.finish(number)

    def withdraw(self, call: "Call") -> None:
        """Close a call that was not sent after all; its number may not be known."""
        for number in self._numbers_now():
            if self.open.get(number) is call:
                self.finish(number)

    def expired(self, now: float) -> "list[Call]":
        """Close the calls whose deadline has passed and return them, oldest first."""
        late = []
        for number in self._numbers_now():
            call = self.open.get(number)
            if call is not None and call.deadline <= now:
                late.append(number)
        return [call for number in late if (call := self.give_up(number)) is not None]

    def next_deadline(self) -> float:
        """Return the earliest deadline of an open call; infinity if there is none."""
        return min((call.deadline for call in list(self.open.values())), default=math.inf)

    def drain(self) -> "list[Call]":
        """Close all calls and return them, oldest first."""
        numbers = self._numbers_now()
        return [call for number in numbers if (call := self.finish(number)) is not None]

    def _numbers_now(self) -> list[int]:
        # Listing a dict's keys or values is atomic. Listing its items is not: it makes tuples, on
        # which the collector may run finalizers, which let other threads run.
        return list(self.open)
