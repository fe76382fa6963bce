"""Which device segment to fill next, when to make another, and which to give back.

A pool has the segments of one worker on one device, for all receivers. It only decides: it neither
allocates memory nor reads a clock.

1. ``take(peer, nbytes, now)`` returns a free segment for that receiver: the least recently used
   one, since the receiver's last copies out of it are most likely over; but none that is much too
   large, which a larger message may need.
2. If there is none, ``plan(nbytes)`` returns the size of a new one and the free segments to drop
   first to keep the pool within its bound; None if that is not enough. ``add`` adds the new one.
3. ``idle(now)`` returns the segments that were not used for a while, and those that a receiver has
   held for so long that the message must have been abandoned; ``drop`` removes one.

Invariant: the segments together are never larger than the bound, and ``take`` returns none that a
receiver still holds.
"""

from typing import Final, Generic, Protocol, TypeVar

SMALLEST: Final = 2 << 20
"""Bytes: the driver's unit of allocation; smaller parts of it can't be shared separately."""
_MUCH_TOO_LARGE: Final = 4
_IDLE_AFTER: Final = 10.0  # Seconds.


class Pooled(Protocol):
    """The part of a segment that a pool uses."""

    peer: str
    size: int
    used_at: float
    is_taken: bool
    """Whether a thread of the sender is filling it."""

    def is_held(self) -> bool:
        """Tell whether the receiver still holds it."""


S = TypeVar("S", bound=Pooled)


def size_for(nbytes: int) -> int:
    """Return the size of a segment for so many bytes: at most an eighth more, or the smallest.

    Sizes are rounded up, so that messages whose sizes vary a little can use the same segment.
    """
    step = max(SMALLEST, 1 << max(0, (nbytes - 1).bit_length() - 4))
    return max(SMALLEST, -(-nbytes // step) * step)


class SegmentPool(Generic[S]):
    """The segments of one worker on one device. Not thread-safe: callers hold a lock."""

    def __init__(self, most: int, given_up_after: float) -> None:
        """Allow `most` bytes; take a message for abandoned after `given_up_after` seconds."""
        self._most = most
        self._given_up_after = given_up_after
        # In the order of their last use.
        self._segments: list[S] = []
        self.held = 0
        """Bytes of all segments."""

    def __len__(self) -> int:
        return len(self._segments)

    def take(self, peer: str, nbytes: int, now: float) -> S | None:
        """Return a free segment of the receiver, marked as taken; None if none fits."""
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
        """Return the size of a new segment and the segments to drop for it; None if no room."""
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
        """Add a new segment, which is already marked as taken."""
        self._segments.append(segment)
        self.held += segment.size

    def drop(self, segment: S) -> bool:
        """Remove a segment; return False if another thread has done so."""
        if segment not in self._segments:
            return False
        self._segments.remove(segment)
        self.held -= segment.size
        return True

    def of(self, peer: str) -> list[S]:
        """Return all segments of a receiver."""
        return [segment for segment in self._segments if segment.peer == peer]

    def idle(self, now: float) -> list[S]:
        """Return segments to free: unused for a while, or held for an abandoned message."""
        found = []
        for segment in self._segments:
            patience = self._given_up_after if segment.is_held() else _IDLE_AFTER
            if not segment.is_taken and now - segment.used_at > patience:
                found.append(segment)
        return found


def _is_free(segment: Pooled) -> bool:
    return not segment.is_taken and not segment.is_held()
