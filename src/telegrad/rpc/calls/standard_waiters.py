"""How `concurrent.futures.wait` and `as_completed` wait for a future of ours.

They lock all futures at once, look which are done, and hang a waiter on each of the others; what
they use for it are a future's `_condition`, `_state` and `_waiters`. A future of ours has none of
its own, since a call is made for each message: these stand in for them.

Invariant: while the condition is held no future is settled; whose answer has to be read is told
when it no longer is, since that takes locks of the driver's.
"""

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from telegrad.rpc.calls.future import Future


class Condition:
    """The lock of all futures, held as the standard library holds that of each."""

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._depth = 0
        self._owed: list[Future[Any]] = []

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exception: object) -> None:
        self.release()

    def acquire(self) -> None:
        """Let no future be settled."""
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
            # Asked, it is read for: nobody sleeps on it in a way that the driver knows.
            future.done()

    def owe(self, future: "Future[Any]") -> None:
        """Have the future's answer read when the condition is free."""
        self._owed.append(future)


class Waiters:
    """The waiters of one future: its callbacks that are such."""

    def __init__(self, future: "Future[Any]") -> None:
        self._future = future

    def append(self, waiter: Any) -> None:
        """Tell the waiter when the future is settled; not if it is, which the waiter knows."""
        self._future._add_waiter(partial(tell, waiter))

    def remove(self, waiter: Any) -> None:
        """Tell it no more."""
        for callback in list(self._future._callbacks or ()):
            told = getattr(callback, "_call", None)
            if isinstance(told, partial) and told.func is tell and told.args[0] is waiter:
                self._future._forget_callback(callback)  # type: ignore[arg-type]


def tell(waiter: Any, future: "Future[Any]") -> None:
    """Let a waiter know how a future ended."""
    if future._error is None:
        waiter.add_result(future)
    else:
        waiter.add_exception(future)
