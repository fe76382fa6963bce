"""A roster on a board, which outlives every worker: rank 0 may leave like any other.

1. A worker posts a claim with its card, then reads what was posted before. So of two that join at
   the same time, only the later one sees the other, and must fail if they clash.
2. If another worker that still answers has its name or its rank, it withdraws its claim and fails.
   If the other does not answer, that life of it is over.
3. It posts that it has joined. All workers keep reading; a worker that leaves posts that, too.

Entries are signed with the cluster's key, and entries with another key are skipped. But if a
worker with another key is alive at the place, joining fails: otherwise it would wait for the rest
of its cluster forever. Positions on the board are the order of all events, the same for every
worker.
"""

import hmac
import logging
import secrets
import threading
import time
from collections.abc import Callable
from contextvars import Context
from typing import TypeAlias

import msgspec

from telegrad.errors import AuthenticationFailed, CallTimeout, PeerError, UsageError, WorkerLost
from telegrad.rpc.membership.board import Board
from telegrad.rpc.membership.card import OPEN, Card, world_of
from telegrad.rpc.membership.roster import Came, Left, RosterChange, WorldMismatch
from telegrad.rpc.names import UNKNOWN_ID
from telegrad.rpc.security.key_file import KeySource
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.security.tls import CredentialSource
from telegrad.rpc.transport import Identity, connect
from telegrad.rpc.worker import Worker

_log = logging.getLogger("telegrad.rpc")


class _Rank(msgspec.Struct, frozen=True, tag="rank"):
    """A worker, which has no card yet, takes a rank."""

    name: str
    rank: int
    nonce: str


class _Claim(msgspec.Struct, frozen=True, tag="claim"):
    """A worker is about to join."""

    card: Card


_Entry: TypeAlias = Came | Left | _Claim | _Rank
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Entry).decode


class BoardRoster:
    """A worker's view of a board."""

    def __init__(
        self, board: Board, key: KeySource, credentials: CredentialSource | None = None
    ) -> None:
        self._board = board
        self._key = key
        self._credentials = credentials
        self._lock = threading.RLock()
        self._position = 0
        self._strangers: dict[int, Card] = {}
        """The claimed cards of workers with another key, by incarnation; only for reports."""
        self._cards: dict[str, Card] = {}
        self._ranks: dict[int, str] = {}
        """The name that took each rank first."""
        self._me: Card | None = None
        self._claims: dict[int, Card] = {}
        """The cards of workers about to join, by incarnation."""
        self._rivals: list[Card] = []
        """The workers that were here, or about to join, before this one."""
        self._strange_rivals: list[Card] = []
        self._on_change: Callable[[RosterChange], object] | None = None
        self._stopped = threading.Event()

    def choose_rank(self, name: str) -> int:
        """Return a rank that no other worker has or had; a returning name gets its own back."""
        self.refresh()
        while True:
            known = self._cards.get(name)
            if known is not None:
                return known.rank
            taken = {rank for rank, holder in self._ranks.items() if holder != name}
            rank = next(number for number in range(UNKNOWN_ID) if number not in taken)
            self.post(_Rank(name, rank, secrets.token_hex(8)))
            self.refresh()
            if self._ranks[rank] == name:
                return rank

    def enter(self, worker: Worker, card: Card, timeout: float) -> list[Card]:
        self._me = card
        self.post(_Claim(card))
        self.refresh()
        identity = Identity(card.name, card.incarnation, self._key, credentials=self._credentials)
        patience = worker.options.lost_after
        self._check_strangers(identity, patience)
        gone: list[Card] = []
        for rival in self._rivals:
            error = _misfit(card, rival, repr(self._board))
            if error is None:
                continue
            if _answers(rival, identity, patience):
                self.post(Left(card.name, card.incarnation))
                raise error
            gone.append(rival)
        for rival in gone:
            self.post(Left(rival.name, rival.incarnation))
        self.post(Came(card))
        self.refresh()
        if card.world_size != OPEN:
            self._await_all(card, timeout)
        threading.Thread(
            target=Context().run,
            args=(self._look,),
            name=f"telegrad-roster-{card.name}",
            daemon=True,
        ).start()
        with self._lock:
            return sorted(self._cards.values(), key=lambda each: each.rank)

    def _check_strangers(self, identity: Identity, patience: float) -> None:
        """Raise if a worker with another key is alive at this place."""
        end = time.monotonic() + patience
        # The latest first, since it is the most likely to be alive.
        for stranger in reversed(self._strange_rivals):
            left = end - time.monotonic()
            if left > 0 and _is_there(stranger, identity, left):
                self.leave()
                raise AuthenticationFailed(
                    f"another job with another key uses {self._board!r}: {_named(stranger)} is "
                    f"there. Give all workers of {identity.name!r} the same key "
                    "(TELEGRAD_KEY_FILE), or let them meet elsewhere"
                )

    def _await_all(self, card: Card, timeout: float) -> None:
        end = time.monotonic() + timeout
        while len(self._cards) < card.world_size:
            if time.monotonic() > end:
                present = ", ".join(repr(name) for name in self._cards)
                named = ", ".join(_named(each) for each in self._strangers.values())
                strange = f"; with another key came {named}" if named else ""
                raise CallTimeout(
                    f"{len(self._cards)} of {card.world_size} workers came to {self._board!r} "
                    f"within {timeout:g} s: {present}{strange}. Are the others running, with this "
                    "place, world size and key?"
                )
            self._stopped.wait(self._board.pace / 5)
            self.refresh()

    def follow(self, on_change: Callable[[RosterChange], object]) -> None:
        self._on_change = on_change

    def _look(self) -> None:
        while not self._stopped.wait(self._board.pace):
            try:
                self.refresh()
            except Exception:
                # The board is gone, or this worker is leaving; workers that met know each other.
                return

    def refresh(self) -> None:
        """Read new entries, and report them."""
        with self._lock:
            if self._stopped.is_set():
                return
            for text in self._board.read(self._position):
                self._position += 1
                signature, _, entry = text.partition(" ")
                if any(
                    hmac.compare_digest(signature.encode(), _signature(key, entry).encode())
                    for key in self._key.valid()
                ):
                    self._apply(_decode(entry))
                else:
                    self._note_stranger(entry)

    def _note_stranger(self, text: str) -> None:
        """Note that a worker with another key came or left."""
        try:
            entry = _decode(text)
        except msgspec.MsgspecError:
            return
        if isinstance(entry, Left):
            self._strangers.pop(entry.incarnation, None)
        elif not isinstance(entry, _Rank) and entry.card.incarnation not in self._strangers:
            self._strangers[entry.card.incarnation] = entry.card
            if self._me is not None:
                _log.warning("with another key came %s to %r", _named(entry.card), self._board)

    def _apply(self, entry: _Entry) -> None:
        if isinstance(entry, _Rank):
            self._ranks.setdefault(entry.rank, entry.name)
            return
        if isinstance(entry, _Claim):
            if self._me is not None and entry.card.incarnation == self._me.incarnation:
                self._rivals = [*self._cards.values(), *self._claims.values()]
                self._strange_rivals = list(self._strangers.values())
            self._claims[entry.card.incarnation] = entry.card
            return
        if isinstance(entry, Left):
            self._claims.pop(entry.incarnation, None)
            known = self._cards.get(entry.name)
            if known is None or known.incarnation != entry.incarnation:
                return
            del self._cards[entry.name]
        else:
            self._claims.pop(entry.card.incarnation, None)
            self._cards[entry.card.name] = entry.card
            self._ranks.setdefault(entry.card.rank, entry.card.name)
        if self._on_change is not None:
            self._on_change(entry)

    def leave(self) -> None:
        if self._me is not None and not self._stopped.is_set():
            self.post(Left(self._me.name, self._me.incarnation))

    def close(self) -> None:
        """Stop reading; may be called again."""
        self._stopped.set()
        with self._lock:
            self._board.close()

    def post(self, entry: _Entry) -> None:
        """Sign an entry and post it."""
        text = _encode(entry).decode()
        self._board.post(f"{_signature(self._key.valid()[0], text)} {text}")


