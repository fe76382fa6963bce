"""Spinning before sleeping: waking a thread takes longer than a short round trip."""

import os
import time
from collections.abc import Callable
from typing import Any, Final

# A wait longer than so many times the spinning time is long. After so many long ones, no spinning.
_LONG: Final = 1.2
_MOST_LONG: Final = 4
# A yield that took more seconds than this gave the processor to another thread. After so many of
# these in one wait, the next so many waits don't spin.
_TAKEN: Final = 5e-6
_MOST_TAKEN: Final = 3
_REST: Final = 16
_sched_yield: Callable[[], None] | None = getattr(os, "sched_yield", None)


class Spinning:
    """Whether and how long to look for bytes before sleeping: one thread a process at a time.

    Waking a thread takes longer than a short round trip. Spinning without yielding the processor
    would keep the peer from answering, so there is none where `sched_yield` is missing. Adaptive:
    it goes on as long as bytes keep coming soon, whether or not the spinning itself caught them
    (both sides must spin for either to gain); an idle worker burns nothing. And while others want
    the processor, too, a thread that sleeps gets it back sooner than one that yielded it: then
    spinning stops for a while. (On a machine with load 15 on two cores this halved the mean time
    of a call.) It also stops where workers are many more than processors.
    """

    _is_taken = False
    """Whether a thread of this process spins.

    No lock: an interrupt just after taking it would leave it taken for ever. Python handles
    signals, and switches threads, only at calls; and two threads that spin do no harm.
    """

    def __init__(self, seconds: float, is_crowded: Callable[[], bool] = lambda: False) -> None:
        self.seconds = seconds
        self._is_crowded = is_crowded
        self._most_taken = _MOST_TAKEN
        # How many of the last waits were long, from 0 to `_MOST_LONG`.
        self._long = 0
        # How many times not to spin because the processor was taken.
        self._rest = 0

    def at_least(self, seconds: float) -> None:
        """Spin at least this long from now on, unless it is turned off: answers take longer."""
        if 0.0 < self.seconds < seconds:
            self._most_taken = round(self._most_taken * seconds / self.seconds)
            self.seconds = seconds
            self._long = self._rest = 0

    def about_to_sleep(self) -> None:
        """Note that this thread found nothing and is about to sleep."""

    def spin(self, look: Callable[[int], Any]) -> Any:
        """Return the first true result of `look` within the time, else a false value."""
        if _sched_yield is None or not self.seconds or self._long >= _MOST_LONG:
            return ()
        if self._rest:
            self._rest -= 1
            return ()
        if self._is_crowded() or Spinning._is_taken:
            return ()
        # Polling takes a third of the time of a read that fails: exceptions cost.
        if found := look(0):
            return found
        clock = time.perf_counter
        Spinning._is_taken = True
        try:
            now = clock()
            end = now + self.seconds
            taken = 0
            while now < end:
                before = now
                _sched_yield()
                now = clock()
                # Poll twice: a yield takes longer than a poll.
                found = look(0) or look(0)
                if found:
                    return found
                if now - before > _TAKEN:
                    # Another thread had the processor, not the peer's: its answer would be here.
                    # (Where the peer shares this processor, spinning is right: the system moves two
                    # busy threads apart, but leaves two that sleep where they are.)
                    taken += 1
                    if taken == self._most_taken:
                        self._rest = _REST
                        return ()
            return ()
        finally:
            Spinning._is_taken = False

    def waited(self, seconds: float) -> None:
        """Learn from a wait that spinning did not end."""
        if seconds > _LONG * self.seconds:
            self._long = min(self._long + 1, _MOST_LONG)
        elif self._long:
            self._long -= 1
