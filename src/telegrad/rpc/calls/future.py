"""A result that is not there yet.

`Future` has the verbs of `torch.futures.Future`, can be awaited, and given to
`concurrent.futures.wait` and `as_completed`. It knows no network: a thread that has to wait asks
the current worker to do the waiting, because the worker's driver may read sockets meanwhile (or, in
a simulation, let virtual time pass); without a worker it simply sleeps.

A callback goes on with the work of the code that added it: it may run on any thread, but in a copy
of that code's context, so the current worker, and the state of the layers above, are the same.

Invariant: a future is settled once; its sleeping threads wake, and each callback runs once.
"""

import _thread
import contextvars
import logging
import threading
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from telegrad.errors import CallTimeout, Unserializable, UsageError
from telegrad.rpc.calls.request import Request, current_request
from telegrad.rpc.calls.standard_waiters import Condition, Waiters
from telegrad.rpc.timeouts import seconds

if TYPE_CHECKING:
    from telegrad.rpc.host import Host

T = TypeVar("T")
U = TypeVar("U")
_log = logging.getLogger("telegrad.rpc")
# One lock for all futures: it is held for a few assignments. No object is made or dropped under it,
# so the collector does not run in the midst of them.
_lock = threading.RLock()
_condition = Condition(_lock)


class Quick:
    """A callback that neither waits nor fails, so it may run on the thread that settles.

    If it is interrupted, it runs again: twice must be the same as once.
    """

    __slots__ = ("_call",)

    def __init__(self, call: "Callable[[Future[Any]], object]") -> None:
        self._call = call

    def __call__(self, future: "Future[Any]") -> None:
        self._call(future)


