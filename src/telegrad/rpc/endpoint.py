"""An endpoint: one end of a path to a peer, as the worker sees it, whatever carries it.

The driver's link (a socket) and the simulation's endpoint derive from it. All state that the
protocol keeps for a path is here, and goes with it: a broken path is never resumed, so nothing that
was addressed to an old incarnation reaches a new one.
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
"""Seconds after which a notice that found no room is tried again."""

UNASKED: Final = (-1, -1)
MAY_WAIT: Final = -1
"""A large request is about to be sent unannounced, or was, and was given up: the place where it may
wait at the other side is taken until an announced request has arrived after it."""


class Anteroom(Protocol):
    """Where requests of a path wait for room; `then` is called with whether there was, in time."""

    def when_room(self, waits: tuple[int, int], then: Callable[[bool], object]) -> None:
        """Find room for a request that has arrived; `waits` is that of its frame."""

    def announced(self, header: int, body: int, then: Callable[[bool], object]) -> None:
        """Find room for a request that is to come, whose header and body have these sizes."""

    def given_up(self, header: int, body: int) -> None:
        """Note that an announced request does not come."""


class Endpoint(abc.ABC):
    """This side's state of one path; subclasses carry frames, by `send`."""

    # Without slots, an attribute took two and a half times as long: links have more than the thirty
    # attributes that Python 3.11 finds quickly.
    __slots__ = (
        *("accept", "anteroom", "calls", "closed", "limits", "liveness", "next_tick", "outbox"),
        *("peer", "received_code", "retry_at", "sent_code", "serving", "signs", "unasked"),
        *("unwanted",),
    )

    may_block = False
    """Whether sending may have to wait for the peer."""

    def __init__(self, peer: WorkerInfo, limits: Limits, now: float, lost_after: float) -> None:
        self.peer = peer
        self.limits = limits
        self.calls = Calls()
        # Notices for which there was no room, the oldest first, and when they are tried again.
        self.outbox: collections.deque[bytes] = collections.deque()
        self.retry_at = math.inf
        self.liveness = Liveness(now, lost_after)
        self.anteroom: Anteroom | None = None
        self.unasked = 0
        """The last large request that went without being announced, or MAY_WAIT."""
        self.next_tick = now + self.liveness.interval
        # How many signs of life of the peer were noted, besides incoming bytes.
        self.signs = 0
        self.closed = False
        # The requests that are being served, and those of them that the peer has given up.
        self.serving: set[int] = set()
        self.unwanted: set[int] = set()
        # What turns descriptors of references on this path into references; set by the worker.
        self.accept: Callable[[list[list[Any]]], list[Any]] | None = None
        # Functions by value: those that were sent, and whether the peer has them; those it sent.
        self.sent_code = CodeCache(SENT_CODES)
        self.received_code = CodeCache(RECEIVED_CODES)

    def cancelled(self, number: int) -> None:
        """Note that the peer has given up a request: its answer is not to be sent."""
        # First `unwanted`, then `serving`; `is_wanted`, which another thread may be running, does
        # it the other way round: so one of the two sees what the other did.
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
        """Have a notice wait for the next frame; False if it can't, and has to be sent at once."""
        return False

    # These have nothing to do where frames arrive by themselves.

    def flush(self) -> None:  # noqa: B027
        """Send what waits for the next frame, unless that is just being sent. Never waits."""

    def expect(self) -> None:  # noqa: B027
        """Have an answer read soon though nobody waits for it yet."""

    def attend(self) -> None:  # noqa: B027
        """Have an answer read at once: somebody is to be told of it without waiting."""

    def read_on(self) -> None:  # noqa: B027
        """Have the peer's outstanding answers read though no thread waits for them."""

    def spin_at_least(self, seconds: float) -> None:  # noqa: B027
        """Spin at least so long before sleeping: the answer takes longer than usual."""

    def signs_of_life(self) -> int:
        """Return a number that grows whenever anything arrives from the peer."""
        return self.signs

    def ping(self) -> None:
        """Ask the peer for a sign of life."""
        self.send(Frame(PING))

    def announced(self, frame: Frame) -> tuple[int, int] | None:
        """Return the sizes of a request's header and body if it has to be announced, else None.

        UNASKED for a large one that need not be: its number has to be put into `unasked`.
        """
        return None

    def check(self) -> None:  # noqa: B027 (nothing to be done, unless there is a process to ask)
        """Raise OSError if the peer is found to be gone."""

    def can_send(self) -> bool:
        """Say whether a small frame could be sent without waiting for the peer."""
        return True

    @abc.abstractmethod
    def close(self) -> None:
        """Give the path up; may be called again."""
