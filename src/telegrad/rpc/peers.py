"""Which workers there are, where they listen, and the paths that are open to them."""

import _thread
import threading
from typing import Final

import msgspec

from telegrad.errors import UnknownWorker, WorkerLost
from telegrad.rpc.endpoint import Endpoint
from telegrad.rpc.names import UNKNOWN_ID, WorkerInfo

__all__ = ["Peer", "Peers"]

# Incarnations of one worker that are remembered, so that whoever has the key can't fill the memory.
_MOST_PAST: Final = 1000


class Peer(msgspec.Struct):
    """One worker as another sees it."""

    info: WorkerInfo
    address: str
    outgoing: Endpoint | None = None
    """The path of this side's requests to it."""
    incoming: list[Endpoint] = msgspec.field(default_factory=list)
    """The paths of its requests."""
    lost: BaseException | None = None
    """Why it can't be reached at the moment, if that is known."""
    opened: int = 0
    """How many paths this side has opened to it."""
    given_up: int = 0
    """Of the paths that this incarnation of it opened, all up to this one have ended here."""
    past: dict[int, None] = msgspec.field(default_factory=dict)
    """Incarnations that others have replaced: one of them that still lives is not met again."""
    unreached: WorkerLost | None = None
    """Why dialling it last failed."""
    dialling: _thread.RLock = msgspec.field(default_factory=threading.RLock)
    """Held by the thread that dials it, so that one does at a time. Reentrant: a call that
    interrupts the thread just when it has the lock, before it says so, may dial in its place."""
    dialler: int = 0
    """That thread's id; 0 if nobody dials."""

    def endpoints(self) -> list[Endpoint]:
        """Return all open paths, the outgoing first."""
        return ([self.outgoing] if self.outgoing is not None else []) + self.incoming


class Peers:
    """The table, by name and by id. Its lock guards the table and the peers in it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        # Others only look up here; `add` enters.
        self.by_name: dict[str, Peer] = {}
        self.get = self.by_name.get
        """Return the peer of that name, if there is one."""
        self._by_id: dict[int, Peer] = {}
        self._past: dict[str, dict[int, None]] = {}
        """The lives of those that were removed."""

    def add(self, info: WorkerInfo, address: str) -> Peer:
        """Enter a worker, or what is newly known of one; of a past incarnation nothing is new."""
        with self.lock:
            peer = self.by_name.get(info.name)
            if peer is None:
                past = self._past.get(info.name, {})
                peer = Peer(info, address, past=past)
                if info.incarnation in past:
                    # Not entered: it has left, whatever it says now.
                    return peer
                self.by_name[info.name] = peer
            elif info.incarnation in peer.past:
                return peer
            else:
                self._by_id.pop(peer.info.id, None)
                if peer.info.incarnation != info.incarnation:
                    peer.given_up = 0
                    peer.past[peer.info.incarnation] = None
                    if len(peer.past) > _MOST_PAST:
                        del peer.past[next(iter(peer.past))]
                peer.info, peer.address = info, address or peer.address
            if info.id != UNKNOWN_ID:
                self._by_id[info.id] = peer
            return peer

    def remove(self, peer: Peer) -> None:
        """Drop a worker that has left; none of its lives is met again."""
        with self.lock:
            if self.by_name.get(peer.info.name) is not peer:
                return
            del self.by_name[peer.info.name]
            if self._by_id.get(peer.info.id) is peer:
                del self._by_id[peer.info.id]
            self._past[peer.info.name] = {**peer.past, peer.info.incarnation: None}

    def forget_stranger(self, peer: Peer) -> None:
        """Drop a worker that came by itself and went before it said who it is.

        Whoever has the key may come under ever new names; numbers, which a greeting has, are few.
        """
        with self.lock:
            is_stranger = peer.info.id == UNKNOWN_ID and not peer.address
            if is_stranger and not peer.endpoints() and self.by_name.get(peer.info.name) is peer:
                del self.by_name[peer.info.name]

    def holder_of(self, number: int) -> str | None:
        """Return the name of the worker that has the id, if one is known."""
        peer = self._by_id.get(number)
        return None if peer is None else peer.info.name

    def find(self, to: "str | int | WorkerInfo") -> Peer:
        """Return the peer that a name, id or WorkerInfo means."""
        if isinstance(to, WorkerInfo):
            to = to.name
        peer = self.by_name.get(to) if isinstance(to, str) else self._by_id.get(to)
        if peer is None:
            known = ", ".join(repr(name) for name in sorted(self.by_name))
            raise UnknownWorker(f"there is no worker {to!r}; the workers are {known}")
        return peer

    def all(self) -> list[Peer]:
        """Return everyone, this worker included, in the order of ids."""
        with self.lock:
            return sorted(self.by_name.values(), key=lambda peer: (peer.info.id, peer.info.name))

    def endpoints(self) -> list[Endpoint]:
        """Return every open path."""
        with self.lock:
            return [path for peer in self.by_name.values() for path in peer.endpoints()]