class Future(Generic[T]):
    """The outcome of work that runs elsewhere: a value or an exception, set once.

    Examples:
        >>> future = rpc.rpc_async("ps", abs, (-2,))
        >>> future.then(lambda done: done.wait() + 1).wait()
        3
    """

    __slots__ = ("__weakref__", "_callbacks", "_done", "_error", "_sleepers", "_source", "_value")

    _public = frozenset(
        {"add_done_callback", "cancelled", "done", "exception", "result"}
        | {"set_exception", "set_result", "then", "value", "wait"}
    )

    def __init__(self) -> None:
        self._done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._sleepers: list[_thread.LockType] | None = None
        self._callbacks: list[Callable[[Any], None]] | None = None
        # The future that this one is derived from: to wait for this one is to wait for that one.
        self._source: Future[Any] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__}{self._of()}: {self._outcome()}>"

    def _of(self) -> str:
        """Return the part of its repr that says what it is the future of."""
        return ""

    def _outcome(self) -> str:
        if not self._done:
            return "pending"
        if self._error is not None:
            return f"failed with {type(self._error).__qualname__}"
        return f"done, a value of type {type(self._value).__qualname__}"

    def __dir__(self) -> list[str]:
        # Only the methods for programs; the others are for the code that settles it.
        named = {name for name in super().__dir__() if name.startswith("__")}
        return sorted(named | self._public)

    def __reduce__(self) -> Any:
        raise Unserializable(
            "a future belongs to its process: send what wait() returns, or a reference, as "
            "remote() gives"
        )

    def done(self) -> bool:
        """Say whether there is a value or an exception."""
        return self._done

    def value(self) -> T:
        """Return the value of a future that is done, or raise its exception."""
        if not self._done:
            raise UsageError("the future has no value yet: wait() for it, or ask done() first")
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def exception(self) -> BaseException | None:
        """Return the exception of a future that is done, or None if it has a value."""
        if not self._done:
            raise UsageError("the future is not done yet: wait() for it, or ask done() first")
        return self._error

    def wait(self, timeout: float | None = None) -> T:
        """Return the value when it is there, or raise its exception.

        After `timeout` seconds CallTimeout is raised; the future itself goes on.
        """
        if timeout is not None:
            timeout = seconds(timeout)
        if not self._done:
            self._wait(timeout)
        if self._error is not None:
            try:
                raise self._error
            finally:
                # The traceback holds this frame: without `self` in it there is no cycle, and what
                # other frames hold (references, arrays) are freed with the exception.
                del self
        return self._value  # type: ignore[return-value]

    def result(self, timeout: float | None = None) -> T:
        """Return the value when it is there: `wait`, by the standard library's name."""
        return self.wait(timeout)

    def cancelled(self) -> bool:
        """Return False: remote work is never cancelled. The standard library calls this."""
        return False

    @property
    def _state(self) -> str:
        return "FINISHED" if self._done else "PENDING"

    @property
    def _condition(self) -> Condition:
        return _condition

    @property
    def _waiters(self) -> Waiters:
        return Waiters(self)

    def _add_waiter(self, told: "Callable[[Future[Any]], object]") -> None:
        """Call `told(self)` when the future is settled, if it is not; the condition is held."""
        alone: list[Callable[[Any], None]] = [Quick(told)]
        if self._done:
            return
        if self._callbacks is None:
            self._callbacks = alone
        else:
            self._callbacks.extend(alone)
        _condition.owe(self)

    def _wait(self, timeout: float | None) -> None:
        waiter = self._waiter()
        now = time.monotonic if waiter is None else waiter.now
        end = None if timeout is None else now() + timeout
        chain: list[Future[Any]] = [self]
        while (source := chain[-1]._source) is not None:
            chain.append(source)
        for future in reversed(chain):
            if future._done:
                continue
            left = None if end is None else max(0.0, end - now())
            waiter = future._waiter()
            if waiter is None:
                future._sleep(left)
            else:
                waiter.wait(future, left)
        if not self._done:
            raise not_settled(timeout)

    def _waiter(self) -> "Host | None":
        request = current_request.get()
        return None if request is None else request.worker.host

    def _sleep(self, timeout: float | None) -> None:
        """Block this thread, without reading for the worker."""
        sleeper = self._new_sleeper()
        if sleeper is not None:
            if timeout is None or timeout >= _thread.TIMEOUT_MAX:
                timeout = -1
            try:
                sleeper.acquire(True, timeout)
            finally:
                self._forget_sleeper(sleeper)

    def _new_sleeper(self) -> _thread.LockType | None:
        """Return a held lock that is released when the future is settled; None if it is now."""
        sleeper = _thread.allocate_lock()
        sleeper.acquire()
        alone = [sleeper]
        with _lock:
            if self._done:
                return None
            if self._sleepers is None:
                self._sleepers = alone
            else:
                self._sleepers.append(sleeper)
        return sleeper

    def _forget_sleeper(self, sleeper: _thread.LockType) -> None:
        """Drop the lock of a thread that sleeps no more: else each poll would leave one."""
        if self._done:
            return
        with _lock:
            if self._sleepers is not None:
                self._sleepers.remove(sleeper)

    def set_result(self, value: T) -> None:
        """Settle the future with a value."""
        if not self._settle(value, None):
            raise UsageError("the future is settled already: set_result may be called once")

    def set_exception(self, error: BaseException) -> None:
        """Settle the future with an exception, which wait() raises."""
        if not isinstance(error, BaseException):
            raise UsageError(f"expected an exception, got {type(error).__qualname__}")
        if not self._settle(None, error):
            raise UsageError("the future is settled already: set_exception may be called once")

    def _settle(self, value: T | None, error: BaseException | None) -> bool:
        with _lock:
            if self._done:
                return False
            self._value = value
            self._error = error
            self._done = True
            if self._sleepers is None and self._callbacks is None and self._source is None:
                return True
            # Kept until this returns, outside the lock: freeing it may run user finalizers.
            source, self._source = self._source, None  # noqa: F841
        self._tell()
        return True

    def _tell(self) -> None:
        """Wake those who wait for the settled future; after an interrupt, may be repeated."""
        for sleeper in self._sleepers or ():
            wake(sleeper)
        callbacks = self._callbacks or []
        for callback in [*callbacks]:
            if type(callback) is Quick:
                callback(self)
                callbacks.remove(callback)
        if callbacks:
            self._run_all(callbacks)
        self._sleepers = self._callbacks = None

    def _run_all(self, callbacks: list[Callable[[Any], None]]) -> None:
        """Run the callbacks, and take each out of the list: none runs twice."""
        interrupt: BaseException | None = None
        while callbacks:
            try:
                self._run(callbacks.pop(0))
            except IndexError:
                # Another thread that runs them was faster.
                break
            except BaseException as error:
                # Ctrl-C: the other callbacks must still run.
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def _run(self, callback: Callable[[Any], None]) -> None:
        try:
            callback(self)
        except (Exception, SystemExit):
            # Even SystemExit: the callback must not end this thread.
            _log.exception("a callback of a future failed; the future itself is not affected")

    def add_done_callback(self, callback: "Callable[[Future[T]], Any]") -> None:
        """Call `callback(self)` when the future is done: now, if it is."""
        if not callable(callback):
            raise _not_callable(callback)
        if not self._done and type(callback) is not Quick:
            callback = _going_on(callback)
        alone = [callback]
        with _lock:
            if not self._done:
                if self._callbacks is None:
                    self._callbacks = alone
                else:
                    self._callbacks.append(callback)
                return
        self._run(callback)

    def _forget_callback(self, callback: Quick) -> None:
        """Drop the callback of a waiter that gave up: else each poll would leave one."""
        if self._done:
            return
        with _lock:
            if self._callbacks is not None:
                self._callbacks.remove(callback)

    def then(self, callback: "Callable[[Future[T]], U]") -> "Future[U]":
        """Return the future of `callback(self)`, which is called when this one is done."""
        if not callable(callback):
            raise _not_callable(callback)
        following: Future[U] = Future()
        following._source = None if self._done else self

        def follow(done: Future[T]) -> None:
            try:
                following._settle(callback(done), None)
            except BaseException as error:
                # Even SystemExit: the callback must not end this thread.
                following._settle(None, error)

        self.add_done_callback(follow)
        return following

    def _given_up(self) -> None:
        """Note that the waiting thread was interrupted, or its task cancelled."""

    def __await__(self) -> Generator[Any, None, T]:
        import asyncio

        if not self._done:
            loop = asyncio.get_running_loop()
            arrived = loop.create_future()

            def arrive() -> None:
                if not arrived.done():
                    arrived.set_result(None)

            def tell(_: Future[T]) -> None:
                # The waiting task may have given up since, and its loop been closed.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(arrive)

            callback = Quick(tell)
            self.add_done_callback(callback)
            try:
                yield from arrived
            except BaseException:
                self._given_up()
                raise
            finally:
                self._forget_callback(callback)
        return self.value()


def _going_on(callback: "Callable[[Future[Any]], Any]") -> "Callable[[Future[Any]], Any]":
    """Return a function that runs the callback in a copy of the current context."""
    context = contextvars.copy_context()
    request = current_request.get()
    if request is not None and request.can_nest:
        # It runs on another stack, so its calls must not be nested on the caller's waiting thread.
        context.run(current_request.set, Request(request.worker, None, 0, False))
    return lambda done: context.run(callback, done)


def wake(sleeper: _thread.LockType) -> None:
    """Release the lock of a sleeping thread, unless another thread has released it."""
    try:
        sleeper.release()
    except RuntimeError:
        pass


def not_settled(timeout: float | None) -> CallTimeout:
    """Return the error of a wait that ended before its future was settled."""
    within = "" if timeout is None else f" within {timeout:g} s"
    return CallTimeout(f"the future was not settled{within}")


def _not_callable(callback: Any) -> UsageError:
    return UsageError(
        "expected a function that takes the future when it is done, got "
        f"{type(callback).__qualname__}"
    )
