"""Requests of a pass, each answered when all work that it caused has ended.

A pass may run for hours, so a request has no deadline of its own. Heartbeats find a worker that
dies or stops, and a connection delivers or breaks. So every wait ends with the answer or with an
error that names the worker.

With several open requests, this thread first waits for one answer by reading it itself, which is
the fastest. Other answers would not wake it, so after a moment (once for each request) it waits for
any answer instead. So it learns of a failure anywhere at once, and works on other answers however
long the first one takes.
"""

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Final, TypeVar

import msgspec

from telegrad.errors import TelegradError
from telegrad.rpc.calls.call import Call
from telegrad.rpc.calls.future import Future, Quick
from telegrad.rpc.calls.service import ServiceRequest
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.worker import Worker

T = TypeVar("T")
# Seconds to wait for the first of several answers alone. A hand-over from the reading thread costs
# some 100 µs: little compared with this, much compared with an answer that comes at once.
_MOMENT: Final = 0.02


class PassRequest(msgspec.Struct, eq=False):
    """An open request."""

    answer: Call
    """Settled when the answer has been read."""
    _had_moment: bool = False

    def read(self, take: Callable[[str, Any, list[Any]], T]) -> T:
        """Wait; return `take(worker, header, arrays)` for the answer.

        Raises the peer's exception if it failed. If `take` raises a plain Python error, the answer
        is malformed, which ends the connection.
        """
        try:
            header, arrays = self.answer.wait()
            try:
                return take(self.answer.to.name, header, arrays)
            except TelegradError:
                raise
            except (LookupError, TypeError, ValueError, AttributeError, StopIteration) as error:
                raise self.answer.malformed(error) from error
        finally:
            # An error's traceback holds this frame, and the call holds the error. Dropping the
            # frame's reference to the call breaks the cycle, so that all frames are freed.
            del self


class PassRequests:
    """One worker's requests: those it made, and those it answers."""

    def __init__(self, worker: Worker, on_asker_lost: Callable[[WorkerInfo], object]) -> None:
        self._worker = worker
        self._on_asker_lost = on_asker_lost

    def ask(
        self,
        to: str,
        service: str,
        body: Any,
        arrays: Any = (),
        *,
        waits: bool = False,
    ) -> PassRequest:
        """Make a request.

        Arguments:
            to: The worker to ask.
            service: The service that handles the request.
            body: The request's header.
            arrays: The raw arrays that belong to `body`.
            waits: Whether this thread waits for the answer at once, which is cheaper.

        Returns:
            The open request.
        """
        outgoing = self._worker.outgoing
        return PassRequest(outgoing.service(to, service, body, arrays, math.inf, waits=waits))

    def take_next(self, asked: list[PassRequest]) -> PassRequest:
        """Remove and return the next request to read: an answered one, after waiting for one."""
        if len(asked) == 1:
            return asked.pop()
        following = next((each for each in asked if each.answer._done), asked[0])
        if not following.answer._done and not following._had_moment:
            following._had_moment = True
            self._wait(following.answer, _MOMENT, following)
        if not following.answer._done:
            following = self._first_answered(asked)
        asked.remove(following)
        return following

    def _first_answered(self, asked: list[PassRequest]) -> PassRequest:
        """Wait until some are answered; return one of these, preferably one that failed."""
        some: Future[None] = Future()
        wake = Quick(lambda _: some._settle(None, None))
        for pass_request in asked:
            pass_request.answer.add_done_callback(wake)
        try:
            while True:
                answered = [pass_request for pass_request in asked if pass_request.answer._done]
                for pass_request in answered:
                    if pass_request.answer.exception() is not None:
                        return pass_request
                if answered:
                    return answered[0]
                self._wait(some, None, asked[0])
        finally:
            # Else a request that stays open would collect one callback for each wait.
            for pass_request in asked:
                pass_request.answer._forget_callback(wake)

    def _wait(self, future: Future[Any], timeout: float | None, pass_request: PassRequest) -> None:
        """Wait for the future or the timeout; show it to the observer as a wait for the request."""
        observer = self._worker.observer
        with nullcontext() if observer is None else observer.waiting(pass_request.answer):
            self._worker.host.wait(future, timeout)

    def handler(self, answer: Callable[[ServiceRequest], None]) -> Callable[..., None]:
        """Return a request handler that also detects the loss of the asker."""

        def handle(request: ServiceRequest) -> None:
            try:
                answer(request)
            finally:
                if request.via.closed:
                    # Lost perhaps before a pass began here for it, which nobody would end.
                    self._on_asker_lost(request.frm)

        return handle
