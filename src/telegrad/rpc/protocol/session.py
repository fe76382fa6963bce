"""What one worker knows of another: its session, in one object without I/O.

A session has two connections at most: `outgoing`, which this side opened for its requests, and
`incoming`, which the peer opened for its own. The law:

1. They are of one incarnation of the peer, that of `info`. One in whose place another has come is
   never met again.
2. When one of them ends, the peer is lost, as far as this side can tell: both end, and with them
   the generation, that is all that was counted on them (calls, references, what layers above keep).
3. But one that the peer has opened and not greeted on stays, since nothing was counted on it yet:
   if the peer opened it after it had given up the other, it begins the next generation, and if it
   was before, its end is about to come, too.
4. A peer that opens another connection has given up the old ones, or died: these end first.
5. Each side counts the connections that it opens, and says in its greeting which of the other's it
   has given up. So one is lost whose end is seen late, or never.

Events are method calls, effects what they return; `TRANSITIONS` is all that lies between. A caller
with several threads makes the calls, and begins the effects, under one lock. A session has no part
in the hot path (a request, its answer), which is the connection's own.
"""

import enum
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from telegrad.errors import InternalError
from telegrad.rpc.names import UNKNOWN_ID, WorkerInfo

if TYPE_CHECKING:
    from telegrad.rpc.endpoint import Endpoint

# Incarnations of one worker that are remembered: with the key one could come under ever new ones.
_MOST_PAST: Final = 1000


class Phase(enum.Enum):
    """How a peer stands to this worker."""

    UNKNOWN = "it has never been met"
    DIALLING = "it is being dialled, and has never been met"
    OPEN = "a connection is current; the other may be about to be opened"
    LOST = "none is since the last has ended; it may be dialled again"


class Event(enum.Enum):
    """What happens to a session, once it is clear what that means for it."""

    DIAL = "a thread begins to dial"
    GIVE_UP = "dialling came to nothing"
    MEET = "a connection has opened, and what is current stays"
    REPLACE = "a connection has opened in place of what is current, which ends"
    REFUSE = "a connection has opened of an incarnation that is past: it is closed"
    RENEW = "another incarnation was heard of: what is current ends"
    BREAK = "a current connection has ended, and with it all that is current"
    OUTLIVE = "a current connection has ended, but one that is not greeted yet stays"
    STRAY = "a connection has ended that is not current"
    LEAVE = "the peer has left, or this worker leaves: what is current ends"


def _rows() -> dict[Event, dict[Phase, Phase | None]]:
    unknown, dialling, opened, lost = Phase
    never = None
    # fmt: off
    table = {
        #                 unknown   dialling  open    lost
        Event.DIAL:      (dialling, never,    opened, lost),
        Event.GIVE_UP:   (never,    unknown,  opened, lost),
        Event.MEET:      (opened,   opened,   opened, opened),
        Event.REPLACE:   (never,    never,    opened, never),
        Event.REFUSE:    (unknown,  dialling, opened, lost),
        Event.RENEW:     (never,    never,    lost,   never),
        Event.BREAK:     (never,    never,    lost,   never),
        Event.OUTLIVE:   (never,    never,    opened, never),
        Event.STRAY:     (unknown,  dialling, opened, lost),
        Event.LEAVE:     (lost,     lost,     lost,   lost),
    }
    # fmt: on
    return {event: dict(zip(Phase, row, strict=True)) for event, row in table.items()}


TRANSITIONS: Final = _rows()
"""The phase that follows, by event and phase; None where an event can't come."""


class Greet(msgspec.Struct, frozen=True):
    """Say on a connection that was dialled which one it is, and which of the peer's have ended."""

    place: int
    given_up: int


class Close(msgspec.Struct, frozen=True):
    """End a connection that is not current, and settle what is open on it."""

    ended: "tuple[Endpoint, ...]"
    cause: BaseException


class Lost(msgspec.Struct, frozen=True):
    """A generation is over: end its connections, as by `Close`, and tell of it."""

    ended: "tuple[Endpoint, ...]"
    cause: BaseException
    who: WorkerInfo
    generation: int


Effect = Greet | Close | Lost


