"""The thread that sees what nobody else is looking at.

It watches links that have no reader, takes the lead from a request that runs for longer than a
grace period while others wait, and lets the worker's timers run: deadlines, heartbeats, repeated
notices. It runs no user code and never blocks on a peer, so all this works while every user
thread is busy or blocked.

It ticks only while requests are being served or answers have no reader, and the less often the
longer it finds nothing: where many workers share a processor, their ticks add up. `dozes` tells
whoever begins either that it has to be roused, so that a call costs nothing here.
"""

import logging
import select
import selectors
import socket
import threading
import time
from typing import TYPE_CHECKING, Final

from telegrad.rpc.driver.link import Link

if TYPE_CHECKING:
    from telegrad.rpc.driver.host import SocketHost

__all__ = ["Monitor"]

_log = logging.getLogger("telegrad.rpc")
_TICK: Final = 0.002  # Seconds.
# Each tick that finds nothing doubles the time to the next, this many times at most.
_DOUBLINGS: Final = 3
# After this many ticks in a row that find nothing, it dozes.
_IDLE_TICKS: Final = 6
_LONGEST: Final = 2.0  # Seconds that it sleeps at most, dozing or not.
# Seconds for which an answer is left to whoever will wait for it, most likely at once.
_LEFT_ALONE: Final = 0.01
_EPOLL: Final = hasattr(select, "epoll")
_HUNG_UP: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR if _EPOLL else 0


