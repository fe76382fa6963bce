"""Which of many descriptors have something to read: by epoll, where the system has it.

Any thread may add, watch and remove while another looks. A set has a descriptor itself, which has
something to read when one of its own has: so one set can be watched by another.
"""

import select
import selectors
from collections.abc import Callable
from typing import Final

_EPOLL: Final = hasattr(select, "epoll")
_HUNG_UP: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR if _EPOLL else 0

Ready = list[tuple[int, int]]
"""Descriptors, and what epoll says of each."""


class ReadySet:
    """The descriptors; one that is added and not watched is seen only when its peer hangs up."""

    poll: Callable[[float], Ready]
    """Wait for that many seconds (-1: without an end) until one that is watched is ready."""

    def __init__(self) -> None:
        if _EPOLL:
            self._epoll = select.epoll()
            self.poll = self._epoll.poll
        else:
            self._selector = selectors.DefaultSelector()
            self.poll = self._select

    def fileno(self) -> int:
        """Return the descriptor of the set."""
        if _EPOLL:
            return self._epoll.fileno()
        # Where it has none, -1: nobody else can watch it.
        return getattr(self._selector, "fileno", lambda: -1)()

    def add(self, fd: int) -> None:
        """Notice its end, where the system tells that without a look at what came."""
        if _EPOLL:
            self._epoll.register(fd, select.EPOLLRDHUP)

    def watch(self, fd: int, *, once: bool) -> None:
        """Find it ready when something has come; `once`: the first time only."""
        try:
            if _EPOLL:
                again = select.EPOLLONESHOT if once else 0
                self._epoll.modify(fd, select.EPOLLIN | select.EPOLLRDHUP | again)
            else:
                self._selector.register(fd, selectors.EVENT_READ, once)
        except (OSError, ValueError, KeyError):
            # It is being closed: its end is noticed elsewhere. Or it is watched already.
            pass

    def unwatch(self, fd: int) -> None:
        """Somebody else reads it: notice nothing but its end."""
        try:
            if _EPOLL:
                self._epoll.modify(fd, select.EPOLLRDHUP)
            else:
                self._selector.unregister(fd)
        except (OSError, ValueError, KeyError):
            pass

    def remove(self, fd: int) -> None:
        """Notice nothing more of it."""
        try:
            if _EPOLL:
                self._epoll.unregister(fd)
            else:
                self._selector.unregister(fd)
        except (OSError, ValueError, KeyError):
            pass

    def has_hung_up(self, mask: int) -> bool:
        """Say whether a peer hung up, by what `poll` says of its descriptor."""
        return bool(mask & _HUNG_UP)

    def _select(self, seconds: float) -> Ready:
        keys = [key for key, _ in self._selector.select(None if seconds < 0 else seconds)]
        for key in keys:
            if key.data:
                self.unwatch(key.fd)
        return [(key.fd, 0) for key in keys]

    def close(self) -> None:
        """Free the descriptor of the set."""
        if _EPOLL:
            self._epoll.close()
        else:
            self._selector.close()
