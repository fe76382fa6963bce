"""A roster that rank 0 serves at its meeting place, and that ends with rank 0.

Rank 0 knows everyone, and announces to all workers who came, came back or left. A worker that needs
a name that it does not know asks rank 0.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from telegrad.errors import NotInitialized, PeerError, ProtocolViolation, UsageError
from telegrad.rpc.calls.service import ServiceRequest
from telegrad.rpc.membership.card import Card
from telegrad.rpc.membership.rendezvous import Meeting, Rendezvous, join
from telegrad.rpc.membership.roster import Came, Left, RosterChange
from telegrad.rpc.transport import Identity
from telegrad.rpc.wire.conversion import converter
from telegrad.rpc.worker import Worker

_CHANGED: Final = "telegrad.changed"
_LEFT: Final = "telegrad.left"
_EVERYONE: Final = "telegrad.everyone"
_ALIVE: Final = "telegrad.alive"


_as_cards = converter(list[Card])
_as_change: Callable[[Any], RosterChange] = converter(Came | Left)  # type: ignore[arg-type]


class ServedRoster:
    """A worker's part in the roster; rank 0's part is the meeting place."""

    def __init__(self, meeting: Meeting) -> None:
        self._meeting = meeting
        self.place: Rendezvous | None = None
        """Where the workers meet; only rank 0 has it."""
        self._worker: Worker | None = None
        self._on_change: Callable[[RosterChange], object] = lambda _: None

    def choose_rank(self, name: str) -> int:
        """Raise: rank 0 keeps the meeting place, so ranks must be given."""
        raise UsageError(
            f"init_rpc needs rank=... for {name!r}: where the workers meet at rank 0's address, "
            "one of them has rank 0. Where they meet in a directory, ranks are given out"
        )

    def enter(self, worker: Worker, card: Card, timeout: float) -> list[Card]:
        """Join at the meeting place, or open it; return everyone's card, by rank."""
        self._worker = worker
        worker.register_service(_ALIVE, self._on_alive, inline=True)
        worker.register_service(_CHANGED, self._on_changed, inline=True)
        worker.register_service(_LEFT, self._on_left, inline=True)
        worker.register_service(_EVERYONE, self._on_everyone, inline=True)
        meeting = self._meeting
        identity = Identity(
            card.name, card.incarnation, meeting.key, credentials=meeting.credentials
        )
        if card.rank:
            return join(meeting.address, identity, card, timeout)
        self.place = Rendezvous(meeting.address, identity, card, self._announce, self.is_alive)
        return self.place.wait(timeout)

    def follow(self, on_change: Callable[[RosterChange], object]) -> None:
        """Call `on_change` with each change from now on."""
        self._on_change = on_change

    def refresh(self) -> None:
        """Ask rank 0 who is here."""
        if self.place is not None:
            for card in self.place.everyone():
                self._on_change(Came(card))
            return
        assert self._worker is not None, "it has entered"
        if self._worker.peers.holder_of(0) is None:
            # Rank 0 has left; the workers that met know each other.
            return
        with suppress(PeerError):
            patience = self._worker.options.lost_after
            cards, _ = self._worker.ask_service(0, _EVERYONE, timeout=patience)
            for card in _as_cards(cards):
                self._on_change(Came(card))

    def leave(self) -> None:
        """Tell rank 0 that this worker leaves; it tells the others."""
        worker = self._worker
        if worker is None or worker.closed:
            return
        if self.place is not None:
            self._tell_all(Left(worker.name, worker.info.incarnation))
        else:
            with suppress(PeerError):
                patience = worker.options.lost_after
                worker.ask_service(0, _LEFT, worker.info.incarnation, timeout=patience)

    def close(self) -> None:
        """Close the meeting place; may be called again."""
        if self.place is not None:
            self.place.close()

    # Rank 0.

    def _announce(self, came: Card) -> None:
        """Announce a worker that came late or is back, perhaps at another address."""
        # Handled here first, since this may reveal that its previous life was lost.
        self._on_change(Came(came))
        self._tell_all(Came(came))

    def _tell_all(self, change: RosterChange) -> None:
        assert self._worker is not None, "it has entered"
        about = change.name if isinstance(change, Left) else change.card.name
        for peer in self._worker.peers.all():
            if peer.info.name not in (self._worker.name, about) and peer.lost is None:
                # Another thread may shut this worker down meanwhile.
                with suppress(PeerError, NotInitialized):
                    self._worker.notify_service(peer.info, _CHANGED, change)

    def is_alive(self, member: Card) -> bool:
        """Ask a worker whether it is still the one that joined; if it is silent, it is lost."""
        assert self._worker is not None, "it has entered"
        worker, patience = self._worker, self._worker.options.lost_after
        try:
            if (joined := worker.joined) is not None:
                # All workers have come, but are not among the peers yet.
                joined.wait(patience)
            incarnation, _ = worker.ask_service(member.name, _ALIVE, timeout=patience)
        except (PeerError, NotInitialized, UsageError):
            return False
        # Another worker may have taken over the address.
        return bool(incarnation == member.incarnation)

    def _on_left(self, request: ServiceRequest) -> None:
        assert self._worker is not None, "it has entered"
        left = Left(request.frm.name, int(request.header))
        request.reply(None)
        if self.place is not None:
            self.place.forget(left.name, left.incarnation)
            # On another thread, since it calls others.
            self._worker.host.start(lambda: self._spread(left))

    def _spread(self, left: Left) -> None:
        self._on_change(left)
        self._tell_all(left)

    def _on_everyone(self, request: ServiceRequest) -> None:
        request.reply([] if self.place is None else self.place.everyone())

    # Everyone.

    def _on_alive(self, request: ServiceRequest) -> None:
        assert self._worker is not None, "it has entered"
        request.reply(self._worker.info.incarnation)

    def _on_changed(self, request: ServiceRequest) -> None:
        if request.frm.id != 0:
            # Any other worker could divert calls for a third one to any address.
            raise ProtocolViolation(
                f"{request.frm.name!r} announces who came or left; only rank 0 does"
            )
        self._on_change(_as_change(request.header))
