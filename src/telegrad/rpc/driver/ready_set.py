"""Which of many descriptors have something to read; uses epoll where the system has it.

Any thread may add, watch and remove while another polls. The set has a descriptor itself, which is
readable when one of its own is: so one set can be watched by another.
"""

import select
import selectors
from collections.abc import Callable
from typing import Final

_EPOLL: Final = hasattr(select, "epoll")
_HUNG_UP: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR if _EPOLL else 0

Ready = list[tuple[int, int]]
"""Descriptors, and epoll's event mask of each."""


class ReadySet:
    """The descriptors; one that is added but not watched is seen only when its peer hangs up."""

    poll: Callable[[float], Ready]
    """Wait up to so many seconds (-1: for ever) until a watched descriptor is ready."""

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
        # -1 where the selector has none: then no other set can watch this one.
        return getattr(self._selector, "fileno", lambda: -1)()

    def add(self, fd: int) -> None:
        """Notice the descriptor's hang-up, where the system reports that without a read."""
        if _EPOLL:
            self._epoll.register(fd, select.EPOLLRDHUP)

    def watch(self, fd: int, *, once: bool) -> None:
        """Report the descriptor when it has input; `once`: the first time only."""
        try:
            if _EPOLL:
                again = select.EPOLLONESHOT if once else 0
                self._epoll.modify(fd, select.EPOLLIN | select.EPOLLRDHUP | again)
            else:
                self._selector.register(fd, selectors.EVENT_READ, once)
        except (OSError, ValueError, KeyError):
            # It is being closed, which is noticed elsewhere, or is watched already.
            pass

    def unwatch(self, fd: int) -> None:
        """Report only the descriptor's hang-up: another thread reads it."""
        try:
            if _EPOLL:
                self._epoll.modify(fd, select.EPOLLRDHUP)
            else:
                self._selector.unregister(fd)
        except (OSError, ValueError, KeyError):
            pass

    def remove(self, fd: int) -> None:
        """Report the descriptor no more."""
        try:
            if _EPOLL:
                self._epoll.unregister(fd)
            else:
                self._selector.unregister(fd)
        except (OSError, ValueError, KeyError):
            pass

    def has_hung_up(self, mask: int) -> bool:
        """Say whether a peer hung up, given the mask that `poll` returned."""
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
