"""How fast a peer may send: a rate in bytes a second, and one second's worth ahead of it.

Invariant: a receiver that rests as told has taken, since it began, at most the rate times the
seconds passed, plus one second's worth and the last piece. Knows no clock.
"""


class Pace:
    """The pace of one peer; `rate` is in bytes a second."""

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._at = now
        self._seen = 0
        # Bytes received that time has not paid for yet.
        self._debt = 0.0

    def rest(self, received: int, now: float) -> float:
        """Return the seconds to rest, given the total of bytes received."""
        self._debt = max(0.0, self._debt - (now - self._at) * self._rate)
        self._debt += received - self._seen
        self._at, self._seen = now, received
        return max(0.0, self._debt / self._rate - 1.0)
