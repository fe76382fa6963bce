"""How many bytes of others' requests a worker holds at once: in all, and of each peer.

A request that does not fit waits, so a peer that sends too much slows down itself alone; its own
small requests overtake the large one. After a while a waiting request is refused, since the room
may depend on its caller. Answers and notices need no room: they are what frees it.

Invariant: what is held never exceeds the bounds, except by a single request held alone, whose size
the connection's limits bound. Knows no clock and no threads: a caller with several passes a lock.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

COUNTED_FROM: Final = 16 << 10
"""Requests of fewer bytes are not counted: the thread that serves one takes more memory."""

ANNOUNCED_FROM: Final = 1 << 20
"""Requests of at least so many bytes are announced on a stream, and sent when there is room."""

UNASKED_BYTES: Final = 4 << 20
"""On each path one request of at most so many bytes may be sent unannounced, and wait for room at
the receiver: between machines a round trip takes longer than sending such a request."""


class Budget:
    """The bytes of requests that are being received and served, by peer."""

    def __init__(
        self,
        most: int,
        most_of_peer: int,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        self.most = most
        self.most_of_peer = most_of_peer
        self.on_release: Callable[[], object] = lambda: None
        """Called after each release: there may be room for a waiting request."""
        self._lock = lock or nullcontext()
        self.held = 0
        """How many bytes are held now."""
        self._of_peers: dict[str, int] = {}

    def admit(self, peer: str, nbytes: int) -> bool:
        """Say whether there is room for a request, and take it."""
        with self._lock:
            own = self._of_peers.get(peer, 0)
            if self.held and self.held + nbytes > self.most:
                return False
            if own and own + nbytes > self.most_of_peer:
                return False
            self.held += nbytes
            self._of_peers[peer] = own + nbytes
            return True

    def release(self, peer: str, nbytes: int) -> None:
        """Note that a request was served, and free its bytes."""
        with self._lock:
            self.held -= nbytes
            self._of_peers[peer] -= nbytes
            if not self._of_peers[peer]:
                del self._of_peers[peer]
        self.on_release()
