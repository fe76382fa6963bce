"""Distributed reference counting: a value is freed exactly when its last user is gone.

The owner keeps, for each value, the set of its users' forks (a fork is one reference of one user)
and the number of its own handles. The steps:

1. A worker that sends a reference makes a fork for the receiver and keeps the value alive: an owner
   by entering the fork among its users at once, a user by keeping its own fork.
2. The receiver of an owner's fork is a user at once. The receiver of a user's fork sends ADD to the
   owner, which answers CONFIRM. (The owner itself, as a receiver, needs no fork.)
3. Then the receiver sends CHILD to the sender, which lets go of what it kept.
4. A user whose last handle is gone sends DELETE, but never before its own fork is confirmed and its
   children's receivers have sent CHILD.
   A user may pass on a value whose creation it has asked for but not seen confirmed; such a fork
   is early: it may reach the owner before the creation does, which then finds its place taken.
   So that nobody waits for a creation that never comes, the owner sends AWAITED to the worker that
   asked for it, and that worker answers ABANDONED if its request has failed.
5. A fork whose message never arrived is taken back: the receiving side tells the sender.
6. The forks of a lost worker are dropped, and so is what was kept for it. If two workers lose each
   other and meet again, one may notice the loss late, after the other has started a new count. So a
   fork that was given up is still deleted, when it is released or, if later, confirmed.

Every message is a notice: it arrives, or its receiver is lost. So ADD comes before DELETE. Pure
state: no I/O, no lock; a caller serialises. Events are method calls, effects are the messages they
return.
"""

import enum
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from telegrad.errors import WorkerLost
from telegrad.rpc.names import maker_of

ADD: Final = "add"
CONFIRM: Final = "confirm"
DELETE: Final = "delete"
CHILD: Final = "child"
AWAITED: Final = "awaited"
ABANDONED: Final = "abandoned"


class ReferenceState(enum.Enum):
    """What a user knows about its fork."""

    PENDING = "the owner has not confirmed it"
    CONFIRMED = "the owner counts it"
    GONE = "the owner does not know it, or is lost"


class Owned(msgspec.Struct):
    """A value, at its owner."""

    value: Any
    users: dict[int, str]
    handles: int = 0
    is_awaited: bool = False
    """Whether an early fork came before the value's creation."""


class Held(msgspec.Struct):
    """A fork, at its user."""

    rref: int
    fork: int
    owner: str
    parent: str | None
    state: ReferenceState
    is_early: bool = False
    children: int = 0
    is_released: bool = False
    is_awaited: bool = False
    """Whether the owner waits for the creation that this worker asked for."""
    why_gone: BaseException | None = None


class Given(msgspec.Struct, frozen=True):
    """A fork on its way to `child`; `by` is the sender's own fork, None at the owner."""

    rref: int
    child: str
    by: int | None


class Send(msgspec.Struct, frozen=True):
    """Send this message to a worker, reliably; it goes to an id where no name is known."""

    to: str | int
    message: tuple[Any, ...]


