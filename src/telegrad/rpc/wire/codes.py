"""The functions by value that two workers know of each other, bounded on both sides.

The sender remembers, by digest, what it sent and whether the receiver has it; the receiver keeps
the functions. A program may send ever new functions (a lambda that captures a counter), so both
forget the oldest. The receiver keeps more than the sender, whose count includes functions still on
their way or lost; so a function that the sender names by digest is there.
"""

from typing import Any, Final

SENT_CODES: Final = 256
RECEIVED_CODES: Final = 1024


class CodeCache:
    """The latest digests and their values, up to a bound. Safe for several threads."""

    __slots__ = ("_entries", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: dict[bytes, Any] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, digest: Any) -> Any:
        """Return the digest's value, or None."""
        return self._entries.get(digest)

    def put(self, digest: bytes, value: Any) -> None:
        """Enter a digest as the newest, and forget the oldest if there are too many."""
        self._entries.pop(digest, None)
        self._entries[digest] = value
        while len(self._entries) > self._most:
            oldest = next(iter(list(self._entries)), None)
            if oldest is not None:
                self._entries.pop(oldest, None)

    def replace(self, digest: bytes, value: Any) -> None:
        """Change a digest's value, unless it was forgotten; its age stays."""
        if digest in self._entries:
            self._entries[digest] = value
