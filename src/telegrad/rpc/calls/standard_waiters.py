"""How `concurrent.futures.wait` and `as_completed` wait for a future of ours.

They lock all futures at once, check which are done, and add a waiter to each of the others, by a
future's `_condition`, `_state` and `_waiters`. Futures of ours do not keep these, since a call is
made for each message: the classes here stand in for them.

Invariant: while the condition is held no future is settled. Answers that must be read for a waiter
are read after it is released, since that takes locks of the driver's.
"""

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from telegrad.rpc.calls.future import Future


class Condition:
    """The lock of all futures, in place of the standard library's one for each."""

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._depth = 0
        self._owed: list[Future[Any]] = []

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exception: object) -> None:
        self.release()

    def acquire(self) -> None:
        """Keep all futures from being settled."""
        self._lock.acquire()
        self._depth += 1

    def release(self) -> None:
        """Let them be settled again, after as many releases as there were acquires."""
        self._depth -= 1
        owed: list[Future[Any]] = []
        if not self._depth:
            owed, self._owed = self._owed, owed
        self._lock.release()
        for future in owed:
            # `done` has the answer read: the driver does not know that a thread waits for it.
            future.done()

    def owe(self, future: "Future[Any]") -> None:
        """Have the future's answer read when the condition is free."""
        self._owed.append(future)


class Waiters:
    """The waiters of one future, which are kept among its callbacks."""

    def __init__(self, future: "Future[Any]") -> None:
        self._future = future

    def append(self, waiter: Any) -> None:
        """Tell the waiter when the future is settled; if it is now, the waiter knows that."""
        self._future._add_waiter(partial(tell, waiter))

    def remove(self, waiter: Any) -> None:
        """Tell the waiter no more."""
        for callback in list(self._future._callbacks or ()):
            told = getattr(callback, "_call", None)
            if isinstance(told, partial) and told.func is tell and told.args[0] is waiter:
                self._future._forget_callback(callback)  # type: ignore[arg-type]


def tell(waiter: Any, future: "Future[Any]") -> None:
    """Tell a waiter how a future ended."""
    if future._error is None:
        waiter.add_result(future)
    else:
        waiter.add_exception(future)
