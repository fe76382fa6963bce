"""Pieces of another framework's graph that run side by side, on threads of the worker.

Kernels of such a piece don't hold the interpreter, so pieces that share no node, one for each
micro-batch of a pipeline say, may as well run at the same time. A part of a pass keeps its books by
itself all the same: it hands pieces out, one thread at a time, and takes in what they gave.

To hand one out costs about as much as to run a small one. So they go to threads only where the last
one of this worker that did not, in this pass or an earlier one, took long.
"""

import contextvars
import threading
from collections import deque
from collections.abc import Container
from functools import partial
from typing import Any, Final

from telegrad.graph import Cotangent
from telegrad.rpc.future import Future
from telegrad.rpc.host import Host

__all__ = ["Crew", "Pace"]

# Seconds that a piece takes which is worth a thread.
_LONG: Final = 0.001


class Pace:
    """How long the pieces of one worker take."""

    __slots__ = ("is_long",)

    def __init__(self) -> None:
        self.is_long = False


class Crew:
    """Runs some of the nodes of one part of a pass, at most so many at a time."""

    def __init__(self, host: Host, pace: Pace, nodes: Container[Any], most: int) -> None:
        self._host = host
        self._nodes = nodes
        self._most = most
        self._pace = pace
        self._guard = threading.Lock()
        self._landed: deque[tuple[Any, Any, Exception | None]] = deque()
        self._news: Future[None] | None = None
        self.flying = 0
        """How many were handed out and not taken in."""

    def run(self, node: Any, cotangent: Cotangent) -> Any:
        """What the node gives; None if it runs on another thread now."""
        if node not in self._nodes:
            return node.pull(cotangent)
        if self._pace.is_long and self.flying < self._most:
            run = partial(contextvars.copy_context().run, self._fly, node, cotangent)
            if self._host.start(run):
                self.flying += 1
                return None
        began = self._host.now()
        contributions = node.pull(cotangent)
        self._pace.is_long = self._host.now() - began >= _LONG
        return contributions

    def _fly(self, node: Any, cotangent: Cotangent) -> None:
        contributions, failure = None, None
        try:
            contributions = node.pull(cotangent)
        except Exception as error:
            failure = error
        with self._guard:
            self._landed.append((node, contributions, failure))
            news, self._news = self._news, None
        if news is not None:
            news._settle(None, None)

    def wait(self) -> None:
        """Returns when one has landed, or none flies."""
        with self._guard:
            if self._landed or not self.flying:
                return
            if self._news is None:
                self._news = Future()
            news = self._news
        news.wait()

    def take_in(self) -> tuple[Any, Any, Exception | None] | None:
        """One that has landed, with what it gave or raised; None if there is none."""
        if not self._landed:
            return None
        self.flying -= 1
        return self._landed.popleft()