def _signature(key: ClusterKey, text: str) -> str:
    return key.derive("telegrad board entry", text.encode()).hex()


def _named(card: Card) -> str:
    return f"{card.name!r} (at {card.address})"


def _misfit(card: Card, rival: Card, place: str) -> UsageError | None:
    """Return the error if a worker can't join beside another that is alive."""
    if rival.name == card.name:
        return UsageError(
            f"there is a worker named {card.name!r} already (rank {rival.rank}, at "
            f"{rival.address}), and it lives: is this a second job that meets at {place}? One that "
            "is to be replaced must end first"
        )
    if rival.world_size != card.world_size:
        return WorldMismatch(
            f"{card.name} joins {world_of(card.world_size)}, but {rival.name!r} at {place} is of "
            f"{world_of(rival.world_size)}"
        )
    if rival.version != card.version:
        return UsageError(
            f"{card.name} runs telegrad {card.version}, but {rival.name!r} {rival.version}: "
            "install the same version for all workers"
        )
    if rival.rank == card.rank:
        return UsageError(
            f"rank {card.rank} is taken by {rival.name!r}, at {rival.address}: give {card.name!r} "
            "another one"
        )
    return None


def _answers(card: Card, identity: Identity, patience: float) -> bool:
    """Say whether this life of a worker still answers."""
    try:
        connection = connect(card.address, identity=identity, expect=card.name, timeout=patience)
    except (PeerError, UsageError):
        return False
    try:
        return connection.peer_incarnation == card.incarnation
    finally:
        connection.close()


def _is_there(stranger: Card, identity: Identity, patience: float) -> bool:
    """Say whether anything listens at the address that a worker with another key has given."""
    try:
        connect(stranger.address, identity=identity, expect=stranger.name, timeout=patience).close()
    except (WorkerLost, UsageError):
        return False
    except PeerError:
        pass  # One side refused the other, so something listens.
    return True
