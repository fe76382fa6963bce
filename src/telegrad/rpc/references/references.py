"""A worker's references: the protocol's table, its lock, and its messages.

This ties the pure table to calls: a value created by a call that was given up is deleted, and a
reference in an answer that is no longer wanted is taken back. Handles are released by finalizers,
which run at any moment on any thread: they only note the work, and the worker's timers do it. All
messages to one worker about one event are sent in one notice, as a list.
"""

import collections
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from telegrad.errors import (
    NotInitialized,
    PeerError,
    ProtocolViolation,
    UnknownWorker,
    UsageError,
    WorkerLost,
)
from telegrad.rpc.calls.call import Call
from telegrad.rpc.calls.future import Future
from telegrad.rpc.calls.service import ServiceRequest
from telegrad.rpc.endpoint import Endpoint
from telegrad.rpc.names import WorkerInfo, maker_of
from telegrad.rpc.protocol.calls import Calls
from telegrad.rpc.protocol.reference_table import (
    ABANDONED,
    DELETE,
    Held,
    ReferenceState,
    ReferenceTable,
    Send,
)
from telegrad.rpc.protocol.session import Session
from telegrad.rpc.references.rref import RRef
from telegrad.rpc.wire.frames import CARRIES, Frame

if TYPE_CHECKING:
    from telegrad.rpc.worker import Worker

_SERVICE: Final = "telegrad.references"
_CANCEL: Final = "cancel"
# The most messages about references in one notice, which bounds its size.
_MOST_AT_ONCE: Final = 1000


