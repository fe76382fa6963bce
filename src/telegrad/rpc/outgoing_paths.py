"""The paths of one worker's requests to others: found, or dialled by one thread at a time.

Invariant: nobody waits longer than until its own deadline, though others dial the same worker.
"""

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from telegrad.errors import CallTimeout, TelegradError, UsageError, WorkerLost
from telegrad.rpc.endpoint import Endpoint
from telegrad.rpc.peers import Peer
from telegrad.rpc.wire import frames

if TYPE_CHECKING:
    from telegrad.rpc.worker import Worker

__all__ = ["OutgoingPaths"]

_LONGEST_DIAL: Final = 10.0  # Seconds.
_encode_hello = msgspec.msgpack.Encoder().encode


class OutgoingPaths:
    """Opens the paths of one worker."""

    def __init__(self, worker: "Worker") -> None:
        self._worker = worker

    def path_to(self, peer: Peer, deadline: float) -> Endpoint:
        """Return the path for requests to the peer, opening it if need be."""
        endpoint = peer.outgoing
        if endpoint is not None and not endpoint.closed:
            return endpoint
        if peer.info.name == self._worker.name:
            return self._worker.loopback
        if endpoint is not None:
            # A send on it was interrupted, and its loss has not been dealt with yet. That comes
            # first: nothing that the old path counted may be left when there is a new one.
            self._worker.endpoint_lost(endpoint, ConnectionAbortedError("a send was interrupted"))
        if peer.dialler == threading.get_ident():
            raise UsageError(
                f"expected no call to {peer.info.name!r} from here: a finalizer or a signal's "
                "handler interrupted this thread in dialling that worker; call it from another "
                "thread"
            )
        turn, is_ours = peer.dialling, None
        before = peer.unreached
        try:
            left = min(max(0.0, deadline - self._worker.host.now()), threading.TIMEOUT_MAX)
            is_ours = turn.acquire(timeout=left)
            if not is_ours:
                raise CallTimeout(
                    f"worker {peer.info.name!r} could not be reached before the deadline: it is "
                    "still being dialled for another call"
                )
            peer.dialler = threading.get_ident()
            endpoint = self._dial(peer, deadline, before)
        finally:
            if is_ours:
                peer.dialler = 0
                turn.release()
            elif is_ours is None:
                # Ctrl-C while it was being taken: nobody knows who has it. With another lock, two
                # threads may dial at worst.
                peer.dialling = threading.RLock()
        self._worker.host.rouse(endpoint.next_tick)
        return endpoint

    def _dial(self, peer: Peer, deadline: float, before: WorkerLost | None) -> Endpoint:
        """Open the path for requests to the peer, unless somebody just has.

        `before` is what `peer.unreached` was when this call came.
        """
        if peer.outgoing is not None and not peer.outgoing.closed:
            return peer.outgoing
        if peer.unreached is not None and peer.unreached is not before:
            # Somebody has just tried, in vain: all who waited for that would, one after the other.
            raise WorkerLost(*peer.unreached.args)
        if not peer.address:
            raise WorkerLost(f"it is not known where worker {peer.info.name!r} listens")
        timeout = min(max(0.01, deadline - self._worker.host.now()), _LONGEST_DIAL)
        try:
            endpoint = self._dial_by_host(peer, timeout)
        except WorkerLost as error:
            # Raises if it was this worker that went.
            self._worker.find(peer.info)
            known = self._worker.losses.known(peer.info)
            if known is not None:
                raise self._worker.loss(peer.info, known, error) from error
            if self._worker.host.now() < deadline:
                # Another one, without the frames of who met it.
                peer.unreached = WorkerLost(*error.args)
                self._look_again_for(peer)
                raise
            raise CallTimeout(
                f"worker {peer.info.name!r} could not be reached before the deadline: {error}"
            ) from error
        with self._worker.peers.lock:
            is_past = endpoint.peer.incarnation in peer.past
            endpoint.place = peer.opened = peer.opened + 1
            is_known = endpoint.peer.incarnation == peer.info.incarnation
            given_up = peer.given_up if is_known else 0
        if is_past:
            self._worker.host.ended(endpoint)
            raise WorkerLost(
                f"worker {peer.info.name!r} was lost: at {peer.address} is still the one in whose "
                "place another has come"
            )
        hello = _encode_hello((self._worker.id, self._worker.address, endpoint.place, given_up))
        try:
            endpoint.send(frames.HELLO, 0, 0, 0, hello)
        except (OSError, EOFError) as error:
            self._worker.host.ended(endpoint)
            raise self._worker.loss(peer.info, error, error) from error
        endpoint.accept = self._worker.references.acceptor(endpoint)
        with self._worker.peers.lock:
            if endpoint.peer.incarnation != peer.info.incarnation:
                self._worker.peers.add(endpoint.peer, peer.address)
            # One that has ended meanwhile is not entered: its loss has been dealt with, and no
            # other will be told.
            if not (self._worker.closed or endpoint.closed):
                peer.outgoing = endpoint
                peer.lost = None
                self._worker.losses.met(endpoint.peer)
        if self._worker.closed:
            self._worker.host.ended(endpoint)
            self._worker.find(peer.info)
        return endpoint

    def _look_again_for(self, peer: Peer) -> None:
        """Ask who is here, for the next call: the peer may have come back elsewhere, unheard."""
        # Whoever knows that is most often rank 0 itself, which can't be asked where it is.
        if self._worker.look_again is not None and peer.info.id != 0:
            self._worker.host.start(self._look_again_quietly)

    def _look_again_quietly(self) -> None:
        look_again = self._worker.look_again
        if look_again is not None:
            with suppress(TelegradError):
                look_again()

    def _dial_by_host(self, peer: Peer, timeout: float) -> Endpoint:
        try:
            return self._worker.host.dial(peer.info, peer.address, timeout)
        except OSError as error:
            if isinstance(error, TelegradError):
                raise
            # This process lacks something, descriptors most likely.
            raise WorkerLost(f"worker {peer.info.name!r} can't be reached: {error}") from error
