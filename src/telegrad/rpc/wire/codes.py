"""Which functions by value two workers know of each other, bounded on both sides.

The sender remembers, by digest, what it sent and whether the receiver has it; the receiver keeps
the functions. A program may send ever new functions (a lambda that captures a counter), so both
forget the oldest. The receiver keeps more than the sender, who also counts what is still under way
or was lost; so what the sender names is there.
"""

from typing import Any, Final

SENT_CODES: Final = 256
RECEIVED_CODES: Final = 1024


class CodeCache:
    """The last so many digests, and what they stand for. Safe for several threads."""

    __slots__ = ("_entries", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: dict[bytes, Any] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, digest: Any) -> Any:
        """Return what the digest stands for, or None."""
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
        """Let a digest stand for something else, unless it was forgotten; it gets no newer."""
        if digest in self._entries:
            self._entries[digest] = value
