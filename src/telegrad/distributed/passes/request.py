"""Questions of a pass: asked once, answered when all they set off has ended, however long that
takes.

A pass may run for hours, so a question has no deadline of its own. A worker that dies or stops is
found by its heartbeat. What is left is a message that was lost although both workers live: whoever
has waited for a call's timeout asks whether the question is still being worked on, and gives up if
it is not. So a wait always ends: with the answer, or with an error that names the worker.

Of several open questions the first is waited for by reading its answer on this very thread, which
is the fastest. Nobody else's answer would wake it there; so after a moment, once for each question,
it waits for whichever is first instead: a failure anywhere is known at once, and what others
answer is worked on, however long the first takes.
"""

from contextlib import nullcontext
from typing import Any, Final

import msgspec

from telegrad.errors import CallTimeout
from telegrad.rpc.calls.call import Call
from telegrad.rpc.calls.future import Future, Quick
from telegrad.rpc.calls.service import ServiceRequest
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.worker import Worker

__all__ = ["PassRequest", "PassRequests"]

WORKING: Final = "autograd.working"
_AGES: Final = 30 * 24 * 3600.0  # Seconds; it stands for no deadline.
# Seconds that the first of several answers is waited for alone. A hand-over from the thread that
# reads costs some 100 µs: little beside this, much beside an answer that comes at once.
_MOMENT: Final = 0.02


class PassRequest(msgspec.Struct, eq=False):
    """A question that was asked and not answered yet."""

    _asked_by: "PassRequests"
    answer: Call
    """Settled when the answer has been read."""
    _number: int
    _had_moment: bool = False

    def wait(self) -> tuple[Any, list[Any]]:
        """The answer's header and arrays; the other side's exception if it failed."""
        patience = self._asked_by.patience
        try:
            while True:
                try:
                    answer: tuple[Any, list[Any]] = self.answer.wait(patience)
                    return answer
                except CallTimeout:
                    if self.answer._done:
                        raise
                    self._check_worked_on(patience)
        finally:
            # The traceback of an error holds this frame, and the call holds the error: without
            # its call in between there is no cycle, and what the frames below hold goes with it.
            del self

    def _check_worked_on(self, patience: float | None) -> None:
        if self._asked_by.is_working(self.answer.to, self._number) or self.answer._done:
            return
        raise CallTimeout(
            f"worker {self.answer.to.name!r} did not answer a message of a backward pass within "
            f"{patience} s and no longer works on it: the message or its answer was lost; run the "
            "pass again (with retain_graph=True the first time, so that it can be)"
        ) from None


class PassRequests:
    """One worker's: those it asked, and those it works on."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.working: set[int] = set()
        """The numbers of the questions that are being worked on here."""
        worker.register_service(WORKING, self._on_working, inline=True)

    @property
    def patience(self) -> float | None:
        """After how long a wait asks whether anyone still works on it; None for never."""
        return self._worker.options.rpc_timeout or None

    def ask(
        self,
        to: str,
        service: str,
        body: Any,
        arrays: Any = (),
        *,
        waits: bool = False,
    ) -> PassRequest:
        """Asks. `waits`: this thread will wait for the answer at once, which is cheaper."""
        number = self._worker.next_id()
        deadline = self._worker.host.now() + _AGES
        call = self._worker.outgoing.service(
            to, service, [number, body], arrays, deadline, waits=waits
        )
        return PassRequest(self, call, number)

    def take_next(self, asked: list[PassRequest]) -> PassRequest:
        """Takes the question to wait for next out of the list: an answered one, or the first."""
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
        """Waits for any of them; of several, one that failed."""
        some: Future[None] = Future()
        tell = Quick(lambda _: some._settle(None, None))
        for pass_request in asked:
            pass_request.answer.add_done_callback(tell)
        try:
            while True:
                answered = [pass_request for pass_request in asked if pass_request.answer._done]
                for pass_request in answered:
                    if pass_request.answer.exception() is not None:
                        return pass_request
                if answered:
                    return answered[0]
                self._wait(some, self.patience, asked[0])
                if not some.done():
                    for pass_request in asked:
                        pass_request._check_worked_on(self.patience)
        finally:
            # Or a question that stays open would gather one callback for each wait.
            for pass_request in asked:
                pass_request.answer._forget_callback(tell)

    def _wait(self, future: Future[Any], timeout: float | None, pass_request: PassRequest) -> None:
        """Waits for the future or the time; to those who watch, it is the question's wait."""
        observer = self._worker.observer
        with nullcontext() if observer is None else observer.waiting(pass_request.answer):
            self._worker.host.wait(future, timeout)

    def is_working(self, on: WorkerInfo, number: int) -> bool:
        """Whether that worker still works on the question."""
        answer, _ = self._worker.ask_service(on, WORKING, number)
        return bool(answer)

    def _on_working(self, request: ServiceRequest) -> None:
        request.reply(request.header in self.working)
