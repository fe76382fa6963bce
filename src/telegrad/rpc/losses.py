"""Why workers were lost: what they said before they ended, or what whoever started them knows.

A connection that closes tells nothing. So a program that ends with an uncaught error says so to all
it is connected with, just before; and where this process started the worker, `explain` asks how its
process ended. What is known is said again by the calls that come later, of that incarnation.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from telegrad.errors import ProtocolViolation
from telegrad.rpc.names import WorkerInfo

if TYPE_CHECKING:
    from telegrad.rpc.calls.service import ServiceRequest
    from telegrad.rpc.worker import Worker

__all__ = ["Farewell", "Losses"]

_LAST_WORDS: Final = "telegrad.last_words"
_LONGEST: Final = 4000  # Characters.


class Farewell(ConnectionResetError):
    """The peer has left on purpose."""


class Losses:
    """What one worker knows of the ends of others."""

    def __init__(self, worker: "Worker") -> None:
        self._worker = worker
        self.explain: Callable[[WorkerInfo], str | None] = lambda _: None
        """Say how a worker ended whose connection has closed; None if that is not known."""
        self._words: dict[str, tuple[int, str]] = {}
        """By name, with the incarnation: what it said, and is lost for if it is."""
        self._reasons: dict[str, tuple[int, str]] = {}
        worker.register_service(_LAST_WORDS, self._hear, inline=True)

    def say(self, words: str) -> None:
        """Tell the others what this process ends with."""
        for endpoint in self._worker.peers.endpoints():
            # Only at once: it is the end.
            if endpoint.can_send():
                self._worker.outgoing.notify_on(endpoint, _LAST_WORDS, words[:_LONGEST])

    def _hear(self, request: "ServiceRequest") -> None:
        if not isinstance(request.header, str):
            raise ProtocolViolation(f"expected last words as text, got {request.header!r}")
        self._words[request.frm.name] = (request.frm.incarnation, request.header[:_LONGEST])

    def reason(self, who: WorkerInfo, cause: BaseException) -> str:
        """Return why a worker was lost, in words, and keep it if it is that worker's end."""
        known = self.known(who)
        if known is not None:
            return known
        found: str | None = None
        if isinstance(cause, Farewell):
            found = str(cause)
        elif not self._worker.closed and isinstance(cause, EOFError | ConnectionError):
            found = _of(self._words, who) or self.explain(who)
        if found is None:
            return str(cause) or type(cause).__name__
        self._reasons[who.name] = (who.incarnation, found)
        return found

    def known(self, who: WorkerInfo) -> str | None:
        """Return why that incarnation of a worker has ended, if it has and that is known."""
        return _of(self._reasons, who)

    def met(self, who: WorkerInfo) -> None:
        """Forget what was known: the worker lives."""
        self._reasons.pop(who.name, None)


def _of(noted: dict[str, tuple[int, str]], who: WorkerInfo) -> str | None:
    incarnation, words = noted.get(who.name, (0, ""))
    return words if incarnation == who.incarnation and words else None
