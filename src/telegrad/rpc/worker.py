"""A worker: an object that calls others and is called by them.

It joins the codec, the protocol's state and whatever carries it (host.py); there may be ten in one
process. Its calling half is in outgoing.py, its serving half in incoming.py; here are its life and
its peers. Everything may run on any thread.

Invariant: each call that was opened is settled exactly once, by its answer, its deadline, the loss
of its worker, or shutdown.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

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
from telegrad.rpc.endpoint import Endpoint
from telegrad.rpc.host import Host
from telegrad.rpc.ids import id_source
from telegrad.rpc.loopback import Loopback
from telegrad.rpc.losses import Losses
from telegrad.rpc.names import UNKNOWN_ID, WorkerInfo
from telegrad.rpc.options import Options
from telegrad.rpc.outgoing_paths import OutgoingPaths
from telegrad.rpc.peers import Peer, Peers
from telegrad.rpc.protocol.budget import Budget
from telegrad.rpc.references.references import References, forget_frames
from telegrad.rpc.references.rref import RRef
from telegrad.rpc.timers import Timers
from telegrad.rpc.wire import frames
from telegrad.rpc.wire.codec import Codec

__all__ = ["Worker"]

_log = logging.getLogger("telegrad.rpc")
_decode_hello = msgspec.msgpack.Decoder(tuple[int, str, int, int]).decode


class Worker:
    """One worker, made by ``init_rpc`` or ``LocalCluster``; `name` and `id` are the cluster's.

    Arguments:
        info: Its name and id in the cluster.
        host: What it runs on, sockets and threads or a simulation.
        options: Its own.

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
        """What layers above keep for this worker, by their names."""
        self.observer: Observer | None = None
        self.outgoing = Outgoing(self)
        self.incoming = Incoming(self)
        self.receive = self.incoming.receive
        self.references = References(self)
        self.losses = Losses(self)
        self.closed = False
        self.is_copy = False
        """Whether this process was forked from the worker's own; see forked_process.py."""
        self.joined: Future[None] | None = None
        """Pending while others may call this worker, but it does not know them all yet."""
        self.look_again: Callable[[], object] | None = None
        """Ask who is here, where others may come unannounced."""
        self.next_id = id_source(info, secret=self.options.strict)
        """Return a new 64-bit id; see ids.py."""
        self._gone_callbacks: list[
            Callable[[WorkerInfo, BaseException], Callable[[], object] | None]
        ] = []
        self._close_callbacks: list[Callable[[], object]] = []
        timers = Timers(self)
        self.next_timer = timers.next_timer
        """Return when `run_timers` has something to do."""
        self.run_timers = timers.run_timers
        """Fail late calls, repeat notices, look after peers; given the time."""
        self.path_to = OutgoingPaths(self).path_to
        """Return the path for requests to a peer, opening it if need be; given the deadline."""
        self.loopback = Loopback(self)
        self.loopback.accept = self.references.acceptor(self.loopback)
        self.address = host.begin(self)
        self.peers.add(info, self.address)

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
        """Run `func(*args, **kwargs)` on worker `to` and return its result."""
        return self.outgoing.call(to, func, args, kwargs, timeout, waits=True).wait()

    def rpc_async(
        self,
        to: str | int | WorkerInfo,
        func: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Call:
        """Start `func(*args, **kwargs)` on worker `to` and return the future of its result."""
        return self.outgoing.call(to, func, args, kwargs, timeout, waits=False)

    def remote(
        self,
        to: str | int | WorkerInfo,
        func: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> RRef:
        """Run `func(*args, **kwargs)` on worker `to` and return a reference to its result."""
        return self.outgoing.create(to, func, args, kwargs, timeout)

    def make_rref(self, value: Any) -> RRef:
        """Return a reference to a value of this worker."""
        return self.references.create(value)

    # The seam for layers above.

    def install(self, interceptor: Interceptor) -> None:
        """Let the interceptor see what goes out and comes in; there is one at most."""
        if self.interceptor is not None:
            raise UsageError(f"worker {self.name!r} has an interceptor already")
        self.interceptor = interceptor

    def register_service(
        self, name: str, handler: Callable[[ServiceRequest], object], *, inline: bool = False
    ) -> None:
        """Serve messages of another protocol; an inline handler must not wait for anything."""
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
        """Send a message that wants no answer, repeated until it has arrived."""
        self.outgoing.notify(self.find(to), name, header)

    def on_worker_lost(
        self, callback: Callable[[WorkerInfo, BaseException], Callable[[], object] | None]
    ) -> None:
        """Call `callback(who, why)` when a worker was lost or has left.

        It is called at that very moment, under the lock of the peers: it notes what goes with the
        worker, waits for nothing, and may return a function that does the rest, called right
        afterwards. What comes over a new connection comes later, and is not lost with the old one.
        """
        self._gone_callbacks.append(callback)

    def on_close(self, callback: Callable[[], object]) -> None:
        """Call `callback()` when this worker has left: what was opened for it goes with it."""
        self._close_callbacks.append(callback)

    # Peers.

    def find(self, to: str | int | WorkerInfo) -> Peer:
        """Return the peer that a name, id or WorkerInfo means, if this worker is running."""
        if self.closed:
            raise NotInitialized(
                f"worker {self.name!r} has shut down: start it again with init_rpc"
            )
        # The usual case first: a name. Anything else is not a key of this table.
        return self.peers.by_name.get(to) or self._find_again(to)  # type: ignore[arg-type]

    def _find_again(self, to: str | int | WorkerInfo) -> Peer:
        try:
            return self.peers.find(to)
        except UnknownWorker:
            # By name a program asks; numbers come with messages, and whoever reads must not wait.
            if self.look_again is None or not isinstance(to, str):
                raise
        # It may have come just now.
        self.look_again()
        return self.peers.find(to)

    def drop_peer(self, peer: Peer, cause: BaseException) -> None:
        """Know a worker no more, and end what is open with it."""
        for endpoint in peer.endpoints():
            self.endpoint_lost(endpoint, cause)
        self.peers.remove(peer)

    def add_peer(self, info: WorkerInfo, address: str) -> None:
        """Make a worker known; if it is another incarnation of one, the old one is lost.

        News of one in whose place another has come are late, and change nothing.
        """
        with self.peers.lock:
            known = self.peers.get(info.name)
            if known is not None and info.incarnation in known.past:
                return
            stale = known.endpoints() if known is not None else []
            stale = [each for each in stale if each.peer.incarnation != info.incarnation]
        for endpoint in stale:
            self.endpoint_lost(endpoint, ConnectionError("it has started anew"))
        self.peers.add(info, address)

    def accepted(self, endpoint: Endpoint) -> None:
        """A peer has opened a path for its requests."""
        endpoint.accept = self.references.acceptor(endpoint)
        name = endpoint.peer.name
        if name == self.name:
            # One that wants to take this worker's place looks whether it lives. It does.
            self.host.ended(endpoint)
            return
        with self.peers.lock:
            peer = self.peers.get(name)
            if peer is None:
                peer = self.peers.add(endpoint.peer, "")
            is_past = endpoint.peer.incarnation in peer.past
            endpoint.peer = WorkerInfo(name, peer.info.id, endpoint.peer.incarnation)
            # A peer dials once. If it dials again it has given the old paths up, or died.
            old = list(peer.incoming)
            if endpoint.peer.incarnation != peer.info.incarnation and peer.outgoing is not None:
                old.append(peer.outgoing)
        if is_past:
            _log.warning("refused worker %r, in whose place another has come since", name)
            self.host.ended(endpoint)
            return
        for stale in old:
            self.endpoint_lost(stale, ConnectionError("it opened a new connection"))
        with self.peers.lock:
            # It may have been forgotten meanwhile.
            peer = self.peers.add(endpoint.peer, peer.address)
            if not self.closed:
                endpoint.is_new = True
                peer.incoming.append(endpoint)
                peer.lost = None
                self.losses.met(endpoint.peer)
        if self.closed:
            # It came while this worker was leaving: close() did not see it.
            self.host.ended(endpoint)
            return
        self.host.rouse(endpoint.next_tick)

    def greeted(self, endpoint: Endpoint, header: bytes | bytearray) -> None:
        """A peer says who it is, where it listens, and which of the paths to it it has given up."""
        try:
            number, address, place, given_up = _decode_hello(header)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ProtocolViolation(f"a malformed greeting came: {error}") from error
        name = endpoint.peer.name
        holder = self.peers.holder_of(number)
        if holder not in (None, name) or not 0 <= number < UNKNOWN_ID:
            # Calls to that number would go to whoever took it last.
            raise ProtocolViolation(
                f"{name!r} says that it is worker {number}, which is {holder!r}"
            )
        endpoint.peer = WorkerInfo(name, number, endpoint.peer.incarnation)
        peer = self.peers.add(endpoint.peer, address)
        if peer.info.incarnation != endpoint.peer.incarnation:
            self.endpoint_lost(endpoint, ConnectionError("another has come in its place"))
            return
        endpoint.place = place
        stale = peer.outgoing
        if endpoint.is_new and stale is not None and stale.place <= given_up:
            # The peer gave the old path up before it opened this one; its end may be seen late,
            # or never.
            self.endpoint_lost(stale, ConnectionError("it opened a new connection"))
        endpoint.is_new = False

    def endpoint_lost(self, endpoint: Endpoint, cause: BaseException) -> None:
        """A path broke: its peer is lost, as far as this worker can tell.

        All its paths end together, but one that is new: if the peer opened it after it had given up
        the others, it stays, and if it was before, its end is about to come, too.
        """
        forget_frames(cause)
        reason = self.losses.reason(endpoint.peer, cause)
        error = self.loss(endpoint.peer, reason, cause)
        rest: list[Callable[[], object] | None] = []
        with self.peers.lock:
            peer = self.peers.get(endpoint.peer.name)
            endpoints = [] if peer is None else peer.endpoints()
            if peer is not None and endpoint in endpoints:
                new = [each for each in peer.incoming if each.is_new and each is not endpoint]
                endpoints = [each for each in endpoints if each not in new]
                ended = [each.place for each in peer.incoming if each not in new]
                peer.given_up = max([peer.given_up, *ended])
                peer.outgoing = None
                peer.incoming = new
                peer.lost = None if new else cause
                self.peers.forget_stranger(peer)
                if not self.closed:
                    # In one step: once the peer has been met anew, what comes from it is to stay.
                    rest = [self.references.peer_lost(endpoint.peer, error, endpoints)]
                    rest += [each(endpoint.peer, error) for each in list(self._gone_callbacks)]
            else:
                endpoints = [endpoint]
            for each in endpoints:
                each.closed = True
        for each in endpoints:
            each.outbox.clear()
            # Before the paths are ended: a thread that reads one would give another cause.
            self.outgoing.abandon(each, partial(self.loss, each.peer, reason, cause))
        for each in endpoints:
            self.host.ended(each)
        for finish in rest:
            if finish is not None:
                finish()

    def loss(self, who: WorkerInfo, reason: object, cause: BaseException) -> BaseException:
        """Return what fails for the loss of a worker."""
        if self.closed:
            return NotInitialized(f"worker {self.name!r} was shut down before the answer came")
        error = WorkerLost(f"worker {who.name!r} was lost: {reason}")
        error.__cause__ = cause
        return error

    # The end.

    def is_quiet(self, timeout: float) -> bool:
        """Wait until no call is open or being served; say whether that was so in time."""
        end = self.host.now() + timeout
        while self._busy():
            left = end - self.host.now()
            if left <= 0:
                return False
            # Looked at again when it may have changed: this is the end, not the hot path.
            pause: Future[None] = Future()
            self.host.wait(pause, min(left, 0.01))
        return True

    def _busy(self) -> bool:
        paths = [self.loopback, *self.peers.endpoints()]
        return any(path.calls.open or path.serving for path in paths)

    def take_no_more(self) -> None:
        """Leave the requests that come from now on unanswered: this process ends."""
        for path in [self.loopback, *self.peers.endpoints()]:
            path.requests.close()

    def close(self, timeout: float = 5.0) -> None:
        """Leave at once: open calls fail, peers are told. May be called again."""
        with self.peers.lock:
            if self.closed:
                return
            self.closed = True
            endpoints = self.peers.endpoints()
        for endpoint in endpoints:
            try:
                # Only at once: a peer that does not get it sees the connection end.
                if endpoint.can_send():
                    endpoint.send(frames.BYE, 0, 0, 0, b"")
            except (OSError, EOFError):
                pass
        gone = ConnectionError("this worker has shut down")
        for endpoint in endpoints:
            self.endpoint_lost(endpoint, gone)
        self.loopback.close()
        self.outgoing.abandon(self.loopback, partial(self.loss, self.info, gone, gone))
        self.references.close()
        for callback in self._close_callbacks:
            callback()
        self.incoming.coroutines.close(timeout)
        self.host.close(timeout)
