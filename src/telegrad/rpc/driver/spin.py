"""Spinning before sleeping: waking a thread takes longer than a short round trip."""

import os
import time
from collections.abc import Callable
from typing import Any, Final

# A wait longer than so many times the spinning time is long. After so many long ones, no spinning.
_LONG: Final = 1.2
_MOST_LONG: Final = 4
# The most seconds of spinning where each worker has a processor.
_LONGEST: Final = 0.002
# A yield that took more seconds than this gave the processor to another thread. After so many of
# these in `seconds` of spinning, the next so many waits don't spin.
_TAKEN: Final = 5e-6
_MOST_TAKEN: Final = 3
_REST: Final = 16
_PROCESSORS: Final = os.cpu_count() or 1
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

    Where each worker has a processor, and waits end soon after the spinning, it spins longer from
    then on. (A processor without work sleeps, too. On a virtual machine the one that wakes it pays:
    15 µs of the sender's time, and 40 from end to end.)
    """

    _is_taken = False
    """Whether a thread of this process spins.

    No lock: an interrupt just after taking it would leave it taken for ever. Python handles
    signals, and switches threads, only at calls; and two threads that spin do no harm.
    """

    def __init__(self, seconds: float, spare: Callable[[], int] = lambda: -1) -> None:
        """`spare` returns how many processors are left beside one for each worker; see host.py."""
        self.seconds = seconds
        self._spare = spare
        # How long to spin where each worker has a processor, and how often it may be taken.
        self._longer = seconds, _MOST_TAKEN
        # How long it spun before this wait.
        self._spun = 0.0
        # How many of the last waits were long, from 0 to `_MOST_LONG`.
        self._long = 0
        # How many times not to spin because the processor was taken.
        self._rest = 0

    def about_to_sleep(self) -> None:
        """Note that this thread found nothing and is about to sleep."""

    def spin(self, look: Callable[[int], Any]) -> Any:
        """Return the first true result of `look` within the time, else a false value."""
        self._spun = 0.0
        if _sched_yield is None or not self.seconds or self._long >= _MOST_LONG:
            return ()
        if self._rest:
            self._rest -= 1
            return ()
        spare = self._spare()
        if spare < -_PROCESSORS or Spinning._is_taken:
            return ()
        # Polling takes a third of the time of a read that fails: exceptions cost.
        if found := look(0):
            return found
        clock = time.perf_counter
        Spinning._is_taken = True
        try:
            now = clock()
            spun, most = (self.seconds, _MOST_TAKEN) if spare < 0 else self._longer
            self._spun = spun
            end = now + spun
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
                    most -= 1
                    if not most:
                        self._rest = _REST
                        self._spun += now - end
                        return ()
            return ()
        finally:
            Spinning._is_taken = False

    def waited(self, seconds: float) -> None:
        """Learn from a wait that spinning did not end, and that took so long afterwards."""
        longer = _LONG * (self._spun + seconds)
        if longer <= _LONGEST and self.seconds and self._spare() >= 0:
            longer = max(longer, self.seconds)
            self._longer = longer, round(_MOST_TAKEN * longer / self.seconds)
        elif seconds > _LONG * self.seconds:
            self._long = min(self._long + 1, _MOST_LONG)
            return
        if self._long:
            self._long -= 1
