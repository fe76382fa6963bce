"""The paths for a worker's requests to others: found, or dialled by one thread at a time.

Invariant: no caller waits beyond its own deadline, even if others dial the same worker.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from telegrad.errors import CallTimeout, TelegradError, Unreachable, WorkerLost
from telegrad.rpc.calls.future import Future
from telegrad.rpc.endpoint import Endpoint
from telegrad.rpc.interruption import busy
from telegrad.rpc.protocol.session import Session
from telegrad.rpc.wire.frames import HELLO, Frame

if TYPE_CHECKING:
    from telegrad.rpc.worker import Worker

_LONGEST_DIAL: Final = 10.0  # Seconds.
_encode_hello = msgspec.msgpack.Encoder().encode


class OutgoingPaths:
    """Opens the paths of one worker."""

    def __init__(self, worker: "Worker") -> None:
        self._worker = worker

    def path_to(self, session: Session, deadline: float) -> Endpoint:
        """Return the path for requests to a peer, opening it if need be."""
        worker = self._worker
        if session.info.name == worker.name:
            return worker.loopback
        if not session.address:
            path = self._path_it_opened(session, deadline)
            if path is not None:
                return path
        while True:
            endpoint = session.outgoing
            if endpoint is not None and not endpoint.closed:
                return endpoint
            if endpoint is not None:
                # A send on it was interrupted, and its loss has not been handled yet. Do so first:
                # the new path must not inherit the old one's calls and references.
                worker.endpoint_lost(endpoint, ConnectionAbortedError("a send was interrupted"))
            other = session.attempt
            if isinstance(other, Future):
                self._wait_for(other, session, deadline)
                continue
            opened = self._open(session, deadline)
            if opened is not None:
                endpoint, finish = opened
                finish()
                worker.host.rouse(endpoint.next_tick)
                return endpoint

    def _open(
        self, session: Session, deadline: float
    ) -> tuple[Endpoint, Callable[[], None]] | None:
        """Open a path; return it and its last step, or None if another thread is dialling."""
        worker = self._worker
        attempt: Future[None] = Future()
        error: WorkerLost | None = None
        me = ~threading.get_ident()
        busy[me] = attempt
        try:
            with worker.peers.lock:
                if not session.dials(attempt):
                    return None
            endpoint = self._dial(session, deadline)
            return endpoint, worker.greeted_on(session, endpoint)
        except WorkerLost as met:
            # All waiting threads get the error: otherwise each in turn would dial in vain. A copy,
            # without the frames of this thread.
            error = WorkerLost(*met.args)
            raise
        finally:
            try:
                with worker.peers.lock:
                    session.stops_dialling(attempt)
                attempt._settle(None, error)
            finally:
                del busy[me]

    def _path_it_opened(self, session: Session, deadline: float) -> Endpoint | None:
        """Return the path opened by a peer that listens nowhere; wait if it may still open one.

        None if it listens after all: another thread has just noted where.
        """
        worker, name = self._worker, session.info.name
        end = worker.host.now() + worker.options.lost_after
        while True:
            # Whoever enters a peer holds the lock until its address is noted.
            with worker.peers.lock:
                if session.address:
                    return None
            if not worker.address:
                raise Unreachable(
                    f"worker {name!r} can't be called from {worker.name!r}: neither of them "
                    "listens; of two that call each other one has to, leave out "
                    "rpc.Options(listen=False) there"
                )
            path = session.greeted_path
            if path is not None and not path.closed:
                return path
            # Raises if this worker has shut down, or the peer was forgotten.
            worker.find(session.info)
            now = worker.host.now()
            if now >= deadline:
                raise CallTimeout(
                    f"worker {name!r} could not be reached before the deadline: it listens "
                    "nowhere, and has not dialled yet"
                )
            if session.is_gone or now >= end:
                break
            # Polling will do: this happens only once, when the workers meet.
            pause: Future[None] = Future()
            worker.host.wait(pause, 0.01)
        silence = f"it did not dial within {worker.options.lost_after:g} s"
        reason = session.lost if session.is_gone else silence
        raise WorkerLost(
            f"worker {name!r} was lost: {reason}; it listens nowhere, and is called over a "
            "connection that it opens"
        )

    def _wait_for(self, other: Future[None], session: Session, deadline: float) -> None:
        """Wait until another thread has dialled; raise WorkerLost if it could not."""
        self._worker.host.wait(other, max(0.0, deadline - self._worker.host.now()))
        if not other.done():
            raise CallTimeout(
                f"worker {session.info.name!r} could not be reached before the deadline: it is "
                "still being dialled for another call"
            )
        if (error := other.exception()) is not None:
            raise WorkerLost(*error.args)

    def _dial(self, session: Session, deadline: float) -> Endpoint:
        """Open the path for requests to a peer, and greet it."""
        worker = self._worker
        timeout = min(max(0.01, deadline - worker.host.now()), _LONGEST_DIAL)
        try:
            endpoint = self._dial_by_host(session, timeout)
        except WorkerLost as error:
            # Raises if this worker has shut down.
            worker.find(session.info)
            # The peer may have said why it ends before its connection closed.
            told = session.reason or session.last_words
            if told is not None:
                raise worker.loss(session.info, told, error) from error
            if worker.host.now() < deadline:
                self._look_again_for(session)
                raise
            raise CallTimeout(
                f"worker {session.info.name!r} could not be reached before the deadline: {error}"
            ) from error
        with worker.peers.lock:
            greeting = session.dialled(endpoint.peer.incarnation)
        if greeting is None:
            worker.host.ended(endpoint)
            raise WorkerLost(
                f"worker {session.info.name!r} was lost: at {session.address} is still the one in "
                "whose place another has come"
            )
        # Set before the greeting, after which the peer may send requests over this path.
        endpoint.accept = worker.references.acceptor(endpoint)
        hello = _encode_hello((worker.id, worker.address, greeting.place, greeting.given_up))
        try:
            endpoint.send(Frame(HELLO, header=hello))
        except (OSError, EOFError) as error:
            worker.host.ended(endpoint)
            raise worker.loss(session.info, error, error) from error
        return endpoint

    def _look_again_for(self, session: Session) -> None:
        """Refresh the roster for the next call: the peer may be back at another address."""
        # Usually rank 0 serves the roster, so it can't tell where it is itself.
        if self._worker.look_again is not None and session.info.id != 0:
            self._worker.host.start(self._look_again_quietly)

    def _look_again_quietly(self) -> None:
        look_again = self._worker.look_again
        if look_again is not None:
            with suppress(TelegradError):
                look_again()

    def _dial_by_host(self, session: Session, timeout: float) -> Endpoint:
        try:
            return self._worker.host.dial(session.info, session.address, timeout)
        except OSError as error:
            if isinstance(error, TelegradError):
                raise
            # This process lacks a resource, most likely descriptors.
            raise WorkerLost(f"worker {session.info.name!r} can't be reached: {error}") from error
