"""A worker: an object that calls other workers and is called by them.

It joins the codec, the protocol's state and the host that runs it (host.py); a process may have
several. Its calling half is in calls/outgoing.py, its serving half in calls/incoming.py; its life
and its peers are here. All methods may run on any thread.

Invariant: each call that was opened is settled exactly once, by its answer, its deadline, the loss
of its worker, or shutdown.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from telegrad.errors import (
    NotInitialized,
    ProtocolViolation,
    UnknownWorker,
    UsageError,
    WorkerLost,
)
from telegrad.rpc.calls.call import Call
from telegrad.rpc.calls.future import Future
from telegrad.rpc.calls.incoming import Incoming
from telegrad.rpc.calls.interceptor import Interceptor
from telegrad.rpc.calls.observer import Observer
from telegrad.rpc.calls.outgoing import Outgoing
from telegrad.rpc.calls.service import Service, ServiceRequest
from telegrad.rpc.debugger.rest import Rest
from telegrad.rpc.endpoint import Endpoint
from telegrad.rpc.host import Host
from telegrad.rpc.ids import id_source
from telegrad.rpc.loopback import Loopback
from telegrad.rpc.losses import Losses
from telegrad.rpc.names import UNKNOWN_ID, WorkerInfo
from telegrad.rpc.options import Options
from telegrad.rpc.outgoing_paths import OutgoingPaths
from telegrad.rpc.peers import Peers
from telegrad.rpc.protocol.budget import Budget
from telegrad.rpc.protocol.session import Close, Effect, Lost, Session
from telegrad.rpc.references.references import References, forget_frames
from telegrad.rpc.references.rref import RRef
from telegrad.rpc.security.refusals import Refusals
from telegrad.rpc.timers import Timers
from telegrad.rpc.wire.codec import Codec
from telegrad.rpc.wire.frames import BYE, Frame

_decode_hello = msgspec.msgpack.Decoder(tuple[int, str, int, int]).decode

# How often to try a path that another thread may be about to release; a try takes 0.5 ms.
_GOODBYES: Final = 20


class Worker:
    """One worker, made by ``init_rpc`` or ``LocalCluster``; `name` and `id` are the cluster's.

    Arguments:
        info: Its name and id in the cluster.
        host: What it runs on, sockets and threads or a simulation.
        options: Its options.

    Examples:
        >>> rpc.current_worker().rpc_sync("ps", abs, (-2,))
        2
    """

    def __init__(self, info: WorkerInfo, host: Host, options: Options | None = None) -> None:
        if not 0 <= info.id < UNKNOWN_ID:
            raise UsageError(f"expected a worker id from 0 to {UNKNOWN_ID - 1}, got {info.id}")
        self.info = info
        self.name = info.name
        self.id = info.id
        self.options = options or Options()
        self.host = host
        self.peers = Peers()
        self.codec = Codec(strict=self.options.strict)
        self.budget = Budget(
            self.options.in_flight_bytes, self.options.in_flight_bytes_of_peer, threading.RLock()
        )
        self.interceptor: Interceptor | None = None
        self.attached: dict[str, Any] = {}
        """What layers above keep for this worker, by name."""
        self.observer: Observer | None = None
        self.outgoing = Outgoing(self)
        self.incoming = Incoming(self)
        self.receive = self.incoming.receive
        self.references = References(self)
        self.losses = Losses(self)
        self.refusals = Refusals(self.name)
        self.closed = False
        self.is_copy = False
        """Whether this is a copy in a forked process; see forked_process.py."""
        self.joined: Future[None] | None = None
        """Pending while this worker does not know all others, though they may already call it."""
        self.look_again: Callable[[], object] | None = None
        """Refreshes the roster, in worlds where workers may come unannounced."""
        self.next_id = id_source(info, secret=self.options.strict)
        """Return a new 64-bit id; see ids.py."""
        self._gone_callbacks: list[
            Callable[[WorkerInfo, BaseException], Callable[[], object] | None]
        ] = []
        self._close_callbacks: list[Callable[[], object]] = []
        self.rest = Rest(self)
        timers = Timers(self)
        self.next_timer = timers.next_timer
        """Return when `run_timers` has something to do."""
        self.run_timers = timers.run_timers
        """Fail late calls, send late notices, check on peers; given the time."""
        self.path_to = OutgoingPaths(self).path_to
        """Return the path for requests to a peer, opening it if need be; given the deadline."""
        self.loopback = Loopback(self)
        self.loopback.accept = self.references.acceptor(self.loopback)
        self.address = host.begin(self)
        self.add_peer(info, self.address)

    def __repr__(self) -> str:
        return f"<Worker {self.name!r} id={self.id} at {self.address}>"

    # Calling.

    def rpc_sync(
        self,
        to: str | int | WorkerInfo,
        func: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Run `func(*args, **kwargs)` on `to` and return its result; see ``rpc.rpc_sync``."""
        return self.outgoing.call(to, func, args, kwargs, timeout, waits=True).wait()

    def rpc_async(
        self,
        to: str | int | WorkerInfo,
        func: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Call:
        """Start `func(*args, **kwargs)` on `to` and return a future; see ``rpc.rpc_async``."""
        return self.outgoing.call(to, func, args, kwargs, timeout, waits=False)

    def remote(
        self,
        to: str | int | WorkerInfo,
        func: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> RRef:
        """Run `func(*args, **kwargs)` on `to` and return a reference; see ``rpc.remote``."""
        return self.outgoing.create(to, func, args, kwargs, timeout)

    def make_rref(self, value: Any) -> RRef:
        """Return a reference to a value of this worker."""
        return self.references.create(value)

    # The seam for layers above.

    def install(self, interceptor: Interceptor) -> None:
        """Let the interceptor see what calls carry, out and in; there is one at most."""
        if self.interceptor is not None:
            raise UsageError(f"worker {self.name!r} has an interceptor already")
        self.interceptor = interceptor

    def register_service(
        self, name: str, handler: Callable[[ServiceRequest], object], *, inline: bool = False
    ) -> None:
        """Serve messages of a protocol; an `inline` handler must not wait for anything."""
        self.incoming.register(Service(name, handler, inline))

    def send_service(self, to: str | int | WorkerInfo, name: str, header: Any = None) -> Call:
        """Send a message; the call's value is the answer, (header, arrays)."""
        deadline = self.outgoing.deadline(None)
        return self.outgoing.service(to, name, header, (), deadline, waits=False)

    def ask_service(
        self,
        to: str | int | WorkerInfo,
        name: str,
        header: Any = None,
        *,
        timeout: float | None = None,
    ) -> Any:
        """Send a message and wait for the answer, (header, arrays)."""
        deadline = self.outgoing.deadline(timeout)
        return self.outgoing.service(to, name, header, (), deadline, waits=True).wait()

    def notify_service(self, to: str | int | WorkerInfo, name: str, header: Any = None) -> None:
        """Send a message without an answer; it arrives, or its peer is lost."""
        self.outgoing.notify(self.find(to), name, header)

    def on_worker_lost(
        self, callback: Callable[[WorkerInfo, BaseException], Callable[[], object] | None]
    ) -> None:
        """Call `callback(who, why)` when a worker was lost or has left.

        The callback runs in the same step as the loss, under the lock of the peers: it notes what
        is lost with the worker, without waiting, and may return a function that does the rest right
        afterwards. State of a new connection is created later, so it is not lost with the old one.
        """
        self._gone_callbacks.append(callback)

    def on_close(self, callback: Callable[[], object]) -> None:
        """Call `callback()` when this worker has left, to free what it used."""
        self._close_callbacks.append(callback)

    # Peers.

    def find(self, to: str | int | WorkerInfo) -> Session:
        """Return the session of a worker by name, id or WorkerInfo; raise if this one is closed."""
        if self.closed:
            raise NotInitialized(
                f"worker {self.name!r} has shut down: start it again with init_rpc"
            )
        # The usual case first: a name. Ids and WorkerInfos are not keys of this table.
        return self.peers.by_name.get(to) or self._find_again(to)  # type: ignore[arg-type]

    def _find_again(self, to: str | int | WorkerInfo) -> Session:
        try:
            return self.peers.find(to)
        except UnknownWorker:
            # Look again only for names: ids come from messages, whose readers must not wait.
            if self.look_again is None or not isinstance(to, str):
                raise
        # The worker may have just joined.
        self.look_again()
        return self.peers.find(to)

    # Events of sessions: a session decides what to do; the methods below do it.

    def add_peer(self, info: WorkerInfo, address: str) -> None:
        """Make a worker known; if it is a new incarnation, the old one is lost.

        Late news of an incarnation that another has replaced changes nothing.
        """
        with self.peers.lock:
            session = self.peers.enter(info)
            finish = self._begin(session, session.named(info, address))
        finish()
        if not self.options.listen:
            # Nobody can dial this worker, so it has to open a standing path to the new one.
            self.host.rouse(self.host.now())

    def drop_peer(self, session: Session, cause: BaseException) -> None:
        """Forget a worker, and end its connections and calls."""
        with self.peers.lock:
            finish = self._begin(session, session.left(cause))
            self.peers.remove(session)
        finish()

    def accepted(self, endpoint: Endpoint) -> None:
        """Note that a peer has opened a path for its requests."""
        endpoint.accept = self.references.acceptor(endpoint)
        name = endpoint.peer.name
        with self.peers.lock:
            # If this worker is leaving, close() would miss the new path. A caller of this worker's
            # own name only checks whether this worker is alive; it is.
            is_welcome = not self.closed and name != self.name
            if is_welcome:
                session = self.peers.enter(endpoint.peer)
                finish = self._begin(session, session.accepted(endpoint))
                endpoint.peer = WorkerInfo(name, session.info.id, endpoint.peer.incarnation)
        if not is_welcome:
            self.host.ended(endpoint)
            return
        finish()
        if endpoint.closed:
            said = f"refused worker {name!r}, in whose place another has come since"
            self.refusals.note(name, self.host.now(), said, reason="another has come in its place")
            return
        self.host.rouse(endpoint.next_tick)

    def greeted(self, endpoint: Endpoint, header: bytes | bytearray) -> None:
        """Handle a greeting: who the peer is, where it listens, which paths it has given up."""
        try:
            number, address, place, given_up = _decode_hello(header)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ProtocolViolation(f"a malformed greeting came: {error}") from error
        name = endpoint.peer.name
        with self.peers.lock:
            holder = self.peers.holder_of(number)
            if holder not in (None, name) or not 0 <= number < UNKNOWN_ID:
                # With two workers of one id, calls to the id would go to the later one.
                raise ProtocolViolation(
                    f"{name!r} says that it is worker {number}, which is {holder!r}"
                )
            session = self.peers.get(name) or Session(endpoint.peer)
            if endpoint is session.outgoing:
                raise ProtocolViolation(f"{name!r} greets on a path that it did not open")
            endpoint.peer = WorkerInfo(name, number, endpoint.peer.incarnation)
            finish = self._begin(session, session.greeted(endpoint, address, place, given_up))
        finish()

    def greeted_on(self, session: Session, endpoint: Endpoint) -> Callable[[], None]:
        """Note that a peer was dialled and greeted: the path is for this worker's requests.

        Return a function that does the rest, to be called once other threads may dial again.
        """
        with self.peers.lock:
            # A path that has ended meanwhile is not entered: its loss has been handled already, and
            # will not be reported again.
            is_over = self.closed or endpoint.closed
            finish = self._begin(session, [] if is_over else session.greets(endpoint))
        if self.closed:
            self.host.ended(endpoint)
            self.find(session.info)
        return finish

    def endpoint_lost(self, endpoint: Endpoint, cause: BaseException) -> None:
        """Note that a path is broken: as far as this worker can tell, its peer is lost."""
        forget_frames(cause)
        reason = self.losses.reason(endpoint.peer, cause)
        with self.peers.lock:
            session = self.peers.get(endpoint.peer.name) or Session(endpoint.peer)
            finish = self._begin(session, session.broken(endpoint, cause), reason)
        finish()

    def _begin(
        self, session: Session, effects: list[Effect], reason: str | None = None
    ) -> Callable[[], None]:
        """Begin an event's effects, under the lock of the peers; return the rest as a function.

        The event and this are one step, so that state of the peer's next life is not lost as well.
        """
        self.peers.tidy(session)
        rest: list[Callable[[], object] | None] = []
        for effect in effects:
            assert isinstance(effect, Close | Lost)
            why = reason or session.last_words or str(effect.cause)
            for endpoint in effect.ended:
                endpoint.closed = True
            # Abandon before ending the paths: a thread that reads one would report another cause.
            rest += [partial(self._abandon, each, why, effect.cause) for each in effect.ended]
            rest += [partial(self.host.ended, each) for each in effect.ended]
            if isinstance(effect, Lost) and not self.closed:
                self.losses.tell(effect.who, why, effect.cause)
                error = self.loss(effect.who, why, effect.cause)
                rest.append(self.references.peer_lost(effect.who, error))
                rest += [each(effect.who, error) for each in list(self._gone_callbacks)]
        return partial(_run_all, rest)

    def _abandon(self, endpoint: Endpoint, reason: str, cause: BaseException) -> None:
        endpoint.outbox.clear()
        self.outgoing.abandon(endpoint, partial(self.loss, endpoint.peer, reason, cause))

    def loss(self, who: WorkerInfo, reason: object, cause: BaseException) -> BaseException:
        """Return the error for calls that fail because a worker was lost."""
        if self.closed:
            return NotInitialized(f"worker {self.name!r} was shut down before the answer came")
        error = WorkerLost(f"worker {who.name!r} was lost: {reason}")
        error.__cause__ = cause
        return error

    # The end.

    def is_quiet(self, timeout: float) -> bool:
        """Wait until no call is open or being served; return False if that takes too long."""
        end = self.host.now() + timeout
        while self._busy():
            left = end - self.host.now()
            if left <= 0:
                return False
            # Polling will do: this is the end, not the hot path.
            pause: Future[None] = Future()
            self.host.wait(pause, min(left, 0.01))
        return True

    def _busy(self) -> bool:
        paths = [self.loopback, *self.peers.endpoints()]
        return any(path.calls.open or path.serving for path in paths)

    def close(self, timeout: float = 5.0) -> None:
        """Leave at once: fail open calls, tell the peers. May be called again."""
        with self.peers.lock:
            if self.closed:
                return
            self.closed = True
            endpoints = self.peers.endpoints()
        for endpoint in endpoints:
            try:
                # A peer that misses the goodbye sees the connection end. Tried several times, since
                # a thread that has just sent may not have released the path yet.
                if any(endpoint.can_send() for _ in range(_GOODBYES)):
                    endpoint.send(Frame(BYE))
            except (OSError, EOFError):
                pass
        gone = ConnectionError("this worker has shut down")
        for session in self.peers.all():
            with self.peers.lock:
                finish = self._begin(session, session.left(gone))
            finish()
        self.loopback.close()
        self.outgoing.abandon(self.loopback, partial(self.loss, self.info, gone, gone))
        self.references.close()
        for callback in self._close_callbacks:
            callback()
        self.incoming.coroutines.close(timeout)
        self.host.close(timeout)


def _run_all(tasks: "list[Callable[[], object] | None]") -> None:
    for task in tasks:
        if task is not None:
            task()
