"""A pool of threads that run regions of another framework's graph in parallel.

A region's kernels release the interpreter's lock, so regions that share no node (such as those of a
pipeline's micro-batches) can run at the same time. Only the region itself runs on another thread:
the thread that holds the local pass's lock takes in its results.

Handing a region to a thread costs about as much as running a small one. So regions go to threads
only if the last one that this worker ran in place, in this pass or an earlier one, took long.
"""

import contextvars
import threading
from collections import deque
from collections.abc import Container
from functools import partial
from typing import Any, Final

from telegrad.graph import Cotangent
from telegrad.rpc.calls.future import Future
from telegrad.rpc.host import Host

# Seconds from which on a region is worth a thread.
_LONG: Final = 0.001


class Pace:
    """Whether the last region that one worker ran in place took long."""

    __slots__ = ("is_long",)

    def __init__(self) -> None:
        self.is_long = False


class RegionPool:
    """Runs the regions of one local pass, at most `most` at a time on other threads."""

    def __init__(self, host: Host, pace: Pace, nodes: Container[Any], most: int) -> None:
        self._host = host
        self._nodes = nodes
        self._most = most
        self._pace = pace
        self._guard = threading.Lock()
        self._finished: deque[tuple[Any, Any, Exception | None]] = deque()
        self._news: Future[None] | None = None
        self.under_way = 0
        """The number of nodes handed to other threads whose results were not taken in yet."""

    def run(self, node: Any, cotangent: Cotangent) -> Any:
        """Run a node and return its contributions, or None if it now runs on another thread."""
        if node not in self._nodes:
            return node.pull(cotangent)
        if self._pace.is_long and self.under_way < self._most:
            run = partial(contextvars.copy_context().run, self._run_on_thread, node, cotangent)
            if self._host.start(run):
                self.under_way += 1
                return None
        began = self._host.now()
        contributions = node.pull(cotangent)
        self._pace.is_long = self._host.now() - began >= _LONG
        return contributions

    def _run_on_thread(self, node: Any, cotangent: Cotangent) -> None:
        contributions, failure = None, None
        try:
            contributions = node.pull(cotangent)
        except Exception as error:
            failure = error
        with self._guard:
            self._finished.append((node, contributions, failure))
            news, self._news = self._news, None
        if news is not None:
            news._settle(None, None)

    def wait(self) -> None:
        """Wait until a node has finished, unless none is under way."""
        with self._guard:
            if self._finished or not self.under_way:
                return
            if self._news is None:
                self._news = Future()
            news = self._news
        news.wait()

    def take_in(self) -> tuple[Any, Any, Exception | None] | None:
        """Return a finished node with its contributions or error; None if there is none."""
        if not self._finished:
            return None
        self.under_way -= 1
        return self._finished.popleft()
