"""Threads that grow on demand and rest when there is nothing to do.

There is no upper bound, since a bound is a deadlock: a handler may wait for a call that needs
another handler. A thread that has rested for `linger` seconds ends. Invariant: every task taken is
run, alone on its thread: at once or, where the system gives no more threads, by the first thread
that is free or can be started; once closed, the pool takes no tasks.
"""

import _thread
import collections
import itertools
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context

_log = logging.getLogger("telegrad.rpc")


class _Seat:
    """A thread of the pool, its next task, and the lock it rests on: released to wake it."""

    __slots__ = ("bell", "task", "thread")

    def __init__(self) -> None:
        self.bell = _thread.allocate_lock()
        self.bell.acquire()
        self.task: Callable[[], object] | None = None
        self.thread: threading.Thread | None = None


class Pool:
    """The threads of one worker."""

    def __init__(self, name: str, linger: float = 2.0) -> None:
        self._name = name
        self._linger = linger
        self._lock = threading.RLock()
        self._resting: list[_Seat] = []
        self.late: collections.deque[Callable[[], object]] = collections.deque()
        """Tasks that wait because no thread could be started for them."""
        self._seats: dict[_Seat, None] = {}
        self._numbers = itertools.count(1)
        self._closed = False

    def at_work(self) -> int:
        """Return how many threads are running a task."""
        with self._lock:
            return len(self._seats) - len(self._resting)

    def start(self, task: Callable[[], object]) -> bool:
        """Run the task on a thread of its own; if the pool is closed, return False instead."""
        with self._lock:
            if self._closed:
                return False
            if self._resting:
                # Ctrl-C comes before these lines or after them: none but the last calls anything.
                seat = self._resting[-1]
                seat.task = task
                del self._resting[-1]
                seat.bell.release()
                return True
            seat, first = _Seat(), [task]
            name = f"telegrad-{self._name}-{next(self._numbers)}"
            # In a context of its own: it inherits no context variables of the starting thread.
            seat.thread = threading.Thread(
                target=Context().run, args=(self._run, seat, first), name=name, daemon=True
            )
            self._seats[seat] = None
            try:
                seat.thread.start()
            except BaseException as error:
                # Another thread runs the task, unless this one has begun, as it may after Ctrl-C.
                with suppress(IndexError):
                    self.late.append(first.pop())
                    del self._seats[seat]
                if not isinstance(error, RuntimeError):
                    raise
        return True

    def catch_up(self) -> None:
        """Try again to start threads for late tasks."""
        with self._lock:
            if self._closed:
                # The threads that still run take the late tasks.
                return
            late = [*self.late]
            self.late.clear()
        for task in late:
            self.start(task)

    def _run(self, seat: _Seat, first: list[Callable[[], object]]) -> None:
        with suppress(IndexError):
            seat.task = first.pop()
        while True:
            task, seat.task = seat.task, None
            if task is not None:
                try:
                    task()
                except BaseException:
                    # Even SystemExit: the thread must live on, since the pool still counts it.
                    _log.exception("a thread of worker %s failed", self._name)
            del task
            with self._lock:
                if self.late:
                    seat.task = self.late.popleft()
                    continue
                if self._closed:
                    self._seats.pop(seat, None)
                    return
                self._seats[seat] = None
                self._resting.append(seat)
            if seat.bell.acquire(True, self._linger):
                continue
            with self._lock:
                if seat in self._resting:
                    self._resting.remove(seat)
                    self._seats.pop(seat, None)
                    return
            # A task was handed in at the last moment, and its bell is rung.
            seat.bell.acquire()

    def close(self, timeout: float) -> int:
        """End the resting threads and wait for the others; return how many still run."""
        with self._lock:
            self._closed = True
            resting, self._resting = self._resting, []
            seats = list(self._seats)
        for seat in resting:
            seat.bell.release()
        end = time.monotonic() + timeout
        me = threading.current_thread()
        for seat in seats:
            if seat.thread is not None and seat.thread is not me:
                seat.thread.join(max(0.0, end - time.monotonic()))
        with self._lock:
            return len(self._seats)