class Monitor:
    """One for each worker of the socket driver."""

    def __init__(self, host: "SocketHost") -> None:
        self._host = host
        # Reentrant: a finalizer of the user's, which the collector may run here, may make a call.
        # So what is gone through under it is a copy.
        self._lock = threading.RLock()
        self._links: dict[int, Link] = {}
        # The requests that ran at the last tick, and since when links are unattended.
        self._running: dict[Link, object] = {}
        self._unattended: dict[Link, float] = {}
        # How many ticks in a row have found nothing.
        self._idle = 0
        self._closed = False
        self.dozes = False
        self.wakes_at = 0.0
        """When it looks around next, if nobody rouses it before."""
        self._timers_at = 0.0
        self._waker, self._wakes = socket.socketpair()
        self._wakes.setblocking(False)
        self._waker.setblocking(False)
        if _EPOLL:
            self._epoll = select.epoll()
            self._epoll.register(self._wakes.fileno(), select.EPOLLIN)
        else:
            self._selector = selectors.DefaultSelector()
            self._selector.register(self._wakes, selectors.EVENT_READ)
        self._thread = threading.Thread(
            target=self._run, name=f"telegrad-monitor-{host.identity.name}", daemon=True
        )

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread and free its descriptors."""
        self._closed = True
        self.rouse()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def rouse(self) -> None:
        """Let the thread look around now, and often for a while."""
        self.dozes = False
        self._idle = 0
        try:
            self._waker.send(b"\0")
        except OSError:
            # Full: it has been roused often enough. Closed: it is no longer needed.
            pass

    def add(self, link: Link) -> None:
        """Look after the link; without a reader, nothing but its end is noticed at first."""
        fd = link.connection.fileno()
        with self._lock:
            self._links[fd] = link
            if _EPOLL:
                self._epoll.register(fd, select.EPOLLRDHUP)

    def readers(self) -> int:
        """Return how many threads wait for requests and do nothing else."""
        with self._lock:
            return sum(link.awaits_request() for link in list(self._links.values()))

    def remove(self, link: Link) -> None:
        """Forget the link."""
        with self._lock:
            for fd, known in list(self._links.items()):
                if known is link:
                    del self._links[fd]
                    self._forget(fd)

    def _forget(self, fd: int) -> None:
        try:
            if _EPOLL:
                self._epoll.unregister(fd)
            else:
                self._selector.unregister(fd)
        except (OSError, KeyError, ValueError):
            pass

    def watch(self, link: Link) -> None:
        """Start a reader as soon as something comes."""
        # Together: a link that is taken for watched and is not would never be read again.
        with self._lock:
            link.watched = True
            fd = link.connection.fileno()
            try:
                if _EPOLL:
                    self._epoll.modify(fd, select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLONESHOT)
                else:
                    self.rouse()
            except (OSError, ValueError):
                # The link is being closed: its end is noticed elsewhere.
                pass

    def unwatch(self, link: Link) -> None:
        """Somebody reads the link again."""
        with self._lock:
            link.watched = False
            if not _EPOLL:
                self.rouse()
                return
            try:
                self._epoll.modify(link.connection.fileno(), select.EPOLLRDHUP)
            except (OSError, ValueError):
                pass

    def _run(self) -> None:
        try:
            while not self._closed:
                for fd, hung_up in self._select(self._patience()):
                    self._attend(fd, hung_up)
                if self._closed:
                    return
                try:
                    self._look_around()
                except Exception:
                    _log.exception("the monitor of worker %s", self._host.identity.name)
        finally:
            if _EPOLL:
                self._epoll.close()
            else:
                self._selector.close()
            self._waker.close()
            self._wakes.close()

    def _patience(self) -> float:
        now = time.monotonic()
        self._timers_at = self._host.worker.next_timer()
        until = min(self._timers_at, now + _LONGEST)
        if self._idle >= _IDLE_TICKS:
            self.dozes = True
            # In this order: whoever begins something now either finds us dozing or is found here.
            with self._lock:
                links = list(self._links.values())
                if any(link.unattended or link.served_token() for link in links):
                    self.dozes = False
        if not self.dozes:
            until = min(until, now + _TICK * 2 ** min(self._idle, _DOUBLINGS))
        self.wakes_at = until
        return max(0.0, until - now)

    def _select(self, patience: float) -> list[tuple[int, bool]]:
        """Return the descriptors on which something came, each with whether its peer hung up."""
        if _EPOLL:
            events = self._epoll.poll(patience)
            return [(fd, bool(mask & _HUNG_UP)) for fd, mask in events]
        with self._lock:
            wanted = {fd for fd, link in list(self._links.items()) if link.watched}
            registered = {key.fd for key in self._selector.get_map().values()}
            registered.discard(self._wakes.fileno())
            for fd in registered - wanted:
                self._forget(fd)
            for fd in wanted - registered:
                self._selector.register(fd, selectors.EVENT_READ)
        return [(key.fd, False) for key, _ in self._selector.select(patience)]

    def _attend(self, fd: int, hung_up: bool) -> None:
        if fd == self._wakes.fileno():
            try:
                self._wakes.recv(4096)
            except BlockingIOError:
                pass
            return
        with self._lock:
            link = self._links.get(fd)
            if link is None:
                return
            if not link.watched:
                if not hung_up:
                    # Another thread has begun to read meanwhile, and finds what came.
                    return
                # Say so once; whoever reads the link finds out by reading.
                self._forget(fd)
            link.watched = False
        link.start_attending()

    def _look_around(self) -> None:
        now = time.monotonic()
        with self._lock:
            links = list(self._links.values())
        busy = False
        running: dict[Link, object] = {}
        unattended: dict[Link, float] = {}
        for link in links:
            if link.unattended:
                since = self._unattended.get(link, now)
                if now - since >= _LEFT_ALONE:
                    link.unattended = False
                    link.offer_lead()
                else:
                    unattended[link] = since
            token = link.served_token()
            if token is None:
                continue
            busy = True
            running[link] = token
            if self._running.get(link) is token:
                # It has run for at least one tick: another thread reads what waits behind it.
                link.yield_lead(token)
        self._running = running
        self._unattended = unattended
        self._idle = 0 if busy else self._idle + 1
        if self._timers_at <= now:
            self._host.worker.run_timers(now)
