"""A thread that notices when worker processes end, by their sockets."""

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable
from contextvars import Context

from telegrad.distributed.cluster.child import Child


class ChildWatch:
    """The watch of one cluster; `on_end` is called with each child that has ended."""

    def __init__(self, on_end: Callable[[Child], object]) -> None:
        self._on_end = on_end
        self._selector = selectors.DefaultSelector()
        self._ours, self._theirs = socket.socketpair()
        self._selector.register(self._theirs, selectors.EVENT_READ)
        self._is_closed = False
        self._thread = threading.Thread(
            target=Context().run, args=(self._run,), name="telegrad-cluster", daemon=True
        )
        self._thread.start()

    def add(self, child: Child) -> None:
        """Watch a child from now on; if it has ended already, that is noticed, too."""
        self._selector.register(child.line.socket, selectors.EVENT_READ, child)

    def drop(self, child: Child) -> None:
        """Stop watching a child: its socket's number may soon be another's."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(child.line.socket)

    def _run(self) -> None:
        while not self._is_closed:
            for ready, _ in self._selector.select():
                if ready.data is not None and not self._is_closed:
                    self.drop(ready.data)
                    self._on_end(ready.data)

    def close(self) -> None:
        """Stop watching."""
        self._is_closed = True
        self._ours.close()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._selector.close()
        self._theirs.close()
