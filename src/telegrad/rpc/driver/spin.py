"""Looking for bytes for a moment before sleeping: waking a thread costs more than a round trip."""

import os
import time
from collections.abc import Callable
from typing import Any, Final

# A wait of so many times the seconds of spinning is long; where so many were, there is none.
_LONG: Final = 1.2
_MOST_LONG: Final = 4
# Giving up the processor took more seconds than this: another thread had it. Where that happens so
# often in one wait, the next so many waits don't spin.
_TAKEN: Final = 5e-6
_MOST_TAKEN: Final = 3
_REST: Final = 16
_sched_yield: Callable[[], None] | None = getattr(os, "sched_yield", None)


class Spinning:
    """Whether and how long to look for bytes before sleeping: one thread a process at a time.

    Waking a thread costs more than a short round trip takes. Spinning without giving up the
    processor would keep the peer from answering, so there is none where `sched_yield` is missing.
    Adaptive: it is tried as long as bytes keep coming soon, whether or not the spinning itself
    caught them (both sides must spin for either to gain); an idle worker does not burn. And while
    others want the processor, too, a thread that sleeps gets it back sooner than one that gave it
    up: then there is no spinning for a while. (On a machine with load 15 on two cores this halved
    the mean time of a call.) Nor is there where workers are many more than processors.
    """

    _is_taken = False
    """Whether a thread of this process spins.

    No lock: an interrupt just after it was taken would leave it taken for ever. Python looks for
    signals, and changes threads, only where something is called; and two that spin do no harm.
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
        """Look for so long from now on, unless it is turned off: answers take longer."""
        if 0.0 < self.seconds < seconds:
            self._most_taken = round(self._most_taken * seconds / self.seconds)
            self.seconds = seconds
            self._long = self._rest = 0

    def about_to_sleep(self) -> None:
        """Note that this thread will now sleep for what it did not find."""

    def spin(self, look: Callable[[int], Any]) -> Any:
        """Return what a look finds within the time, something false if nothing came."""
        if _sched_yield is None or not self.seconds or self._long >= _MOST_LONG:
            return ()
        if self._rest:
            self._rest -= 1
            return ()
        if self._is_crowded() or Spinning._is_taken:
            return ()
        # Asking first takes a third of the time of a read that fails: exceptions cost.
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
                # Twice: giving up the processor takes longer than looking.
                found = look(0) or look(0)
                if found:
                    return found
                if now - before > _TAKEN:
                    # Another thread had the processor, and it was not the peer's: its answer would
                    # be here. (Where the peer shares this processor, spinning is right: the system
                    # moves two busy threads apart, but leaves two that sleep where they are.)
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
