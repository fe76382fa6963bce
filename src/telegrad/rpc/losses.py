"""Why workers were lost: their last words, or what the process that started them knows.

A closed connection gives no reason. So a program that ends with an uncaught error first tells it to
all connected workers; and if this process started the lost worker, `explain` says how its process
ended. The reason is kept for the errors of later calls to that incarnation.
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
    """What one worker knows about the ends of others."""

    def __init__(self, worker: "Worker") -> None:
        self._worker = worker
        self.explain: Callable[[WorkerInfo], str | None] = lambda _: None
        """Return how the worker of a closed connection ended, or None if that is not known."""
        worker.register_service(_LAST_WORDS, self._hear, inline=True)

    def say(self, words: str) -> None:
        """Tell the peers why this process ends."""
        for endpoint in self._worker.peers.endpoints():
            # Only if it need not wait: this process is ending.
            if endpoint.can_send():
                self._worker.outgoing.notify_on(endpoint, _LAST_WORDS, words[:_LONGEST])

    def _hear(self, request: "ServiceRequest") -> None:
        if not isinstance(request.header, str):
            raise ProtocolViolation(f"expected last words as text, got {request.header!r}")
        session = self._worker.peers.get(request.frm.name)
        if session is not None and session.info.incarnation == request.frm.incarnation:
            session.last_words = request.header[:_LONGEST]

    def reason(self, who: WorkerInfo, cause: BaseException) -> str:
        """Return why a worker was lost; keep the reason if its process has ended."""
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
        """Log that a worker is gone, and why."""
        event = "left" if isinstance(cause, Farewell) else "lost"
        audit(event, self._worker.name, peer=who.name, incarnation=who.incarnation, reason=reason)
