"""Requests that run on threads of their own: a bounded number at once, fairly among peers.

A request that comes when that many run waits for its turn; peers take turns. A request that sleeps
for something itself, by way of a Future, does not count meanwhile: so requests may wait for each
other, nested to any depth, whatever the bound. The requests that leading threads run (lead.py), one
each, count as well.

Invariant: `running` is how many requests run and do not sleep, without those of the leading
threads; a request begins only if, with it, no more than `most` run in all.
"""

import collections
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from telegrad.rpc.endpoint import Endpoint

if TYPE_CHECKING:
    from telegrad.rpc.driver.lead import Lead
    from telegrad.rpc.driver.served_link import ServedLink

Task = Callable[[], object]


class _Serving(threading.local):
    """How the current thread takes part in serving requests."""

    counted_by: "Handlers | None" = None
    """Whose request it runs, leading or as one of many; None while it sleeps."""
    path: Endpoint | None = None
    """The path on which that request came."""
    lead: "Lead | None" = None
    """The lead that it had when it began to serve; it may still have it."""
    own: "ServedLink | None" = None
    """The link that it reads itself while leading; still in the set that it alone polls."""
    led: bool = False
    """Whether it led when it went to sleep."""
    depth: int = 0
    """How many nested calls run within each other on this thread."""


serving = _Serving()


class Handlers:
    """The requests of one worker; `led` says how many the leading threads run."""

    def __init__(
        self,
        start: Callable[[Task], bool],
        most: int,
        led: Callable[[], int],
        most_of_peer: int | None = None,
    ) -> None:
        self._start = start
        self._led = led
        self.most = most
        # The bound of one peer: if it does not read its answers, others still get some threads.
        self._most_of_peer = most_of_peer or most - most // 4
        self._lock = threading.RLock()
        self.running = 0
        self._of_paths: dict[Endpoint | None, int] = {}
        self.waiting: dict[Endpoint, collections.deque[Task]] = {}
        """Requests that have not begun yet, by path; the path whose turn is next comes first."""

    def has_room_for(self, path: Endpoint) -> bool:
        """Say whether a request that comes now on the path may begin at once."""
        return (
            # Each leading thread may be about to run a request. They come first: `take` takes a
            # request from them and adds it to those that run.
            (self._led() or 1) + self.running <= self.most
            and path not in self.waiting
            and self._of_paths.get(path, 0) < self._most_of_peer
        )

    def submit(self, path: Endpoint, task: Task) -> None:
        """Run the task when its turn has come."""
        with self._lock:
            self.waiting.setdefault(path, collections.deque()).append(task)
        self.fill()

    def fill(self) -> None:
        """Begin the requests that may begin."""
        while True:
            with self._lock:
                # Count, then ask: a leading thread first marks its turn, then reads the count.
                self.running += 1
                found = self._next() if self.running + self._led() <= self.most else None
                if found is None:
                    self.running -= 1
                    return
            if not self._start(partial(self._run, *found)):
                # The worker has shut down.
                return

    def _next(self) -> tuple[Endpoint, Task] | None:
        for path, tasks in self.waiting.items():
            if self._of_paths.get(path, 0) < self._most_of_peer:
                task = tasks.popleft()
                del self.waiting[path]
                if tasks:
                    self.waiting[path] = tasks
                self._of_paths[path] = self._of_paths.get(path, 0) + 1
                return path, task
        return None

    def _run(self, path: Endpoint, task: Task) -> None:
        while True:
            serving.path, serving.counted_by = path, self
            try:
                task()
            except BaseException:
                self.leave()
                raise
            finally:
                serving.path = serving.counted_by = None
            # Dropped before the next one runs, since it holds a frame.
            del task
            with self._lock:
                self._forget(path)
                found = self._next() if self.running + self._led() <= self.most else None
                if found is None:
                    self.running -= 1
                    return
            path, task = found
            del found

    def _forget(self, path: Endpoint | None) -> None:
        left = self._of_paths.pop(path, 0)
        if left > 1:
            self._of_paths[path] = left - 1

    def enter(self, path: Endpoint | None = None) -> None:
        """Count a running request: it goes on after a wait, or has kept the lead for long.

        It belongs to the path, by default that of the request that this thread runs.
        """
        path = path or serving.path
        with self._lock:
            self.running += 1
            self._of_paths[path] = self._of_paths.get(path, 0) + 1

    def take(self, turns: "dict[int, ServedLink]", leader: int) -> "ServedLink | None":
        """Count the request of a leading thread as one of many; return the link whose turn it was.

        Return None if the turn is over, or if another thread has the lock: the caller has one, too,
        and tries again later. In one step, so that the request is counted at any time, and before
        its thread can learn of it and stop counting it.
        """
        if not self._lock.acquire(False):
            return None
        try:
            link = turns.pop(leader, None)
            if link is not None:
                self.running += 1
                self._of_paths[link] = self._of_paths.get(link, 0) + 1
            return link
        finally:
            self._lock.release()

    def leave(self) -> None:
        """Stop counting this thread's request: it waits or has ended."""
        with self._lock:
            self.running -= 1
            self._forget(serving.path)
        if self.waiting:
            self.fill()

    def close(self) -> None:
        """Begin no more requests."""
        with self._lock:
            self.waiting.clear()
