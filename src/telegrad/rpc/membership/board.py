"""A board: texts that all workers of a world can read, in one order; none is ever taken back.

Whatever keeps one (a directory, PyTorch's TCPStore, an actor of Ray) needs two methods.
"""

from typing import Protocol, runtime_checkable


@runtime_checkable
class Board(Protocol):
    """See above. Safe to use from several threads."""

    pace: float
    """Seconds after which to look again for what is new."""

    def post(self, text: str) -> None:
        """Add a text behind all others."""

    def read(self, start: int) -> list[str]:
        """Return the texts from a position on; none if there is nothing new."""

    def close(self) -> None:
        """Free what this process holds of it; the texts stay."""
