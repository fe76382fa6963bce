"""Whether the peer at the other end of a connection is alive.

The driver counts what arrives (frames, and pieces of large ones), which costs nothing; each tick
compares the count with the last. Each side pings the other at each tick, from a thread that does
nothing else, so a worker that lives is heard however busy it is; one that stays silent for
`lost_after` seconds is lost. Invariant: a verdict depends only on the counts and times given; time
that passed without ticks (this process was stopped) is not held against the peer.
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
        # Seconds between ticks: short enough to ping a quiet peer several times before it is lost.
        self.interval = lost_after / 5
        self._count = -1
        self.heard = now
        """When the peer was last heard."""
        self.ticked = now
        self.slept = False
        """Whether this process was stopped for so long that the peer may have given it up."""

    def tick(self, count: int, now: float) -> Verdict:
        """Judge the peer, given the total count of its signs of life."""
        overslept = now - self.ticked - self.interval
        if overslept > self.interval:
            # This process was not running: bytes that the peer sent meanwhile may still be unread.
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
