"""Why workers were lost: what they said before they ended, or what their starter knows.

A connection that closes tells nothing. So a program that ends with an uncaught error says so to all
it is connected with, just before; and where this process started the worker, `explain` asks how its
process ended. What is known is said again by the calls that come later, of that incarnation.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from telegrad.errors import ProtocolViolation
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.security.audit import audit

if TYPE_CHECKING:
    from telegrad.rpc.calls.service import ServiceRequest
    from telegrad.rpc.worker import Worker

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
        session = self._worker.peers.get(request.frm.name)
        if session is not None and session.info.incarnation == request.frm.incarnation:
            session.last_words = request.header[:_LONGEST]

    def reason(self, who: WorkerInfo, cause: BaseException) -> str:
        """Return why a worker was lost, in words, and keep it if it is that worker's end."""
        session = self._worker.peers.get(who.name)
        said = str(cause) or type(cause).__name__
        if session is None or session.info.incarnation != who.incarnation:
            return said
        if session.reason is None:
            if isinstance(cause, Farewell):
                session.reason = said
            elif not self._worker.closed and isinstance(cause, EOFError | ConnectionError):
                session.reason = session.last_words or self.explain(who)
        return session.reason or said

    def tell(self, who: WorkerInfo, reason: str, cause: BaseException) -> None:
        """Log that a worker has gone, and why."""
        event = "left" if isinstance(cause, Farewell) else "lost"
        audit(event, self._worker.name, peer=who.name, incarnation=who.incarnation, reason=reason)
