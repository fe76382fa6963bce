"""A board: texts that all workers of a world read in the same order; none is ever removed.

A directory, PyTorch's TCPStore or an actor of Ray can hold one.
"""

from typing import Protocol, runtime_checkable


@runtime_checkable
class Board(Protocol):
    """A process's access to a board; safe to use from several threads."""

    pace: float
    """Seconds between two reads for new texts."""

    def post(self, text: str) -> None:
        """Append a text."""

    def read(self, start: int) -> list[str]:
        """Return the texts from this position on."""

    def close(self) -> None:
        """Free what this process holds for it; the texts stay."""
