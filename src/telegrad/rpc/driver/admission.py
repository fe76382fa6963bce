"""Whether a link may receive a request: its worker's budget, and how long a request waits for it.

A request that finds no room waits, and holds up nothing else of its peer:

1. A large request that would go over the stream is announced first, and sent when room has been
   granted for it (calls/room.py). But one of a few megabytes at most goes at once, if the last such
   request was answered.
2. A request that lies in shared memory, or is small enough for the anteroom, is received, and waits
   here for the room that it needs. So does one that was sent at once: a place is kept for it.
3. Only where the anteroom is full, too, is the stream read no further: then the peer's own sends
   wait once the socket is full.

A link's requests have their turns in the order in which they came. The first one's turn lasts half
the time after which a silent peer is lost. It must end, since the room may depend on the waiting
request, as between two full workers that call each other.
"""

import math
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from telegrad.rpc.protocol.budget import ANNOUNCED_FROM, UNASKED_BYTES, Budget
from telegrad.rpc.wire.header_check import most_decoded

# The bounds of one link's anteroom: the bytes and the number of requests that wait in it.
_ANTEROOM: Final = 1 << 20
_MOST_PARKED: Final = 256


class _Asking(msgspec.Struct, eq=False):
    """A request that waits for room."""

    admission: "Admission"
    nbytes: int
    then: Callable[[bool], object]
    is_announced: bool
    until: float | None = None
    """When its turn ends; None until it is the first of its link."""


class Room:
    """A worker's budget and the requests that wait for room; `start` runs a task on a thread."""

    def __init__(
        self,
        budget: Budget,
        patience: float,
        start: Callable[[Callable[[], object]], object] = lambda task: task(),
        strict: bool = False,
    ) -> None:
        self.budget = budget
        self.strict = strict
        self.patience = min(patience, threading.TIMEOUT_MAX)
        self.changed = threading.Condition()
        self.waiting = 0
        self._start = start
        self._asking: list[_Asking] = []
        self._is_attended = False
        budget.on_release = self.tell

    def tell(self) -> None:
        """Let the threads that wait look again.

        A thread that is not counted in `waiting` yet will look afterwards, and find the room.
        """
        if self.waiting:
            with self.changed:
                self.changed.notify_all()

    def ask(
        self,
        admission: "Admission",
        nbytes: int,
        then: Callable[[bool], object],
        is_announced: bool = False,
    ) -> None:
        """Have `then` called, on another thread, with whether room was granted in time."""
        with self.changed:
            admission.waiting += 1
            self._asking.append(_Asking(admission, nbytes, then, is_announced))
            if self._is_attended:
                self.changed.notify_all()
                return
            self._is_attended = True
            self.waiting += 1
        self._start(self._attend)

    def ask_no_more(self, admission: "Admission", nbytes: int) -> bool:
        """Forget an announcement that waits for room; say whether there was one."""
        with self.changed:
            for asking in self._asking:
                is_it = asking.admission is admission and asking.nbytes == nbytes
                if is_it and asking.is_announced:
                    self._asking.remove(asking)
                    admission.waiting -= 1
                    self.changed.notify_all()
                    return True
        return False

    def _attend(self) -> None:
        """Answer all requests for room on one thread; start other threads to go on with them."""
        while True:
            with self.changed:
                answered = self._answered()
                while not answered and self._asking:
                    soonest = min(each.until for each in self._asking if each.until is not None)
                    self.changed.wait(max(0.0, soonest - time.monotonic()))
                    answered = self._answered()
                if not answered:
                    self._is_attended = False
                    self.waiting -= 1
                    return
                # A request that waits in the stream may be the next of its link.
                self.changed.notify_all()
            for asking, is_admitted in answered:
                self._start(partial(asking.then, is_admitted))

    def _answered(self) -> list[tuple[_Asking, bool]]:
        now = time.monotonic()
        answered: list[tuple[_Asking, bool]] = []
        left: list[_Asking] = []
        behind: set[Admission] = set()
        for asking in self._asking:
            if asking.admission in behind:
                left.append(asking)
                continue
            if asking.until is None:
                asking.until = now + self.patience
            if asking.admission.grant(asking.nbytes):
                answered.append((asking, True))
            elif asking.admission.is_closed or asking.until <= now:
                answered.append((asking, False))
            else:
                behind.add(asking.admission)
                left.append(asking)
        self._asking = left
        for asking, _ in answered:
            asking.admission.waiting -= 1
        return answered


