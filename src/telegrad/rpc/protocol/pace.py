"""How fast a peer may send: so many bytes a second, and a second's worth ahead of that.

Invariant: what rests for as long as it is told has taken, since it began, at most the rate times
the seconds that passed, and one second's worth and the last piece more. Knows no clock.
"""


class Pace:
    """The pace of one peer; `rate` is in bytes a second."""

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._at = now
        self._seen = 0
        # Bytes that were taken and not yet paid for by time.
        self._debt = 0.0

    def rest(self, received: int, now: float) -> float:
        """Return the seconds to rest, after so many bytes have come in all."""
        self._debt = max(0.0, self._debt - (now - self._at) * self._rate)
        self._debt += received - self._seen
        self._at, self._seen = now, received
        return max(0.0, self._debt / self._rate - 1.0)
