"""Requests that wait for room at the worker that is to serve them, and let others overtake them.

A request that arrived before there was room waits at that worker. A large one, which would fill the
stream, is announced by its sender, whose thread blocks until there is room, so its later messages
come after it. (One of a few megabytes is sent at once while no other such request is unanswered,
and waits there, too.) Without room in time both kinds are refused. Invariant: room that was granted
is used by the request, given back by its sender, or freed with the path.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from telegrad.errors import ProtocolViolation, Refused
from telegrad.rpc.calls.service import Service, ServiceRequest
from telegrad.rpc.endpoint import Endpoint
from telegrad.rpc.wire.failures import dump_failure
from telegrad.rpc.wire.frames import FAILURE, UNOPENED, Frame

if TYPE_CHECKING:
    from telegrad.rpc.calls.incoming import Incoming
    from telegrad.rpc.worker import Worker

_ANNOUNCED: Final = "telegrad.announced"
_GIVEN_UP: Final = "telegrad.given_up"
Task = Callable[[], object]


class Waiting:
    """One worker's part, as the callee and as the caller."""

    def __init__(self, worker: "Worker", incoming: "Incoming") -> None:
        self._worker = worker
        self._incoming = incoming
        incoming.register(Service(_ANNOUNCED, self._on_announced, True))
        incoming.register(Service(_GIVEN_UP, self._on_given_up, True))

    # At the callee.

    def receive(self, endpoint: Endpoint, frame: Frame, waits: tuple[int, int]) -> None:
        """Handle a request that came before there was room; run it when there is."""
        frame.waits = None
        task = self._incoming.receive(endpoint, frame)
        worker = self._worker
        release = partial(worker.budget.release, endpoint.peer.name, waits[0])

        def go_on(is_admitted: bool) -> None:
            if is_admitted:
                worker.host.serve(endpoint, partial(run_and_release, task, release))
            elif task is not None:
                # Answered even if its caller gave it up: its references have not arrived.
                endpoint.is_wanted(frame.ident)
                self._answer(endpoint, frame.ident, self._full())

        assert endpoint.anteroom is not None, "the frame came from there"
        endpoint.anteroom.when_room(waits, go_on)

    def refuse(self, endpoint: Endpoint, frame: Frame) -> None:
        """Answer a request for which there was no room in the anteroom either, or no memory."""
        if self._incoming.takes_requests:
            why = frame.header[1:].decode()
            self._answer(endpoint, frame.ident, self._refused(why) if why else self._full())

    def refuse_one_more(self, endpoint: Endpoint, number: int) -> None:
        """Refuse a call of a peer that has as many calls here as it may."""
        most = self._worker.options.calls_of_peer
        why = f"serves {len(endpoint.serving)} calls of {endpoint.peer.name!r} at once, of {most} "
        why += (
            "that a peer may have: wait for some of them, or give it larger Options.calls_of_peer"
        )
        self._answer(endpoint, number, self._refused(why))

    def _answer(self, endpoint: Endpoint, number: int, error: Refused) -> None:
        worker = self._worker
        header = dump_failure(error, worker.name, strict=worker.codec.strict)
        self._incoming.send(endpoint, Frame(FAILURE, UNOPENED, number, 0, header))

    def _refused(self, why: str) -> Refused:
        return Refused(f"worker {self._worker.name!r} {why}")

    def _full(self) -> Refused:
        budget = self._worker.budget
        return self._refused(
            f"is full: requests of {budget.held} bytes are being served, of at most {budget.most} "
            f"({budget.most_of_peer} of one peer), and none of them ended in time. Send less at "
            "once, or give it larger Options.in_flight_bytes"
        )

    def _on_announced(self, request: ServiceRequest) -> None:
        sizes = _sizes(request.header)

        def answer(is_granted: bool) -> None:
            if is_granted:
                request.reply()
            else:
                request.fail(self._full())

        if request.via.anteroom is None:
            answer(True)
        else:
            request.via.anteroom.announced(*sizes, answer)

    def _on_given_up(self, request: ServiceRequest) -> None:
        sizes = _sizes(request.header)
        if request.via.anteroom is not None:
            request.via.anteroom.given_up(*sizes)

    # At the caller.

    def ask(self, endpoint: Endpoint, sizes: tuple[int, int], deadline: float) -> None:
        """Wait until the callee has room for a request with a header and a body of these sizes.

        Raise Refused if there is none in time, and else what a call raises.
        """
        try:
            self._worker.outgoing.service_on(endpoint, _ANNOUNCED, sizes, deadline).wait()
        except Refused:
            raise
        except BaseException:
            self.give_back(endpoint, sizes)
            raise

    def give_back(self, endpoint: Endpoint, sizes: tuple[int, int]) -> None:
        """Tell the callee that a request is not sent; those of equal sizes are interchangeable."""
        if not endpoint.closed:
            self._worker.outgoing.notify_on(endpoint, _GIVEN_UP, sizes)


def _sizes(header: Any) -> tuple[int, int]:
    match header:
        case [int(first), int(second)] if first >= 0 and second >= 0:
            return first, second
    raise ProtocolViolation(f"expected the sizes of a request, got {header!r:.100}")


def run_and_release(task: Task | None, release: Callable[[], object]) -> None:
    """Serve a request, and release the room that it took."""
    try:
        if task is not None:
            task()
    finally:
        release()
