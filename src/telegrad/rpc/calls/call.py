"""A call under way: the future of its answer, and what is needed to recognise and end it."""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from telegrad.errors import CallTimeout, ProtocolViolation
from telegrad.rpc.calls.future import Future, not_settled
from telegrad.rpc.calls.unheard import Unheard
from telegrad.rpc.interruption import put_off, raise_put_off
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

    `deadline` is a time of the worker's clock. `extra` is what the interceptor sent with it, for
    its eyes when the answer comes, and `taken` what every thread that takes the answer has to call
    first, if anything. `forks` are the references that travelled in it. `said`, which few have, is
    what its errors call it instead of `what`. `is_own`: a program holds it, and is told if it fails
    and goes unasked.
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
    """Of a failed one that a program holds."""

    _public = Future._public - {"set_exception", "set_result"} | {"to"}

    def __init__(
        self, worker: "Worker", endpoint: "Endpoint", deadline: float, what: object
    ) -> None:
        # What Future's own does, without the call: this is made for each message.
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
        # The reference that the callee was asked to create.
        self.creates = 0
        # The digest of a function whose code went with this call: a result shows it arrived.
        self.code: Any = None

    def _of(self) -> str:
        return f" of {self.describe()}"

    def _name(self) -> object:
        return getattr(self, "said", None) or getattr(self.what, "__qualname__", self.what)

    def describe(self) -> str:
        """Return what is called, and where."""
        return f"{self._name()} on {self.to.name!r}"

    def too_late(self, failing: str) -> CallTimeout:
        """Return what fails it at its deadline; `failing` says what the worker did not do."""
        return CallTimeout(
            f"worker {self.to.name!r} {failing} {self._name()!r} before the deadline: give the "
            "call a longer timeout, or see what keeps the worker busy"
        )

    def export(self, reference: "RRef") -> list[Any]:
        """Return the descriptor of a reference that travels in this call."""
        return self.worker.references.export(self.endpoint, self, reference)

    def fail(self, error: BaseException) -> None:
        """Settle the call with what befell it."""
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
        # On purpose: what becomes of it is no news to the program.
        self.is_own = False
        self._hear()

    @property
    def to(self) -> WorkerInfo:
        """Who is called."""
        return self.endpoint.peer

    def value(self) -> Any:
        """Return the answer that is there, or raise its exception."""
        self._hear()
        if self.taken is not None:
            self.taken()
        return super().value()

    def done(self) -> bool:
        """Say whether the answer is there."""
        if not self._done:
            # Perhaps nobody waits for the answer, so it has to be read for this one.
            self.endpoint.attend()
        return self._done

    def wait(self, timeout: float | None = None) -> Any:
        """Return the answer when it is there, or raise its exception; see `Future.wait`."""
        if timeout is not None:
            timeout = seconds(timeout)
        if put_off:
            raise_put_off()
        if not self._done and self.worker.observer is None:
            # The hot path. A call has no `_source`, so there is no chain of futures to wait for.
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
        """No worker answers so: end the connection, and return what to raise; `error` tells why."""
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
        # Not here: this thread reads for others, and a callback may wait for what it would read.
        run = partial(super()._run_all, callbacks)
        if not self.worker.host.start(run):
            # The worker has shut down: this thread reads for nobody any more.
            run()
