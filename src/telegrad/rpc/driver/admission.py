"""Whether a link may read a request on: the budget of its worker, and the patience to wait for it.

The thread that reads the link waits here, so nothing more of that peer is read meanwhile, and its
own sends wait once the socket is full. It waits for half the time after which a silent peer is
lost, so that a peer whose frames are held up here is not taken for a lost one.
"""

import threading
import time

from telegrad.rpc.protocol.budget import Budget

__all__ = ["Admission", "Room"]


class Room:
    """A worker's budget and those who wait for room in it."""

    def __init__(self, budget: Budget, patience: float) -> None:
        self.budget = budget
        self.patience = min(patience, threading.TIMEOUT_MAX)
        self.changed = threading.Condition()
        self.waiting = 0
        budget.on_release = self.tell

    def tell(self) -> None:
        """Let those who wait look again.

        A thread that is not counted yet has not looked yet, and will find what was released.
        """
        if self.waiting:
            with self.changed:
                self.changed.notify_all()


class Admission:
    """One link's requests, one at a time.

    What was admitted belongs to the link until the request has come as a whole; then it is taken,
    and released by whoever serves it. If the link ends before, it releases it itself.
    """

    def __init__(self, room: Room, peer: str) -> None:
        self._room = room
        self._peer = peer
        self._until: float | None = None
        self._closed = False
        self._lock = threading.RLock()
        self._admitted = 0

    def admit(self, nbytes: int) -> bool:
        """Say whether there is room now for the request that comes, and keep it."""
        with self._lock:
            if self._closed or not self._room.budget.admit(self._peer, nbytes):
                return False
            self._admitted += nbytes
            if not self._closed:
                return True
        # By a finalizer that interrupted this.
        self.close()
        return False

    def take(self) -> int:
        """The request has come: return how much is to be released when it was served."""
        with self._lock:
            nbytes, self._admitted = self._admitted, 0
            return nbytes

    def decide(self, nbytes: int, deadline: float | None) -> bool | None:
        """Return whether the request is admitted; None if the deadline passed before that."""
        if self._until is None:
            self._until = time.monotonic() + self._room.patience
        until = self._until if deadline is None else min(deadline, self._until)
        admitted = False

        def has_ended() -> bool:
            nonlocal admitted
            admitted = self.admit(nbytes)
            return admitted or self._closed

        with self._room.changed:
            self._room.waiting += 1
            try:
                self._room.changed.wait_for(has_ended, max(0.0, until - time.monotonic()))
            finally:
                self._room.waiting -= 1
        if not admitted and not self._closed and time.monotonic() < self._until:
            return None
        self._until = None
        return admitted

    def close(self) -> None:
        """The link has ended: what did not come as a whole never will."""
        with self._lock:
            self._closed = True
            nbytes, self._admitted = self._admitted, 0
        if nbytes:
            self._room.budget.release(self._peer, nbytes)
        self._room.tell()
