"""What one worker knows about another: its session, one object without I/O.

A session has two connections at most: `outgoing`, which this side opened for its requests, and
`incoming`, which the peer opened for its own. The law:

1. Both are of one incarnation of the peer, that of `info`. An incarnation that another has replaced
   is never met again.
2. When one of them ends, the peer is lost, as far as this side can tell: both end, and with them
   the generation, that is all that was counted on them (calls, references, higher layers' state).
3. But an incoming connection on which the peer has not greeted yet stays, since nothing was counted
   on it: if the peer opened it after giving up the other, it begins the next generation; if before,
   its own end is about to come.
4. A peer that opens another connection has given up the old ones, or died: these end first.
5. Each side counts the connections that it opens, and says in its greeting which of the other's it
   has given up. So a connection is lost even if its end is seen late, or never.

Events are method calls and effects their return values; `TRANSITIONS` lists all changes of phase. A
caller with several threads makes the calls, and begins the effects, under one lock. Requests and
answers, the hot path, use their connection alone and no session.
"""

import enum
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from telegrad.errors import InternalError
from telegrad.rpc.names import UNKNOWN_ID, WorkerInfo

if TYPE_CHECKING:
    from telegrad.rpc.endpoint import Endpoint

# The most past incarnations kept: a holder of the key can come under ever new ones.
_MOST_PAST: Final = 1000


class Phase(enum.Enum):
    """How this worker stands to a peer."""

    UNKNOWN = "it has never been met"
    DIALLING = "it is being dialled, and has never been met"
    OPEN = "a connection is current; the other may be about to be opened"
    LOST = "no connection is current since the last has ended; it may be dialled again"


class Event(enum.Enum):
    """What happens to a session, named by its consequence."""

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
"""The phase that follows, by event and phase; None where the event is impossible."""


class Greet(msgspec.Struct, frozen=True):
    """Tell the peer the number of a dialled connection, and which of its own have ended."""

    place: int
    given_up: int


class Close(msgspec.Struct, frozen=True):
    """End a connection that is not current, and settle its open calls."""

    ended: "tuple[Endpoint, ...]"
    cause: BaseException


class Lost(msgspec.Struct, frozen=True):
    """A generation is over: end its connections, as `Close` does, and report the loss."""

    ended: "tuple[Endpoint, ...]"
    cause: BaseException
    who: WorkerInfo
    generation: int


Effect = Greet | Close | Lost


class Session:
    """One worker, as another sees it."""

    def __init__(
        self, info: WorkerInfo, address: str = "", past: dict[int, None] | None = None
    ) -> None:
        self.info = info
        self.address = address
        self.phase = Phase.UNKNOWN
        self.generation = 0
        """How often the peer has been lost."""
        self.outgoing: Endpoint | None = None
        """The connection for this side's requests."""
        self.incoming: Endpoint | None = None
        """The connection for the peer's requests."""
        self.attempt: object = None
        """The attempt to dial it that is under way, if any; there is one at a time."""
        self.lost: BaseException | None = None
        """Why it can't be reached at the moment, if it was lost."""
        self.last_words: str | None = None
        """What this incarnation said before it ended."""
        self.reason: str | None = None
        """Why this incarnation has ended, if it has and that is known."""
        self.past: dict[int, None] = past if past is not None else {}
        """Incarnations that have been replaced or have left."""
        self.opened = 0
        """How many connections this side has opened to it; the last of them is `outgoing`."""
        self.given_up = 0
        """The connections that the peer opened, up to this number, have ended here."""
        self.place = 0
        """The number of `incoming` among them; 0 until the peer has greeted on it."""
        self._lost_life = 0

    def connections(self) -> "list[Endpoint]":
        """Return the current connections, the outgoing first."""
        return [each for each in (self.outgoing, self.incoming) if each is not None]

    def is_past(self, incarnation: int) -> bool:
        """Say whether that incarnation has been replaced or has left."""
        return incarnation in self.past

    @property
    def greeted_path(self) -> "Endpoint | None":
        """The connection on which the peer has greeted; requests to it may use this one, too."""
        return self.incoming if self.place else None

    @property
    def is_gone(self) -> bool:
        """Whether the present incarnation was lost, rather than an earlier one."""
        return self.lost is not None and self._lost_life == self.info.incarnation

    @property
    def is_stranger(self) -> bool:
        """Whether the peer connected by itself and ended before it greeted."""
        return self.info.id == UNKNOWN_ID and not self.address and not self.connections()

    # Events.

    def dials(self, attempt: object) -> bool:
        """Begin to dial; return False if another thread does, or a path is there."""
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
        """Take a dialled peer's proved incarnation; return the greeting, None to refuse."""
        if self.is_past(incarnation):
            self.step(Event.REFUSE)
            return None
        self.opened += 1
        return Greet(self.opened, self.given_up if incarnation == self.info.incarnation else 0)

    def greets(self, connection: "Endpoint") -> list[Effect]:
        """Note that this side has greeted the peer on a connection that it dialled."""
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
        """Take the peer's greeting: who it is, and which of this side's connections it gave up."""
        if self.incoming is not connection:
            # Another connection came since: this one has ended, or is about to.
            return self.broken(connection, ConnectionError("another has come in its place"))
        self._know(connection.peer, address)
        effects: list[Effect] = []
        if not self.place and self.outgoing is not None and self.opened <= given_up:
            effects = self.broken(self.outgoing, ConnectionError("it opened a new connection"))
        self.place = place
        return effects

    def named(self, info: WorkerInfo, address: str) -> list[Effect]:
        """Take the peer's present identity and address, as the roster or a program gives them."""
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

    # The events' parts.

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
        """Take news of the peer, unless it is of a past incarnation."""
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