class Session:
    """One worker as another sees it."""

    def __init__(
        self, info: WorkerInfo, address: str = "", past: dict[int, None] | None = None
    ) -> None:
        self.info = info
        self.address = address
        self.phase = Phase.UNKNOWN
        self.generation = 0
        """How often the peer has been lost."""
        self.outgoing: Endpoint | None = None
        """The connection of this side's requests to it."""
        self.incoming: Endpoint | None = None
        """The connection of its requests."""
        self.attempt: object = None
        """Who is dialling it, if anybody is; one does at a time."""
        self.lost: BaseException | None = None
        """Why it can't be reached at the moment, if it was lost."""
        self.last_words: str | None = None
        """What this incarnation said before it ended."""
        self.reason: str | None = None
        """Why this incarnation has ended, if it has and that is known."""
        self.past: dict[int, None] = past if past is not None else {}
        """Incarnations that others have replaced."""
        self.opened = 0
        """How many connections this side has opened to it; the last of them is `outgoing`."""
        self.given_up = 0
        """Of the connections that this incarnation opened, all up to this one have ended here."""
        self.place = 0
        """Which one `incoming` is of those; 0 until the peer has greeted on it."""
        self._lost_life = 0

    def connections(self) -> "list[Endpoint]":
        """Return those that are current, the outgoing first."""
        return [each for each in (self.outgoing, self.incoming) if each is not None]

    def is_past(self, incarnation: int) -> bool:
        """Say whether another has come in the place of that incarnation."""
        return incarnation in self.past

    @property
    def greeted_path(self) -> "Endpoint | None":
        """The connection on which the peer has said who it is, and where it may be asked, too."""
        return self.incoming if self.place else None

    @property
    def is_gone(self) -> bool:
        """Whether the incarnation that is known now was lost, not one before it."""
        return self.lost is not None and self._lost_life == self.info.incarnation

    @property
    def is_stranger(self) -> bool:
        """Whether it came by itself and went before it said who it is."""
        return self.info.id == UNKNOWN_ID and not self.address and not self.connections()

    # Events.

    def dials(self, attempt: object) -> bool:
        """Begin to dial, unless somebody else does; tell whether it may."""
        if self.attempt is not None or self.outgoing is not None:
            return False
        self.step(Event.DIAL)
        self.attempt = attempt
        return True

    def stops_dialling(self, attempt: object) -> None:
        """Note that an attempt has ended, whatever came of it."""
        if self.attempt is attempt:
            self.attempt = None
            if self.outgoing is None:
                self.step(Event.GIVE_UP)

    def dialled(self, incarnation: int) -> Greet | None:
        """Take a peer that has proved who it is; return how to greet it, None to refuse it."""
        if self.is_past(incarnation):
            self.step(Event.REFUSE)
            return None
        self.opened += 1
        return Greet(self.opened, self.given_up if incarnation == self.info.incarnation else 0)

    def greets(self, connection: "Endpoint") -> list[Effect]:
        """Note that it has been greeted on a connection that was dialled."""
        return self._meet(connection, "outgoing")

    def accepted(self, connection: "Endpoint") -> list[Effect]:
        """Note that the peer has opened a connection for its requests."""
        return self._meet(connection, "incoming")

    def _meet(self, connection: "Endpoint", way: Literal["outgoing", "incoming"]) -> list[Effect]:
        incarnation = connection.peer.incarnation
        if self.is_past(incarnation):
            self.step(Event.REFUSE)
            return [Close((connection,), ConnectionError("another has come in its place"))]
        effects: list[Effect] = []
        is_another = incarnation != self.info.incarnation
        if getattr(self, way) is not None or (is_another and self.connections()):
            self.step(Event.REPLACE)
            effects = self._lose(ConnectionError("it opened a new connection"))
        else:
            self.step(Event.MEET)
        self._know(connection.peer, "")
        self.lost = self.reason = None
        setattr(self, way, connection)
        return effects

    def greeted(
        self, connection: "Endpoint", address: str, place: int, given_up: int
    ) -> list[Effect]:
        """Take what the peer says on a connection: who it is, which of this side's have ended."""
        if self.incoming is not connection:
            # Another came since: this one has ended, or is about to.
            return self.broken(connection, ConnectionError("another has come in its place"))
        self._know(connection.peer, address)
        effects: list[Effect] = []
        if not self.place and self.outgoing is not None and self.opened <= given_up:
            effects = self.broken(self.outgoing, ConnectionError("it opened a new connection"))
        self.place = place
        return effects

    def named(self, info: WorkerInfo, address: str) -> list[Effect]:
        """Take who the peer is now, and where it listens."""
        effects: list[Effect] = []
        is_another = info.incarnation not in (self.info.incarnation, *self.past)
        if is_another and self.connections():
            self.step(Event.RENEW)
            effects = self._lose(ConnectionError("it has started anew"))
        self._know(info, address)
        return effects

    def broken(self, connection: "Endpoint", cause: BaseException) -> list[Effect]:
        """Note that a connection has ended, or can't be used any more."""
        if connection is not self.outgoing and connection is not self.incoming:
            self.step(Event.STRAY)
            return [Close((connection,), cause)]
        outlives = connection is self.outgoing and self.incoming is not None and not self.place
        self.step(Event.OUTLIVE if outlives else Event.BREAK)
        return self._lose(cause, self.incoming if outlives else None)

    def left(self, cause: BaseException) -> list[Effect]:
        """Note that the peer has left, or this worker leaves: this incarnation is not met again."""
        self.step(Event.LEAVE)
        effects = self._lose(cause) if self.connections() else []
        self.past[self.info.incarnation] = None
        return effects

    # What they do.

    def step(self, event: Event) -> None:
        """Change the phase as the table says."""
        follows = TRANSITIONS[event][self.phase]
        if follows is None:
            raise InternalError(f"{event} can't come for {self.info.name!r} in {self.phase}")
        self.phase = follows

    def _lose(self, cause: BaseException, stays: "Endpoint | None" = None) -> list[Effect]:
        ended = tuple(each for each in self.connections() if each is not stays)
        lost = Lost(ended, cause, self.info, self.generation)
        self.generation += 1
        if stays is None:
            self.given_up = max(self.given_up, self.place)
            self.place = 0
            self.lost, self._lost_life = cause, self.info.incarnation
        self.outgoing, self.incoming = None, stays
        return [lost]

    def _know(self, info: WorkerInfo, address: str) -> None:
        """Take what is newly known; of an incarnation that is past nothing is new."""
        if self.is_past(info.incarnation):
            return
        if info.incarnation != self.info.incarnation:
            self.past[self.info.incarnation] = None
            while len(self.past) > _MOST_PAST:
                del self.past[next(iter(self.past))]
            self.given_up = 0
            self.last_words = self.reason = None
        if info.id == UNKNOWN_ID:
            info = WorkerInfo(info.name, self.info.id, info.incarnation)
        self.info = info
        self.address = address or self.address
