"""The thread that watches for everything that no other thread watches for.

It watches links that have no reader, and each lead that no thread has; it takes the lead from a
thread whose turn takes longer than a grace period, so that another thread serves the waiting peers;
and it runs the worker's timers: deadlines, heartbeats, delayed notices. It runs no user code and
never blocks on a peer, so all this works while every user thread is busy or blocked.

It ticks only while requests are being served or answers have no reader, and less often the longer
it finds nothing: where many workers share a processor, their ticks add up, and each tick takes the
interpreter's lock from the leading thread. `dozes` tells a thread that begins to serve, or leaves
an answer unread, that it must rouse the monitor; at other times it costs a call nothing.
"""

import logging
import math
import threading
import time
from contextvars import Context
from typing import TYPE_CHECKING, Final

from telegrad.rpc.driver.bell import Bell
from telegrad.rpc.driver.lead import Lead
from telegrad.rpc.driver.link import Link
from telegrad.rpc.driver.ready_set import ReadySet

if TYPE_CHECKING:
    from telegrad.rpc.driver.host import SocketHost

_log = logging.getLogger("telegrad.rpc")
# Seconds of the shortest tick, which is also the grace period of a leader's turn.
_TICK: Final = 0.002
# Each tick that finds nothing doubles the time to the next, at most this many times; or this many
# while requests are being served and none takes long.
_DOUBLINGS: Final = 3
_DOUBLINGS_SERVING: Final = 2
# After this many ticks in a row that find nothing, it dozes.
_IDLE_TICKS: Final = 6
_LONGEST: Final = 2.0  # The longest sleep in seconds, dozing or not.
# Seconds for which an answer is left to the thread that will most likely soon wait for it.
_LEFT_ALONE: Final = 0.01


class Monitor:
    """One for each worker of the socket driver."""

    def __init__(self, host: "SocketHost") -> None:
        self._host = host
        self._lock = threading.RLock()
        self._links: dict[int, Link | Lead] = {}
        # When the latest turn began, as of the last tick, and since when links are unattended.
        self._begun = 0.0
        self._unattended: dict[Link, float] = {}
        # How many ticks in a row have found nothing.
        self._idle = 0
        self._closed = False
        self.dozes = False
        self.wakes_at = 0.0
        """When the thread looks around next, unless it is roused before."""
        self._timers_at = 0.0
        self._bell = Bell()
        self._set = ReadySet()
        self._set.add(self._bell.fileno())
        self._set.watch(self._bell.fileno(), once=False)
        for lead in host.leads:
            self.add(lead)
        self._thread = threading.Thread(
            target=Context().run,
            args=(self._run,),
            name=f"telegrad-monitor-{host.identity.name}",
            daemon=True,
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
        self._bell.ring()

    def add(self, link: Link | Lead) -> None:
        """Look after the link; until `watch`, notice nothing but its end."""
        fd = link.fileno()
        with self._lock:
            self._links[fd] = link
            self._set.add(fd)

    def remove(self, link: Link) -> None:
        """Forget the link."""
        with self._lock:
            for fd, known in list(self._links.items()):
                if known is link:
                    del self._links[fd]
                    self._set.remove(fd)

    def watch(self, link: Link | Lead) -> None:
        """Start a reader for the link as soon as something comes."""
        # In one step: a link marked as watched that is not would never be read again.
        with self._lock:
            link.watched = True
            self._set.watch(link.fileno(), once=True)

    def unwatch(self, link: Link | Lead) -> None:
        """Stop watching the link: a thread reads it again."""
        with self._lock:
            link.watched = False
            self._set.unwatch(link.fileno())

    def _run(self) -> None:
        try:
            while not self._closed:
                for fd, mask in self._set.poll(self._patience()):
                    self._attend(fd, self._set.has_hung_up(mask))
                if self._closed:
                    return
                try:
                    self._look_around()
                except Exception:
                    _log.exception("the monitor of worker %s", self._host.identity.name)
        finally:
            self._set.close()
            self._bell.close()

    def _patience(self) -> float:
        now = time.monotonic()
        # First this: a timer that is added from now on may be missed here, and rouses this thread.
        self.wakes_at = math.inf
        self._timers_at = self._host.worker.next_timer()
        until = min(self._timers_at, now + _LONGEST)
        if self._idle >= _IDLE_TICKS:
            self.dozes = True
            # In this order: a turn that begins now either sees `dozes` or is seen here.
            with self._lock:
                links = list(self._links.values())
                turns = any(lead.turn for lead in self._host.leads)
                if turns or any(link.unattended for link in links):
                    self.dozes = False
        if not self.dozes:
            until = min(until, now + _TICK * 2 ** min(self._idle, _DOUBLINGS))
        self.wakes_at = until
        return max(0.0, until - now)

    def _attend(self, fd: int, hung_up: bool) -> None:
        if fd == self._bell.fileno():
            self._bell.silence()
            return
        with self._lock:
            link = self._links.get(fd)
            if link is None:
                return
            if not link.watched:
                if not hung_up:
                    # Another thread has begun to read meanwhile, and will find the bytes.
                    return
                # Notice it once; a thread that reads the link sees its end by itself.
                self._set.remove(fd)
            link.watched = False
        link.start_attending()

    def _look_around(self) -> None:
        now = time.monotonic()
        with self._lock:
            links = list(self._links.values())
        unattended: dict[Link, float] = {}
        for link in links:
            if isinstance(link, Link) and link.unattended:
                since = self._unattended.get(link, now)
                if now - since >= _LEFT_ALONE:
                    link.unattended = False
                    link.offer_read()
                else:
                    unattended[link] = since
        self._unattended = unattended
        begun, is_slow, is_serving = 0.0, False, False
        for lead in self._host.leads:
            begun = max(begun, lead.began_at)
            leader = next(iter([*lead.turn]), 0)
            is_serving = is_serving or bool(leader)
            if leader and now - lead.began_at >= _TICK:
                # Another thread serves the waiting peers; tick fast, as it may be slow, too.
                lead.take(leader)
                is_slow = True
        if is_slow:
            self._idle = 0
        elif is_serving or begun != self._begun:
            self._idle = min(self._idle + 1, _DOUBLINGS_SERVING)
        else:
            self._idle += 1
        self._begun = begun
        if self._timers_at <= now:
            self._host.worker.run_timers(now)