class Admission:
    """The requests of one link.

    Admitted bytes belong to the link until the whole request has come. Then they are taken over by
    the request, and released when it was served. If the link ends before, it releases them itself.
    """

    def __init__(self, room: Room, peer: str) -> None:
        self._room = room
        self._peer = peer
        self._until: float | None = None
        self.is_closed = False
        self._lock = threading.RLock()
        # Bytes admitted for the request that is being received.
        self._admitted = 0
        # Bytes granted to requests that are yet to come, or to be served.
        self._granted: list[int] = []
        self._parked = 0
        self._parked_count = 0
        # Whether the place kept for a large request that was not announced is taken.
        self._has_unasked = False
        self.waiting = 0
        """How many requests wait for room; their turns come before any other's."""

    def weigh(self, header: int, body: int) -> int:
        """Return how many bytes a request counts: its header, once decoded, and its body."""
        return (most_decoded(header) if self._room.strict else header) + body

    def admit(self, nbytes: int, is_granted: bool = False) -> bool:
        """Say whether there is room now for the incoming request; if so, take it."""
        with self._lock:
            if is_granted and self.take_grant(nbytes):
                self._admitted += nbytes
                return True
            if self.is_closed or self.waiting or not self._room.budget.admit(self._peer, nbytes):
                return False
            self._admitted += nbytes
            if not self.is_closed:
                return True
        # A finalizer that interrupted this thread has closed the link.
        self.close()
        return False

    def park(self, nbytes: int) -> bool:
        """Say whether the incoming request, of so many bytes, may wait in the anteroom."""
        with self._lock:
            if self._admitted or self.is_closed:
                return False
            if nbytes >= ANNOUNCED_FROM:
                if self._has_unasked or nbytes > UNASKED_BYTES:
                    return False
                self._has_unasked = True
                return True
            if self._parked_count >= _MOST_PARKED or self._parked + nbytes > _ANTEROOM:
                return False
            self._parked += nbytes
            self._parked_count += 1
            return True

    def when_room(self, waits: tuple[int, int], then: Callable[[bool], object]) -> None:
        """Call `then` with whether there was room in time for a request in the anteroom."""
        nbytes, parked = waits

        def answer(is_granted: bool) -> None:
            self.unpark(parked)
            # The room is released when the request has been served.
            then(is_granted and self.take_grant(nbytes))

        self._room.ask(self, nbytes, answer)

    def announced(self, header: int, body: int, then: Callable[[bool], object]) -> None:
        """Call `then` with whether there was room in time for an announced request."""
        nbytes = self.weigh(header, body)
        if not self.waiting and self.grant(nbytes):
            then(True)
        else:
            self._room.ask(self, nbytes, then, is_announced=True)

    def given_up(self, header: int, body: int) -> None:
        """Note that an announced request will not come."""
        nbytes = self.weigh(header, body)
        if not self._room.ask_no_more(self, nbytes) and self.take_grant(nbytes):
            self._room.budget.release(self._peer, nbytes)

    def grant(self, nbytes: int) -> bool:
        """Say whether there is room now; if so, keep it for a request that comes later."""
        with self._lock:
            if self.is_closed or not self._room.budget.admit(self._peer, nbytes):
                return False
            self._granted.append(nbytes)
            return True

    def take_grant(self, nbytes: int) -> bool:
        """Use room that was granted; say whether there was any: the link may have ended."""
        with self._lock:
            if nbytes not in self._granted:
                return False
            self._granted.remove(nbytes)
            return True

    def unpark(self, nbytes: int) -> None:
        """Free a request's place in the anteroom."""
        with self._lock:
            if nbytes >= ANNOUNCED_FROM:
                self._has_unasked = False
            else:
                self._parked -= nbytes
                self._parked_count -= 1

    def take(self) -> int:
        """Note that the whole request has come; return the bytes to release when it was served."""
        with self._lock:
            nbytes, self._admitted = self._admitted, 0
            return nbytes

    def decide(self, nbytes: int, deadline: float | None) -> bool | None:
        """Return whether the request is admitted; None if the deadline passed before that."""
        with self._room.changed:
            self._room.waiting += 1
            try:
                while True:
                    admitted = self.admit(nbytes)
                    now = time.monotonic()
                    if self._until is None or self.waiting:
                        # Its turn begins when all earlier requests have had theirs.
                        self._until = now + self._room.patience
                    if admitted or self.is_closed or now >= self._until:
                        self._until = None
                        return admitted
                    left = min(self._until, math.inf if deadline is None else deadline) - now
                    if left <= 0:
                        return None
                    self._room.changed.wait(left)
            finally:
                self._room.waiting -= 1

    def close(self) -> None:
        """Note that the link has ended, and release the room of requests that never came whole."""
        with self._lock:
            self.is_closed = True
            nbytes, self._admitted = self._admitted + sum(self._granted), 0
            self._granted.clear()
        if nbytes:
            self._room.budget.release(self._peer, nbytes)
        self._room.tell()
