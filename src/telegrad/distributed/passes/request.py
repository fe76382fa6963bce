"""Requests of a pass: made once, answered when all they set off has ended, however long that takes.

A pass may run for hours, so a request has no deadline of its own. A worker that dies or stops is
found by its heartbeat, and a connection delivers what was sent or breaks. So a wait always ends:
with the answer, or with an error that names the worker.

Of several open requests the first is waited for by reading its answer on this very thread, which is
the fastest. Nobody else's answer would wake it there; so after a moment, once for each request, it
waits for whichever is first instead: a failure anywhere is known at once, and what others answer is
worked on, however long the first takes.
"""

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
_AGES: Final = 30 * 24 * 3600.0  # Seconds; it stands for no deadline.
# Seconds that the first of several answers is waited for alone. A hand-over from the thread that
# reads costs some 100 µs: little beside this, much beside an answer that comes at once.
_MOMENT: Final = 0.02


class PassRequest(msgspec.Struct, eq=False):
    """A request that is open: made, and not answered yet."""

    answer: Call
    """Settled when the answer has been read."""
    _had_moment: bool = False

    def wait(self) -> tuple[Any, list[Any]]:
        """Return the answer's header and arrays; raise the other side's exception if it failed."""
        try:
            answer: tuple[Any, list[Any]] = self.answer.wait()
            return answer
        finally:
            # The traceback of an error holds this frame, and the call holds the error: without
            # its call in between there is no cycle, and what the frames below hold goes with it.
            del self

    def read(self, take: Callable[[str, Any, list[Any]], T]) -> T:
        """Wait, and return what `take` makes of who answered, the header and the arrays.

        What that raises of its own accord is of an answer that no worker sends: it ends the
        connection.
        """
        try:
            header, arrays = self.wait()
            try:
                return take(self.answer.to.name, header, arrays)
            except TelegradError:
                raise
            except (LookupError, TypeError, ValueError, AttributeError, StopIteration) as error:
                raise self.answer.malformed(error) from error
        finally:
            # As in `wait`.
            del self


class PassRequests:
    """One worker's requests: those it made, and those it works on."""

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
            to: The worker that is asked.
            service: What is asked of it.
            body: What the request says.
            arrays: The raw arrays that belong to `body`.
            waits: Whether this thread waits for the answer at once, which is cheaper.

        Returns:
            The open request.
        """
        deadline = self._worker.host.now() + _AGES
        call = self._worker.outgoing.service(to, service, body, arrays, deadline, waits=waits)
        return PassRequest(call)

    def take_next(self, asked: list[PassRequest]) -> PassRequest:
        """Take the request to wait for next out of the list: an answered one, or the first."""
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
        """Wait until some are answered; return one, if possible one that failed."""
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
            # Or a request that stays open would gather one callback for each wait.
            for pass_request in asked:
                pass_request.answer._forget_callback(wake)

    def _wait(self, future: Future[Any], timeout: float | None, pass_request: PassRequest) -> None:
        """Wait for the future or the time; to an observer, it is a wait for that request."""
        observer = self._worker.observer
        with nullcontext() if observer is None else observer.waiting(pass_request.answer):
            self._worker.host.wait(future, timeout)

    def handler(self, answer: Callable[[ServiceRequest], None]) -> Callable[..., None]:
        """Return the handler of a request, which finds out whether its asker was lost."""

        def handle(request: ServiceRequest) -> None:
            try:
                answer(request)
            finally:
                if request.via.closed:
                    # Perhaps before a pass began here for it, which nobody would end.
                    self._on_asker_lost(request.frm)

        return handle
