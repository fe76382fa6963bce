"""A call under way: the future of its answer, and the state needed to match and end it."""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from telegrad.errors import CallTimeout, ProtocolViolation
from telegrad.rpc.calls.future import Future, not_settled
from telegrad.rpc.calls.unheard import Unheard
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.timeouts import seconds
from telegrad.tracebacks import own_context

if TYPE_CHECKING:
    from telegrad.rpc.endpoint import Endpoint
    from telegrad.rpc.host import Host
    from telegrad.rpc.references.rref import RRef
    from telegrad.rpc.worker import Worker

_log = logging.getLogger("telegrad.rpc")


class Call(Future[Any]):
    """The future that `rpc_async` and services return.

    `deadline` is a time of the worker's clock. `extra` is what the interceptor sent with the call,
    kept for it until the answer comes, and `taken` what every thread that takes the answer must
    call first, if anything. `forks` are the references sent in it. `said`, which few calls have, is
    its name in errors, in place of `what`. `is_own`: a program holds it, so a failure that the
    program never asks for is logged.
    """

    __slots__ = (
        "code",
        "creates",
        "deadline",
        "endpoint",
        "extra",
        "forks",
        "is_own",
        "is_service",
        "number",
        "said",
        "taken",
        "unheard",
        "what",
        "worker",
    )

    said: str
    is_own: bool
    unheard: Unheard
    """Set where the call has failed and a program holds it."""

    _public = Future._public - {"set_exception", "set_result"} | {"to"}

    def __init__(
        self, worker: "Worker", endpoint: "Endpoint", deadline: float, what: object
    ) -> None:
        # Future.__init__, inlined: this runs for each message.
        self._done = False
        self._value = None
        self._error = None
        self._sleepers = None
        self._callbacks = None
        self._source = None
        self.worker = worker
        self.endpoint = endpoint
        self.deadline = deadline
        self.what = what
        self.number = 0
        self.extra: Any = None
        self.forks: Any = None
        self.is_service = False
        self.taken: Callable[[], None] | None = None
        # The number of the reference that the callee was asked to create, or 0.
        self.creates = 0
        # The digest of a function whose code was sent with this call: a result shows it arrived.
        self.code: Any = None

    def _of(self) -> str:
        return f" of {self.describe()}"

    def _name(self) -> object:
        return getattr(self, "said", None) or getattr(self.what, "__qualname__", self.what)

    def describe(self) -> str:
        """Return what is called, and where."""
        return f"{self._name()} on {self.to.name!r}"

    def too_late(self, failing: str) -> CallTimeout:
        """Return its error at the deadline; `failing` says what the worker did not do."""
        return CallTimeout(
            f"worker {self.to.name!r} {failing} {self._name()!r} before the deadline: give the "
            "call a longer timeout, or see what keeps the worker busy"
        )

    def export(self, reference: "RRef") -> list[Any]:
        """Return the descriptor of a reference that is sent in this call."""
        return self.worker.references.export(self.endpoint, self, reference)

    def fail(self, error: BaseException) -> None:
        """Settle the call with an error."""
        if getattr(self, "is_own", False):
            self.unheard = Unheard(self.describe(), error)
        self._settle(None, error)

    def exception(self) -> BaseException | None:
        """Return the exception of a call that is done, or None if it has a value."""
        self._hear()
        return super().exception()

    def _hear(self) -> None:
        if self._error is not None and hasattr(self, "unheard"):
            self.unheard.hear()

    def _given_up(self) -> None:
        # The program gave the call up on purpose: its failure is not to be logged.
        self.is_own = False
        self._hear()

    @property
    def to(self) -> WorkerInfo:
        """The worker that is called."""
        return self.endpoint.peer

    def value(self) -> Any:
        """Return the answer of a call that is done, or raise its exception."""
        self._hear()
        if self.taken is not None:
            self.taken()
        return super().value()

    def done(self) -> bool:
        """Say whether the answer is there."""
        if not self._done:
            # Perhaps no thread waits for the answer, so have it read.
            self.endpoint.attend()
        return self._done

    def wait(self, timeout: float | None = None) -> Any:
        """Return the answer when it is there, or raise its exception; see `Future.wait`."""
        if timeout is not None:
            timeout = seconds(timeout)
        if not self._done and self.worker.observer is None:
            # The hot path. A call has no `_source`, so there is no chain of futures to follow.
            try:
                self.worker.host.wait(self, timeout)
            except KeyboardInterrupt as interrupt:
                self._given_up()
                interrupt.__context__ = own_context(interrupt)
                raise
            if not self._done and timeout is not None:
                raise not_settled(timeout)
        if self._done and self._error is None:
            if self.taken is not None:
                self.taken()
            return self._value
        try:
            return super().wait(timeout)
        finally:
            self._hear()
            # See Future.wait: the traceback of its exception holds this frame, too.
            del self

    def malformed(self, error: BaseException) -> ProtocolViolation:
        """End the connection because of a malformed answer; return the error to raise."""
        violation = ProtocolViolation(
            f"worker {self.to.name!r} answered {self._name()!r} as no worker does: {error!r}"
        )
        if self.to.name != self.worker.name:
            _log.warning("closed the connection to %s: %s", self.to.name, violation)
            self.worker.endpoint_lost(self.endpoint, violation)
        return violation

    def _wait(self, timeout: float | None) -> None:
        observer = self.worker.observer
        if observer is None:
            super()._wait(timeout)
            return
        with observer.waiting(self):
            super()._wait(timeout)

    def add_done_callback(self, callback: Callable[[Any], Any]) -> None:
        """Call `callback(self)` when the answer is there: now, if it is."""
        super().add_done_callback(callback)
        if not self._done:
            self.endpoint.attend()

    def _waiter(self) -> "Host":
        return self.worker.host

    def _run_all(self, callbacks: list[Callable[[Any], None]]) -> None:
        # Not on this thread: it reads for others, and a callback may wait for an answer it reads.
        run = partial(super()._run_all, callbacks)
        if not self.worker.host.start(run):
            # The worker has shut down: this thread reads for no other any more.
            run()