class References:
    """The references of one worker."""

    def __init__(self, worker: "Worker") -> None:
        self._worker = worker
        self._lock = threading.RLock()
        self._table = ReferenceTable(worker.name, Future)
        self._released: collections.deque[tuple[int, int | None]] = collections.deque()
        self._flushing = False
        self.handle_type: type[RRef] = RRef
        """The class of the handles that this worker makes."""
        worker.register_service(_SERVICE, self._on_message, inline=True)

    # Handles.

    def create(self, value: Any) -> RRef:
        """Return a reference to a value of this worker."""
        return self.handle_type.handle(self._worker, self._worker.info, self.keep(value), None)

    def keep(self, value: Any) -> int:
        """Keep a value of this worker and count one handle; return its number."""
        future: Future[Any] = Future()
        future.set_result(value)
        rref = self._worker.next_id()
        with self._lock:
            self._table.own(rref, future)
            self._table.open_handle(rref)
        return rref

    def create_for(self, rref: int, endpoint: Endpoint) -> Future[Any]:
        """Keep a place for a value that a user has asked for; return its future."""
        with self._lock:
            if endpoint.closed:
                # The user was lost, so its fork would never be dropped: do not keep the value.
                return Future()
            future: Future[Any] = self._table.create(rref, endpoint.peer.name)
        return future

    def ask_for(self, rref: int, owner: WorkerInfo) -> RRef:
        """Return the handle of a value that its owner is about to be asked to create."""
        with self._lock:
            self._table.ask(rref, owner.name)
        return self.handle_type.handle(self._worker, owner, rref, rref)

    def asked(self, rref: int, error: BaseException | None) -> None:
        """Note that the owner has created the value, or that asking failed."""
        with self._lock:
            effects = self._table.confirmed(rref, error)
        self._perform(effects)

    def reserve(self, rref: int) -> RRef:
        """Return the handle of a value that this worker is about to ask itself to create."""
        with self._lock:
            self._table.create(rref, self._worker.name)
            self._table.open_handle(rref)
        return self.handle_type.handle(self._worker, self._worker.info, rref, None)

    def release(self, rref: int, fork: int | None) -> None:
        """Note that a handle is gone. Finalizers call this, so it takes no lock."""
        self._released.append((rref, fork))
        self._worker.host.rouse(0.0)

    @property
    def needs_flush(self) -> bool:
        """Whether finalizers have noted work for `flush_soon`."""
        return bool(self._released) and not self._flushing

    def flush_soon(self) -> None:
        """Do the work that finalizers noted, on another thread, since that sends messages."""
        if self.needs_flush:
            self._flushing = True
            self._worker.host.start(self.flush)

    def flush(self) -> None:
        """Do the work that finalizers noted, on this thread."""
        self._flushing = False
        effects: list[Send] = []
        while True:
            try:
                rref, fork = self._released.popleft()
            except IndexError:
                break  # Not checked beforehand: another thread may flush at the same time.
            with self._lock:
                if fork is None:
                    self._table.close_handle(rref)
                else:
                    effects += self._table.release(fork)
        self._perform(effects)

    def value(self, rref: int) -> Future[Any]:
        """Return the future of an owned value."""
        with self._lock:
            entry = self._table.owned.get(rref)
        if entry is None:
            name = self._worker.name
            if self._worker.closed:
                raise NotInitialized(
                    f"worker {name!r} has shut down, and the value of the reference {rref:#x} went "
                    "with it: start it again with init_rpc, and make the value again"
                )
            raise WorkerLost(
                f"worker {name!r} does not know the reference {rref:#x}: its user was lost for a "
                "while, or the owner started anew; make the value again, with remote()"
            )
        future: Future[Any] = entry.value
        return future

    def values(self) -> list[Any]:
        """Return the owned values that have been computed."""
        with self._lock:
            futures = [entry.value for entry in self._table.owned.values()]
        return [each.value() for each in futures if each.done() and each.exception() is None]

    def held(self, fork: int) -> Held | None:
        """Return the entry of a fork that this worker holds, if it does."""
        return self._table.held.get(fork)

    def is_early(self, fork: int) -> bool:
        """Say whether the owner may not have created the value of a fork yet."""
        with self._lock:
            return self._table.is_early(fork)

    def counts(self) -> dict[str, int]:
        """Return how many values are owned, and how many forks are held and on their way."""
        with self._lock:
            table = self._table
            return {
                "owned": len(table.owned),
                "held": len(table.held),
                "given": len(table.given),
            }

    def sharing(self) -> dict[str, int]:
        """Return how many values others share, by how many forks, and the pending forks here."""
        with self._lock:
            shared = [len(entry.users) for entry in self._table.owned.values() if entry.users]
            held = self._table.held.values()
            pending = sum(each.state is ReferenceState.PENDING for each in held)
            return {"shared": len(shared), "forks": sum(shared), "pending": pending}

    # Sending and receiving.

    def export(self, endpoint: Endpoint, carrier: Call | Frame, reference: RRef) -> list[Any]:
        """Return the descriptor of a reference that is sent in a call or an answer."""
        if reference._worker is not self._worker:
            raise UsageError(f"{reference!r} belongs to another worker of this process")
        fork = self._worker.next_id()
        with self._lock:
            if endpoint.closed:
                # The path's forks were dropped when it closed; this one never would be.
                raise WorkerLost(
                    f"{reference!r} can't be passed on: worker {endpoint.peer.name!r} was lost"
                )
            held = None if reference._fork is None else self._table.held.get(reference._fork)
            if held is not None and held.state is ReferenceState.GONE:
                raise WorkerLost(f"{reference!r} can't be passed on: {held.why_gone}")
            if held is None and reference._rref not in self._table.owned:
                raise WorkerLost(f"{reference!r} can't be passed on: its value is gone")
            is_early = self._table.is_early(reference._fork)
            self._table.give(reference._rref, reference._fork, fork, endpoint.peer.name)
            if type(carrier) is Frame:
                carrier.flags |= CARRIES
            carrier.forks = carrier.forks or []
            carrier.forks.append(fork)
        owner = reference._owner
        return [reference._rref, fork, owner.name, owner.id, owner.incarnation, is_early]

    def acceptor(self, endpoint: Endpoint) -> Callable[[list[list[Any]]], list[RRef]]:
        """Return a function that turns the descriptors of one message on a path into references."""
        return partial(self._accept, endpoint)

    def _accept(self, endpoint: Endpoint, descriptors: list[list[Any]]) -> list[RRef]:
        for fields in descriptors:
            match fields:
                case [int(), int(), str(), int(), int(), bool()]:
                    pass
                case _:
                    # Such fields in the table would make later look-ups fail.
                    raise ProtocolViolation(
                        f"expected the fields of a reference, got {fields!r:.200}"
                    )
        parent = endpoint.peer.name
        handles: list[RRef] = []
        effects: list[Send] = []
        with self._lock:
            if endpoint.closed:
                # The sender was lost, and its forks with it: the references lead nowhere.
                raise WorkerLost(f"worker {parent!r}, which sent a reference, was lost")
            for rref, fork, name, number, incarnation, is_early in descriptors:
                if name == self._worker.name:
                    owner, held = self._worker.info, None
                    effects += self._table.came_home(rref, fork, parent, is_early)
                else:
                    owner, held = WorkerInfo(name, number, incarnation), fork
                    effects += self._table.arrived(rref, fork, name, parent, is_early)
                handles.append(self.handle_type.handle(self._worker, owner, rref, held))
        self._perform(effects)
        return handles

    # Calls that were given up.

    def gave_up(self, call: Call) -> None:
        """Have the callee drop a call whose deadline has passed, even if it has yet to arrive."""
        self._forget_opened(call.endpoint.calls)
        cancel = partial(self._cancel, call.endpoint, call.number, call.creates)
        if call.endpoint.can_send():
            cancel()
        elif call.creates:
            # This must arrive, but the call's waiting thread must not wait for it as well.
            self._worker.host.start(cancel)

    def _forget_opened(self, calls: Calls) -> None:
        """Forget the given-up calls whose references have arrived."""
        with self._lock:
            for number in list(calls.given_up):
                forks = calls.given_up.get(number, ())
                if not any(fork in self._table.given for fork in forks):
                    calls.given_up.pop(number, None)

    def _cancel(self, endpoint: Endpoint, number: int, created: int) -> None:
        if endpoint.closed:
            # The references that the call carried and created ended with the path.
            return
        self._worker.outgoing.notify_on(endpoint, _SERVICE, [_CANCEL, number])
        if created:
            # The value has been or will be created, but the program was told that it was not.
            message = (DELETE, created, created)
            self._worker.outgoing.notify_on(endpoint, _SERVICE, [message])

    def take_back(self, carrier: Call | Frame) -> None:
        """Take back the references of a call or answer that was not sent, or refused unopened."""
        self.take_back_all(carrier.forks or ())

    def take_back_all(self, forks: Sequence[int]) -> None:
        """Take back forks whose carrier did not arrive, or was refused unopened."""
        with self._lock:
            effects = [effect for fork in forks for effect in self._table.take_back(fork)]
        self._perform(effects)

    # Messages.

    def _on_message(self, request: ServiceRequest) -> None:
        match request.header:
            case [str() as kind, int() as number] if kind == _CANCEL:
                request.via.cancelled(number)
                return
        effects: list[Send] = []
        abandoned: list[tuple[int, str]] = []
        try:
            with self._lock:
                for message in request.header:
                    match message:
                        case [str() as kind, int() as rref, str() as why] if kind == ABANDONED:
                            abandoned.append((rref, why))
                        # Ignored on a closed path: its sender was lost, so the fork would stay.
                        case _ if not request.via.closed:
                            effects += self._table.handle(request.frm.name, tuple(message))
        except (ValueError, TypeError, KeyError) as error:
            raise ProtocolViolation(f"from {request.frm.name}: {error}") from error
        finally:
            # Even if a message was malformed, the messages before it have effects.
            self._perform(effects)
        for rref, why in abandoned:
            self._give_up_awaited([rref], _never_made(rref, request.frm.name, why))

    def _perform(self, effects: list[Send]) -> None:
        # Outside the lock: a value's finalizer may use references itself.
        self._table.freed.clear()
        by_worker: dict[str | int, list[Any]] = {}
        for effect in effects:
            by_worker.setdefault(effect.to, []).append(effect.message)
        for to, messages in by_worker.items():
            for start in range(0, len(messages), _MOST_AT_ONCE):
                self._tell(to, messages[start : start + _MOST_AT_ONCE])

    def _tell(self, to: str | int, messages: list[Any]) -> None:
        """Send the messages to one worker, in one notice."""
        try:
            peer = self._worker.peers.find(to)
        except UnknownWorker as error:
            if isinstance(to, int):
                with self._lock:
                    asked = self._asked_by(to)
                self._give_up_awaited(asked, error)
            return
        if peer.lost is not None:
            # The peer loses this worker, too, and then counts none of its forks.
            messages = [message for message in messages if message[0] != DELETE]
            if not messages:
                return
        if peer.info.name == self._worker.name or peer.outgoing is not None:
            self._send(peer, messages)
        else:
            # Opening a path may take a while, and this thread may be one that must not wait.
            self._worker.host.start(partial(self._send, peer, messages))

    def _send(self, peer: Session, messages: list[Any]) -> None:
        try:
            self._worker.notify_service(peer.info, _SERVICE, messages)
        except (PeerError, UsageError, OSError) as error:
            forget_frames(error)
            with self._worker.peers.lock:
                path = next((each for each in peer.connections() if not each.closed), None)
                finish = None if path is not None else self.peer_lost(peer.info, error)
            if path is not None:
                # It can't be dialled now, but has not lost this worker: keep its counts right.
                self._worker.outgoing.notify_on(path, _SERVICE, messages)
            elif finish is not None:
                finish()

    def peer_lost(self, who: WorkerInfo, error: BaseException) -> Callable[[], None]:
        """Forget a lost worker as a user, and give up its values; its paths are closed.

        The caller holds the lock of the peers, so that the worker can't be met again meanwhile,
        and calls the function returned after releasing it.
        """
        name = who.name
        with self._lock:
            effects = self._table.peer_lost(name, error)
            given_up = self._table.give_up_awaited(self._asked_by(who.id))

        def finish() -> None:
            self._perform(effects)
            for value in given_up:
                value._settle(None, error)

        return finish

    def _asked_by(self, creator: int) -> list[int]:
        return [rref for rref in self._table.owned if maker_of(rref) == creator]

    def _give_up_awaited(self, rrefs: list[int], error: BaseException) -> None:
        with self._lock:
            given_up = self._table.give_up_awaited(rrefs)
        self._perform([])
        for value in given_up:
            value._settle(None, error)

    def close(self) -> None:
        """Forget everything."""
        table = ReferenceTable(self._worker.name, Future)
        with self._lock:
            # The old table's values are freed after the lock is released; see `_perform`.
            table, self._table = self._table, table


def forget_frames(error: BaseException | None) -> None:
    """Remove the tracebacks of an error that is kept, and of its causes.

    Their frames hold handles. A table keeps the error as the reason why a fork is gone, so the
    handles would never be released.
    """
    while error is not None:
        error.__traceback__ = None
        forget_frames(error.__cause__)
        error = error.__context__


def _never_made(rref: int, creator: str, why: str) -> WorkerLost:
    return WorkerLost(
        f"the value of the reference {rref:#x} was never made: worker {creator!r}, which asked for "
        f"it, gave up ({why}); make it again, with remote()"
    )
