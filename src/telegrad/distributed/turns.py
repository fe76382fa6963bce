"""Taking turns: a lock that is waited for as everything else is, through a future.

Whoever has the turn may run hooks of users, which may call other workers. A thread that waited at
a bare lock meanwhile would keep its connection from being read, and virtual time from passing.
"""

import threading
from collections import deque

from telegrad.rpc.future import Future

__all__ = ["Turns"]


class Turns:
    """One at a time, first come, first served; used in a ``with`` statement."""

    __slots__ = ("_guard", "_is_taken", "_waiting")

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._is_taken = False
        self._waiting: deque[Future[None]] = deque()

    def __enter__(self) -> None:
        with self._guard:
            if not self._is_taken:
                self._is_taken = True
                return
            mine: Future[None] = Future()
            self._waiting.append(mine)
        try:
            mine.wait()
        except BaseException:
            # It gives up (its worker shuts down): a turn that came meanwhile goes to the next.
            with self._guard:
                if mine in self._waiting:
                    self._waiting.remove(mine)
                    raise
            self.__exit__()
            raise

    def __exit__(self, *exception: object) -> None:
        with self._guard:
            if not self._waiting:
                self._is_taken = False
                return
            following = self._waiting.popleft()
        following._settle(None, None)
