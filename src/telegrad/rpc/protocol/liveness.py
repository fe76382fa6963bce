"""Whether the peer at the other end of a connection is alive.

The driver counts what comes (frames, and pieces of large ones), which costs nothing; at each tick
the count tells whether anything was heard since the last. Each side pings the other at each tick,
by a thread that runs nothing else, so a worker that lives is heard however busy it is; one that
stays quiet for `lost_after` seconds is lost. Invariant: a verdict depends on the counts and times
given, on nothing else; time that passed without ticks (the process was stopped) is not held
against the peer.
"""

import enum


class Verdict(enum.Enum):
    """What to do about a peer."""

    ALIVE = "nothing"
    QUIET = "wait"
    LOST = "give it up"


class Liveness:
    """One connection's view of its peer."""

    __slots__ = ("_count", "heard", "interval", "lost_after", "slept", "ticked")

    def __init__(self, now: float, lost_after: float) -> None:
        self.lost_after = lost_after
        # Seconds between ticks: short enough that a quiet peer is pinged a few times before.
        self.interval = lost_after / 5
        self._count = -1
        self.heard = now
        """When something was last known to have come."""
        self.ticked = now
        self.slept = False
        """Whether this side was not running for so long that the other may have given it up."""

    def tick(self, count: int, now: float) -> Verdict:
        """Judge the peer, of which `count` signs of life have come in all."""
        overslept = now - self.ticked - self.interval
        if overslept > self.interval:
            # We were not running: what the peer sent in that time may still lie unread.
            self.heard += overslept
            self.slept = self.slept or overslept > self.lost_after / 2
        self.ticked = now
        if count != self._count:
            self._count = count
            self.heard = now
            return Verdict.ALIVE
        if now - self.heard >= self.lost_after:
            return Verdict.LOST
        return Verdict.QUIET