class ReferenceTable:
    """One worker's part of the counting."""

    def __init__(self, me: str, new_value: Callable[[], Any] = object) -> None:
        """`new_value` makes the place of a value that is still to be created."""
        self._me = me
        self._new_value = new_value
        self.owned: dict[int, Owned] = {}
        self.held: dict[int, Held] = {}
        self.given: dict[int, Given] = {}
        self.freed: list[Owned | Held] = []
        """Entries no longer owned or held; the caller drops them, which may run users' code."""

    # The owner.

    def own(self, rref: int, value: Any) -> Owned:
        """Keep a value."""
        entry = self.owned[rref] = Owned(value, {})
        return entry

    def create(self, rref: int, user: str) -> Any:
        """Keep a place for a value that a user asked for, and return it; an early fork may have.

        The user's fork has the number of the reference.
        """
        entry = self.owned.get(rref) or self.own(rref, self._new_value())
        entry.is_awaited = False
        if user != self._me:
            entry.users[rref] = user
        return entry.value

    def _find(self, rref: int, is_early: bool) -> tuple[Owned | None, list[Send]]:
        entry = self.owned.get(rref)
        if entry is not None or not is_early:
            return entry, []
        entry = self.own(rref, self._new_value())
        entry.is_awaited = True
        return entry, [Send(maker_of(rref), (AWAITED, rref))]

    def give_up_awaited(self, rrefs: Iterable[int]) -> list[Any]:
        """Give up values that nobody is going to create any more; return them."""
        given_up = []
        for rref in rrefs:
            entry = self.owned.get(rref)
            if entry is not None and entry.is_awaited:
                entry.is_awaited = False
                given_up.append(entry.value)
                self._free_if_unused(rref)
        return given_up

    def open_handle(self, rref: int) -> None:
        """Note that the owner itself has one more handle."""
        self.owned[rref].handles += 1

    def close_handle(self, rref: int) -> None:
        """Note that the owner itself has one handle less."""
        entry = self.owned.get(rref)
        if entry is not None:
            entry.handles -= 1
            self._free_if_unused(rref)

    def _drop_user(self, rref: int, fork: int) -> None:
        # The value may be gone: a DELETE may overtake the CHILD of the same fork.
        entry = self.owned.get(rref)
        if entry is not None:
            entry.users.pop(fork, None)
            self._free_if_unused(rref)

    def _free_if_unused(self, rref: int) -> None:
        entry = self.owned.get(rref)
        # A thread may wait for an awaited value, which is later filled or given up.
        if entry is not None and not (entry.users or entry.handles > 0 or entry.is_awaited):
            self.freed.append(self.owned.pop(rref))

    # A user.

    def ask(self, rref: int, owner: str) -> None:
        """Note that the owner will be asked for a value: its first fork has the same number."""
        self.held[rref] = Held(rref, rref, owner, None, ReferenceState.PENDING, is_early=True)

    def is_early(self, fork: int | None) -> bool:
        """Say whether the value of a fork may not have been created yet."""
        entry = None if fork is None else self.held.get(fork)
        return entry is not None and entry.is_early and entry.state is ReferenceState.PENDING

    def confirmed(self, fork: int, error: BaseException | None) -> list[Send]:
        """Note that the owner counts the fork or, given an error, that the fork is gone."""
        entry = self.held.get(fork)
        if entry is None or entry.state is not ReferenceState.PENDING:
            return []
        entry.state = ReferenceState.CONFIRMED if error is None else ReferenceState.GONE
        entry.why_gone = error
        effects = []
        if entry.parent is not None:
            effects.append(Send(entry.parent, (CHILD, fork)))
        if entry.is_awaited and error is not None:
            effects.append(_abandoned(entry.owner, entry.rref, error))
        return effects + self._delete_if_due(entry)

    def release(self, fork: int) -> list[Send]:
        """Note that the last handle of the fork is gone."""
        entry = self.held.get(fork)
        if entry is None:
            return []
        entry.is_released = True
        return self._delete_if_due(entry)

    def _delete_if_due(self, entry: Held) -> list[Send]:
        if not entry.is_released or entry.children or entry.state is ReferenceState.PENDING:
            return []
        # Freed by the caller: the error of a lost entry may hold anything by its traceback.
        self.freed.append(self.held.pop(entry.fork))
        # Sent even for a fork that is gone; see step 6.
        return [Send(entry.owner, (DELETE, entry.rref, entry.fork))]

    # Travelling.

    def give(self, rref: int, by: int | None, fork: int, child: str) -> None:
        """Give a reference to `child`, from the owner or, if `by` is given, from that fork."""
        self.given[fork] = Given(rref, child, by)
        if by is not None:
            self.held[by].children += 1
        else:
            self.owned[rref].users[fork] = child

    def take_back(self, fork: int) -> list[Send]:
        """Note that the message that carried the fork never arrived."""
        given = self.given.get(fork)
        if given is not None and given.by is None:
            self._drop_user(given.rref, fork)
        return self._let_go(fork)

    def _let_go(self, fork: int) -> list[Send]:
        given = self.given.pop(fork, None)
        if given is None or given.by is None:
            return []
        entry = self.held.get(given.by)
        if entry is None:
            return []
        entry.children -= 1
        return self._delete_if_due(entry)

    def arrived(
        self, rref: int, fork: int, owner: str, parent: str, is_early: bool = False
    ) -> list[Send]:
        """Take a fork from `parent`, for this worker, which does not own the value."""
        if parent == owner:
            self.held[fork] = Held(rref, fork, owner, None, ReferenceState.CONFIRMED)
            return [Send(parent, (CHILD, fork))]
        self.held[fork] = Held(rref, fork, owner, parent, ReferenceState.PENDING, is_early)
        return [Send(owner, (ADD, rref, fork, is_early))]

    def came_home(self, rref: int, fork: int, parent: str, is_early: bool = False) -> list[Send]:
        """Take a fork from `parent` for this worker, which owns the value: one more handle."""
        entry, asked = self._find(rref, is_early)
        if entry is not None:
            entry.handles += 1
        return [Send(parent, (CHILD, fork)), *asked]

    def handle(self, frm: str, message: tuple[Any, ...]) -> list[Send]:
        """Take another worker's message."""
        match message:
            case (str() as kind, int() as rref, int() as fork, bool() as is_early) if kind == ADD:
                entry, asked = self._find(rref, is_early)
                if entry is not None:
                    entry.users[fork] = frm
                return [Send(frm, (CONFIRM, rref, fork, entry is not None)), *asked]
            case (str() as kind, int() as rref, int() as fork, bool() as is_known) if (
                kind == CONFIRM
            ):
                if is_known and fork not in self.held:
                    # The fork was given up when its owner was lost, but the ADD had arrived.
                    return [Send(frm, (DELETE, rref, fork))]
                return self.confirmed(fork, None if is_known else _gone())
            case (str() as kind, int() as rref, int() as fork) if kind == DELETE:
                self._drop_user(rref, fork)
                return []
            case (str() as kind, int() as fork) if kind == CHILD:
                return self._child_is_in(fork)
            case (str() as kind, int() as rref) if kind == AWAITED:
                return self._is_awaited(frm, rref)
        raise ValueError(f"expected a message about references, got {message!r}")

    def _child_is_in(self, fork: int) -> list[Send]:
        given = self.given.get(fork)
        if given is not None and given.by is None and given.child == self._me:
            self._drop_user(given.rref, fork)
        return self._let_go(fork)

    def _is_awaited(self, owner: str, rref: int) -> list[Send]:
        held = self.held.get(rref)
        if held is None or held.state is ReferenceState.GONE:
            return [_abandoned(owner, rref, None if held is None else held.why_gone)]
        held.is_awaited = True
        return []

    def peer_lost(self, name: str, error: BaseException) -> list[Send]:
        """Note that a worker is gone, with its forks, what was kept for it, and what it owned."""
        effects: list[Send] = []
        for fork, given in list(self.given.items()):
            if given.child == name:
                effects += self.take_back(fork)
        for rref, owned in list(self.owned.items()):
            owned.users = {fork: user for fork, user in owned.users.items() if user != name}
            self._free_if_unused(rref)
        for fork, held in list(self.held.items()):
            if held.owner == name:
                if held.state is ReferenceState.PENDING:
                    # A creation's own call tells whether it failed: it may use another path.
                    if fork != held.rref:
                        effects += self.confirmed(fork, error)
                else:
                    held.state, held.why_gone = ReferenceState.GONE, error
                    effects += self._delete_if_due(held)
            elif held.parent == name:
                held.parent = None
        return [effect for effect in effects if effect.to != name]


def _abandoned(owner: str, rref: int, why: BaseException | None) -> Send:
    return Send(owner, (ABANDONED, rref, "nobody there wants it" if why is None else str(why)))


def _gone() -> WorkerLost:
    return WorkerLost("its owner does not know the reference any more")
