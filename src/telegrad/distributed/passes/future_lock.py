"""A lock whose waiters wait for a future.

The holder may run users' hooks, which may call other workers. A thread that waited on a plain lock
would keep its connection from being read, and virtual time from passing.
"""

import threading
from collections import deque
from contextlib import suppress

import msgspec

from telegrad.rpc.calls.future import Future


class FutureLock(msgspec.Struct, eq=False):
    """A lock, used in a ``with`` statement, that waiting threads get in the order they came."""

    _inner: threading.Lock = msgspec.field(default_factory=threading.Lock)
    _waiting: deque[Future[None]] = msgspec.field(default_factory=deque)
    _error: BaseException | None = None

    def __enter__(self) -> None:
        if self._inner.acquire(False):
            return
        mine: Future[None] = Future()
        self._waiting.append(mine)
        # The holder may have released the lock before it saw this thread waiting.
        self._hand_over()
        if self._error is not None:
            mine._settle(None, self._error)
        try:
            mine.wait()
        except BaseException:
            # This thread gives up (its worker shuts down): if it was given the lock, pass that on.
            with suppress(ValueError):
                self._waiting.remove(mine)
            if not mine._settle(None, None) and mine._error is None:
                self.__exit__()
            raise

    def end(self, error: BaseException) -> None:
        """Raise the error in all threads that wait, now or later.

        Needed since Ctrl-C may interrupt a hand-over between its halves: nobody has the lock then.
        """
        self._error = error
        # One by one: other threads change the queue, in free-threaded Python also during a copy.
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
        """Give the lock, if it is free, to the thread that has waited longest."""
        while self._waiting and self._inner.acquire(False):
            try:
                following = self._waiting.popleft()
            except IndexError:
                # The waiting thread gave up or got the error. Meanwhile others may have found the
                # lock taken: look again.
                self._inner.release()
                continue
            if following._settle(None, None):
                return
            # `end` came first: that thread gets the error.
            self._inner.release()
