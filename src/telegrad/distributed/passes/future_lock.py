"""Taking turns: a lock that is waited for as everything else is, through a future.

Whoever has the turn may run hooks of users, which may call other workers. A thread that waited at
a bare lock meanwhile would keep its connection from being read, and virtual time from passing.
"""

import threading
from collections import deque

import msgspec

from telegrad.rpc.calls.future import Future

__all__ = ["FutureLock"]


class FutureLock(msgspec.Struct, eq=False):
    """One at a time; those who have to wait, in the order in which they came.

    Used in a ``with`` statement.
    """

    _turn: threading.Lock = msgspec.field(default_factory=threading.Lock)
    _waiting: deque[Future[None]] = msgspec.field(default_factory=deque)
    _error: BaseException | None = None

    def __enter__(self) -> None:
        if self._turn.acquire(False):
            return
        mine: Future[None] = Future()
        self._waiting.append(mine)
        # The thread that had the turn may have left before it saw this one waiting.
        self._pass_on()
        if self._error is not None:
            mine._settle(None, self._error)
        try:
            mine.wait()
        except BaseException:
            # It gives up (its worker shuts down): a turn that came meanwhile goes to the next.
            try:
                self._waiting.remove(mine)
            except ValueError:
                if mine._error is None:
                    self.__exit__()
            raise

    def end(self, error: BaseException) -> None:
        """Nobody waits any more, now or later: whoever would gets the error.

        Ctrl-C may come between the two halves of giving or taking a turn, and then nobody has it.
        """
        self._error = error
        for each in list(self._waiting):
            each._settle(None, error)

    def __exit__(self, *exception: object) -> None:
        self._turn.release()
        if self._waiting:
            self._pass_on()

    def _pass_on(self) -> None:
        """Gives the turn, if nobody has it, to whoever has waited longest."""
        while self._waiting and self._turn.acquire(False):
            try:
                following = self._waiting.popleft()
            except IndexError:
                # The one that waited gave up. Others may have found the turn taken: look again.
                self._turn.release()
                continue
            if following._settle(None, None):
                return
            # `end` was first: that one gets the error.
            self._turn.release()
