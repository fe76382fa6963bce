"""An endpoint: one end of a path to a peer, as the worker sees it, over any carrier.

The driver's link (a socket) and the simulation's endpoint derive from it. All the protocol's state
of a path is here, and is dropped with it: a broken path is never resumed, so nothing addressed to
an old incarnation reaches a new one.
"""

import abc
import collections
import math
from collections.abc import Callable
from typing import Any, Final, Protocol

from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.protocol.calls import Calls
from telegrad.rpc.protocol.liveness import Liveness
from telegrad.rpc.security.introduction import Limits
from telegrad.rpc.wire.codes import RECEIVED_CODES, SENT_CODES, CodeCache
from telegrad.rpc.wire.frames import PING, Frame

RETRY_AFTER: Final = 0.25
"""Seconds until a notice that could not be sent at once is tried again."""

UNASKED: Final = (-1, -1)
MAY_WAIT: Final = -1
"""The peer's one place for an unannounced large request may be taken: such a request is about to be
sent, or was sent and given up. The place is free once a later, announced request has arrived."""


class Anteroom(Protocol):
    """Where a path's requests wait for room; `then(True)` means room was found in time."""

    def when_room(self, waits: tuple[int, int], then: Callable[[bool], object]) -> None:
        """Find room for a request that has arrived; `waits` is its frame's."""

    def announced(self, header: int, body: int, then: Callable[[bool], object]) -> None:
        """Find room for an announced request, whose header and body have these sizes."""

    def given_up(self, header: int, body: int) -> None:
        """Note that an announced request will not come."""


class Endpoint(abc.ABC):
    """This side's state of one path; subclasses implement `send`, which carries a frame."""

    # Links have more than the thirty attributes that Python 3.11 finds quickly: without slots,
    # access took two and a half times as long.
    __slots__ = (
        *("accept", "anteroom", "calls", "closed", "limits", "liveness", "next_tick", "outbox"),
        *("peer", "received_code", "retry_at", "sent_code", "serving", "signs", "unasked"),
        *("unwanted",),
    )

    may_block = False
    """Whether a send may have to wait for the peer to read."""

    def __init__(self, peer: WorkerInfo, limits: Limits, now: float, lost_after: float) -> None:
        self.peer = peer
        self.limits = limits
        self.calls = Calls()
        # Notices that could not be sent at once, oldest first, and when to try them again.
        self.outbox: collections.deque[bytes] = collections.deque()
        self.retry_at = math.inf
        self.liveness = Liveness(now, lost_after)
        self.anteroom: Anteroom | None = None
        self.unasked = 0
        """The number of the last large request that was sent unannounced, or MAY_WAIT."""
        self.next_tick = now + self.liveness.interval
        # How many signs of life were noted, besides incoming bytes.
        self.signs = 0
        self.closed = False
        # The numbers of requests being served, and of those among them that the peer gave up.
        self.serving: set[int] = set()
        self.unwanted: set[int] = set()
        # Turns descriptors of references on this path into references; set by the worker.
        self.accept: Callable[[list[list[Any]]], list[Any]] | None = None
        # Functions by value: those sent, and whether the peer has them; those received.
        self.sent_code = CodeCache(SENT_CODES)
        self.received_code = CodeCache(RECEIVED_CODES)

    def cancelled(self, number: int) -> None:
        """Note that the peer has given up a request: its answer is not to be sent."""
        # `is_wanted`, which may be running on another thread, does these two steps in the opposite
        # order, so that at least one of the two sees what the other did.
        self.unwanted.add(number)
        if number not in self.serving:
            self.unwanted.discard(number)

    def is_wanted(self, number: int) -> bool:
        """End serving a request; say whether the peer still wants its answer."""
        self.serving.discard(number)
        if self.unwanted and number in self.unwanted:
            self.unwanted.discard(number)
            return False
        return True

    @abc.abstractmethod
    def send(self, frame: Frame, deadline: float = math.inf) -> bool:
        """Send one frame; raise ConnectionError or OSError if the path is broken.

        Return False if it had to wait and the deadline passed before any of it was sent.
        """

    def send_with_next(self, header: bytes) -> bool:
        """Hold a notice back to go with the next frame; return False if it must be sent at once."""
        return False

    # Hooks for endpoints that read a socket; the others have nothing to do here.

    def flush(self) -> None:  # noqa: B027
        """Send the notices held back, unless a frame is being sent. Never waits."""

    def expect(self) -> None:  # noqa: B027
        """Have an answer read soon, though no thread waits for it yet."""

    def attend(self) -> None:  # noqa: B027
        """Have an answer read at once: a callback will be told of it."""

    def read_on(self) -> None:  # noqa: B027
        """Have the peer's outstanding answers read though no thread waits for them yet."""

    def signs_of_life(self) -> int:
        """Return a number that grows whenever anything arrives from the peer."""
        return self.signs

    def ping(self) -> None:
        """Ask the peer for a sign of life."""
        self.send(Frame(PING))

    def announced(self, frame: Frame) -> tuple[int, int] | None:
        """Return the sizes of a request's header and body if it must be announced, else None.

        UNASKED for a large one that may go unannounced: its caller puts the number into `unasked`.
        """
        return None

    def check(self) -> None:  # noqa: B027 (only some endpoints have a process to check)
        """Raise OSError if the peer is found to be gone."""

    def can_send(self) -> bool:
        """Say whether a small frame can be sent without waiting for the peer."""
        return True

    @abc.abstractmethod
    def close(self) -> None:
        """Give up the path; may be called again."""
