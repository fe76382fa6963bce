"""One end of a path to a peer: what the worker needs to know of it, whatever carries it.

The driver's link (a socket) and the simulation's derive from it. All state that the protocol
keeps for this path is here, and goes with it: a path that broke is never resumed, so nothing that
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
"""A large request is about to go unannounced, or did and was given up: the place where it may wait
at the other side is taken until one that was announced has come after it."""


class Anteroom(Protocol):
    """Where requests of a path wait for room; each `then` is told whether there was in time."""

    def when_room(self, waits: tuple[int, int], then: Callable[[bool], object]) -> None:
        """Find room for a request that came; `waits` is that of its frame."""

    def announced(self, header: int, body: int, then: Callable[[bool], object]) -> None:
        """Find room for a request that is to come, whose header and body have these sizes."""

    def given_up(self, header: int, body: int) -> None:
        """One that was announced does not come."""


class Endpoint(abc.ABC):
    """This side's state of one path; `send` is what carries it."""

    # Links have more than the thirty attributes up to which Python 3.11 finds those of an instance
    # at once: without slots, each look at one took two and a half times as long.
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
        # How many signs of life of the peer were noted, besides bytes that came.
        self.signs = 0
        self.closed = False
        # Requests that are being served, and those of them that the peer gave up.
        self.serving: set[int] = set()
        self.unwanted: set[int] = set()
        # What turns descriptors of references on this path into references; set by the worker.
        self.accept: Callable[[list[list[Any]]], list[Any]] | None = None
        # Functions by value: those that were sent, and whether the peer has them; those it sent.
        self.sent_code = CodeCache(SENT_CODES)
        self.received_code = CodeCache(RECEIVED_CODES)

    def cancelled(self, number: int) -> None:
        """Note that the peer has given up a request: its answer is not to be sent."""
        # First `unwanted`, then `serving`; `is_wanted`, which another thread may run meanwhile,
        # goes the other way round: so one of the two sees what the other did.
        self.unwanted.add(number)
        if number not in self.serving:
            self.unwanted.discard(number)

    def is_wanted(self, number: int) -> bool:
        """Stop serving a request; say whether the peer still wants its answer."""
        self.serving.discard(number)
        if self.unwanted and number in self.unwanted:
            self.unwanted.discard(number)
            return False
        return True

    @abc.abstractmethod
    def send(self, frame: Frame, deadline: float = math.inf) -> bool:
        """Send one frame; ConnectionError or OSError if the path is broken.

        False if it had to wait, and the deadline passed before anything of it went.
        """

    def send_with_next(self, header: bytes) -> bool:
        """Let a notice wait for the next frame; False if it can't, and is to be sent at once."""
        return False

    # Nothing to do where frames come by themselves.

    def flush(self) -> None:  # noqa: B027
        """Send what waits for the next frame, unless that goes just now. Never waits."""

    def expect(self) -> None:  # noqa: B027
        """Have an answer read soon for which nobody waits yet."""

    def attend(self) -> None:  # noqa: B027
        """Somebody has to be told of an answer without waiting for it: read it at once."""

    def read_on(self) -> None:  # noqa: B027
        """See to it that what the peer owes is read, though no thread waits for it."""

    def spin_at_least(self, seconds: float) -> None:  # noqa: B027
        """Look so long for what comes before sleeping: what is asked here takes longer."""

    def signs_of_life(self) -> int:
        """Return a number that grows whenever something of the peer comes."""
        return self.signs

    def ping(self) -> None:
        """Ask the peer for a sign of life."""
        self.send(Frame(PING))

    def announced(self, frame: Frame) -> tuple[int, int] | None:
        """Return the sizes of a request's header and body, if it is to be announced.

        UNASKED for a large one that is not: its number is to be put into `unasked`.
        """
        return None

    def check(self) -> None:  # noqa: B027 (nothing to be done, unless there is a process to ask)
        """Raise OSError if the peer turns out to be gone."""

    def can_send(self) -> bool:
        """Say whether a small frame would go out without waiting for the peer."""
        return True

    @abc.abstractmethod
    def close(self) -> None:
        """Give the path up; may be called again."""
