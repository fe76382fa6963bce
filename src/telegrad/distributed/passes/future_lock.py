"""A lock that is waited for as everything else is: through a future.

The thread that has it may run hooks of users, which may call other workers. One that waited at a
bare lock would keep its connection from being read, and virtual time from passing.
"""

import threading
from collections import deque
from contextlib import suppress

import msgspec

from telegrad.rpc.calls.future import Future


class FutureLock(msgspec.Struct, eq=False):
    """Held by one thread at a time; those who wait get it in the order in which they came.

    Used in a ``with`` statement.
    """

    _inner: threading.Lock = msgspec.field(default_factory=threading.Lock)
    _waiting: deque[Future[None]] = msgspec.field(default_factory=deque)
    _error: BaseException | None = None

    def __enter__(self) -> None:
        if self._inner.acquire(False):
            return
        mine: Future[None] = Future()
        self._waiting.append(mine)
        # The thread that had the lock may have left before it saw this one waiting.
        self._hand_over()
        if self._error is not None:
            mine._settle(None, self._error)
        try:
            mine.wait()
        except BaseException:
            # It gives up (its worker shuts down): if it has got the lock, that goes to the next.
            with suppress(ValueError):
                self._waiting.remove(mine)
            if not mine._settle(None, None) and mine._error is None:
                self.__exit__()
            raise

    def end(self, error: BaseException) -> None:
        """Give the error to all who wait, now or later.

        Ctrl-C may come between the two halves of a hand-over, and then nobody has the lock.
        """
        self._error = error
        # One by one: others come and go, without Python's lock also while the queue is copied.
        with suppress(IndexError):
            while True:
                first = self._waiting[0]
                first._settle(None, error)
                with suppress(ValueError):
                    self._waiting.remove(first)

    def __exit__(self, *exception: object) -> None:
        self._inner.release()
        if self._waiting:
            self._hand_over()

    def _hand_over(self) -> None:
        """Give the lock, if nobody has it, to the one that has waited longest."""
        while self._waiting and self._inner.acquire(False):
            try:
                following = self._waiting.popleft()
            except IndexError:
                # The one that waited gave up, or got the error. Others may have found the lock
                # taken: look again.
                self._inner.release()
                continue
            if following._settle(None, None):
                return
            # `end` was first: that one gets the error.
            self._inner.release()
