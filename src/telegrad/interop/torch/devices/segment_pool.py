"""Which device segment to fill next, when to make another, and which to give back.

A pool has the segments of one worker on one device, for all receivers. It decides and touches
nothing: it neither allocates nor asks a clock.

1. ``take(peer, nbytes, now)`` finds a free segment of that receiver: the one that was used the
   longest ago, so that the receiver's last copies out of it are most likely over; not one that is
   much too large, which something large may need.
2. Where there is none, ``plan(nbytes)`` says how large a new one should be and which free segments
   must go first for the pool to keep its bound; None where that is not enough. ``add`` enters it.
3. ``idle(now)`` are those that nobody used for a while, and those that a receiver has kept for so
   long that the message must have been given up; ``drop`` takes one out.

Invariant: the segments together are never larger than the bound, and none is given out that a
receiver still has.
"""

from typing import Final, Generic, Protocol, TypeVar

SMALLEST: Final = 2 << 20
"""Bytes: what the driver allocates at once; smaller pieces of it can't be shared apart."""
_MUCH_TOO_LARGE: Final = 4
_IDLE_AFTER: Final = 10.0  # Seconds.


class Pooled(Protocol):
    """What a pool needs of a segment."""

    peer: str
    size: int
    used_at: float
    is_taken: bool
    """Whether a thread of the sender fills it."""

    def is_held(self) -> bool:
        """Say whether the receiver has it."""


S = TypeVar("S", bound=Pooled)


def size_for(nbytes: int) -> int:
    """Return the size of a segment for so many bytes: at most an eighth more, or the smallest.

    Round sizes, so that what varies a little finds the segment that was there before.
    """
    step = max(SMALLEST, 1 << max(0, (nbytes - 1).bit_length() - 4))
    return max(SMALLEST, -(-nbytes // step) * step)


class SegmentPool(Generic[S]):
    """The segments of one worker on one device. One thread at a time."""

    def __init__(self, most: int, given_up_after: float) -> None:
        """Hold `most` bytes at most; what a receiver kept for so many seconds was given up."""
        self._most = most
        self._given_up_after = given_up_after
        # In the order of their last use.
        self._segments: list[S] = []
        self.held = 0
        """Bytes of all segments."""

    def __len__(self) -> int:
        return len(self._segments)

    def take(self, peer: str, nbytes: int, now: float) -> S | None:
        """Return a free segment of the receiver, taken; None if there is none that fits."""
        largest = max(_MUCH_TOO_LARGE * nbytes, SMALLEST)
        for segment in self._segments:
            if segment.peer == peer and nbytes <= segment.size <= largest and _is_free(segment):
                segment.is_taken = True
                segment.used_at = now
                self._segments.remove(segment)
                self._segments.append(segment)
                return segment
        return None

    def plan(self, nbytes: int) -> tuple[int, list[S]] | None:
        """Return the size of a new segment and what to drop for it; None if it has no room."""
        size = size_for(nbytes)
        excess = self.held + size - self._most
        victims: list[S] = []
        for segment in self._segments:
            if excess <= 0:
                break
            if _is_free(segment):
                victims.append(segment)
                excess -= segment.size
        return None if excess > 0 else (size, victims)

    def add(self, segment: S) -> None:
        """Enter a new segment, which its maker has taken."""
        self._segments.append(segment)
        self.held += segment.size

    def drop(self, segment: S) -> bool:
        """Take a segment out; False if another thread has done so."""
        if segment not in self._segments:
            return False
        self._segments.remove(segment)
        self.held -= segment.size
        return True

    def of(self, peer: str) -> list[S]:
        """Return all segments of a receiver."""
        return [segment for segment in self._segments if segment.peer == peer]

    def idle(self, now: float) -> list[S]:
        """Return what can be given back: unused for a while, or of messages that were given up."""
        found = []
        for segment in self._segments:
            patience = self._given_up_after if segment.is_held() else _IDLE_AFTER
            if not segment.is_taken and now - segment.used_at > patience:
                found.append(segment)
        return found


def _is_free(segment: Pooled) -> bool:
    return not segment.is_taken and not segment.is_held()
