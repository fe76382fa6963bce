"""One lead for links of a worker on which others send requests: all of them, as a rule.

Where Python runs without its lock there may be several, on a processor each (host.py); each keeps
this law for the links that it has.

The law of this file:

1. One thread leads. It watches all served links together, reads what came and runs requests right
   there, in fair turns among peers; so threads neither fight for the interpreter's lock nor wake
   each other, however many peers there are.
2. Before a request sleeps for something, its thread gives the lead up; and the monitor takes it
   from a thread whose turn takes longer than a grace period. So no slow handler, nested call or
   peer that does not read keeps the others. What the thread was at goes on, as one request of many.
   (One that waits for an answer first looks for it a while: lookout.py.)
3. Nobody leads then, until there is something to do: the monitor watches the whole set, and starts
   a thread that leads. A request whose wait ends before that has the lead again at once.
4. The lead is no right to read: that is each link's own (link.py). Two threads that both think for
   a moment that they lead do no harm.
5. A thread that waits for an answer on a served link (of a call that its request made back to who
   waits for it) reads that link itself: it is out of the set for so long.
6. The link whose last turn was longest ago goes first. The system tells first of those that it told
   of before: a peer that was last in one round, and asks again just after the next has begun, would
   be last in the one after that, and so have half as many turns as the others.
7. Where several links have something and processors are few, the small answers of that round leave
   together at its end, or after a moment: a peer that is woken takes this thread's processor, and
   what others wait for comes later and finds its caches cold.
"""

import _thread
import collections
import os
import sys
import threading
import time
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from telegrad.rpc.driver.bell import Bell
from telegrad.rpc.driver.frame_writer import KEPT_FOR
from telegrad.rpc.driver.handlers import serving
from telegrad.rpc.driver.ready_set import ReadySet
from telegrad.rpc.driver.spin import Spinning

if TYPE_CHECKING:
    from telegrad.rpc.driver.host import SocketHost
    from telegrad.rpc.driver.served_link import ServedLink

# Seconds that a lead sleeps at most where there is no lock: what a thread has made and another one
# drops goes when the first runs again (PEP 703), so it does now and then.
_LONGEST: Final = 2.0
# With fewer links than this there is a processor for each peer, beside the one of this thread.
_PROCESSORS: Final = os.cpu_count() or 1
_last_turn = attrgetter("turn_at")


def is_locked() -> bool:
    """Say whether the interpreter's lock lets one thread run at a time."""
    return getattr(sys, "_is_gil_enabled", lambda: True)()


class Lead:
    """The lead of one worker, and the links that it is about."""

    unattended = False
    """See `Link.unattended`: the monitor watches the set as it watches a link."""

    def __init__(self, host: "SocketHost") -> None:
        self._host = host
        self._set = ReadySet()
        self._poll = self._set.poll
        self._bell = Bell()
        self._set.add(self._bell.fileno())
        self._set.watch(self._bell.fileno(), once=False)
        self._spinning = Spinning(host.options.spin, host.is_crowded)
        self._longest = -1 if is_locked() else _LONGEST
        self._links: dict[int, ServedLink] = {}
        # Links that have something to read, in the order of their turns.
        self._ready: collections.deque[ServedLink] = collections.deque()
        # Whether processors are few; links of this round that keep their answers, and until when.
        self._keeps = False
        self._kept: collections.deque[ServedLink] = collections.deque()
        self._kept_until = 0.0
        # About who leads.
        self._lock = threading.RLock()
        # The id of the thread that leads; 0 if nobody does.
        self._leader = 0
        # Whether a thread of the pool is on its way to lead, or has nothing to do but wait.
        self._is_coming = False
        self._sleeps = False
        self._closed = False
        self.watched = False
        """Whether the monitor starts a leader when something comes."""
        self.began_at = 0.0
        """When the last turn was begun, by the monotonic clock."""
        self.turn: dict[int, ServedLink] = {}
        """The thread that leads and is at a turn, and the link whose turn it is.

        What takes it out has decided: its thread, which then leads on, or the monitor.
        """

    def __len__(self) -> int:
        return len(self._links)

    def fileno(self) -> int:
        """Return what is ready when one of the links is."""
        return self._set.fileno()

    # The links.

    def add(self, link: "ServedLink") -> None:
        """Serve the link from now on."""
        fd = link.connection.fileno()
        with self._lock:
            self._links[fd] = link
            self._keeps = len(self._links) >= _PROCESSORS
            self._set.add(fd)
        self.arm(link)
        self.offer()

    def arm(self, link: "ServedLink") -> None:
        """Nobody else reads the link: the leader does when something comes."""
        with self._lock:
            if not link.watched and not link.closed:
                link.watched = True
                self._set.watch(link.connection.fileno(), once=False)

    def disarm(self, link: "ServedLink") -> None:
        """Have the current thread read the link itself."""
        with self._lock:
            if link.watched:
                link.watched = False
                self._set.unwatch(link.connection.fileno())

    def remove(self, link: "ServedLink") -> None:
        """Forget the link."""
        with self._lock:
            for fd, known in list(self._links.items()):
                if known is link:
                    del self._links[fd]
                    self._set.remove(fd)
            self._keeps = len(self._links) >= _PROCESSORS

    def push(self, link: "ServedLink") -> None:
        """Give the link a turn: something of it lies here, read and not dealt with."""
        if not link.has_turn:
            link.has_turn = True
            self._ready.append(link)
        if not self._leader:
            self.start_attending()
        elif self._sleeps:
            self._bell.ring()

    # Who leads.

    def start_attending(self) -> None:
        """Let a thread of the pool lead, unless one is on its way to do so."""
        with self._lock:
            if self._is_coming or self._leader:
                return
            self._is_coming = True
        self._host.start(self._run)

    def offer(self) -> None:
        """If nobody leads, let somebody as soon as there is something to do."""
        if self._leader or self._closed:
            return
        if not self._ready:
            self._host.monitor.watch(self)
        # Again: what was pushed meanwhile found nobody either.
        if self._ready:
            self.start_attending()

    def _claim(self) -> bool:
        with self._lock:
            if self._leader or self._closed:
                return False
            self._leader = _thread.get_ident()
        if self.watched:
            self._host.monitor.unwatch(self)
        return True

    def leave(self) -> bool:
        """Give up the lead if this thread has it, because it is about to sleep; say whether."""
        own, serving.own = serving.own, None
        if own is not None:
            # First: what comes on it is for this thread, and nobody is to be started for it.
            own.lead.disarm(own)
        me = _thread.get_ident()
        if self._leader != me:
            return False
        with self._lock:
            if self._leader != me:
                return False
            link = self.turn.pop(me, None)
            self._leader = 0
        self._given_up(link)
        return True

    def is_mine(self) -> bool:
        """Say whether this thread leads and is at a turn."""
        return _thread.get_ident() in self.turn

    def keeps_others(self) -> bool:
        """Say whether this thread, which leads, has answers or requests of others."""
        link = self.turn.get(_thread.get_ident())
        if link is None or self._ready or self._kept:
            return True
        return link.is_corked or link.has_frame()

    def has_work(self) -> object:
        """Return what has come for who leads, something false if nothing has."""
        return self._ready or self._poll(0)

    def regain(self) -> bool:
        """Take the lead again, in the midst of a turn, if nobody has it; say whether it did."""
        link = serving.path
        if self._leader or self._is_coming or self._ready or link is None or not self._claim():
            return False
        self.began_at = time.monotonic()
        self.turn[_thread.get_ident()] = link  # type: ignore[assignment]
        return True

    def take(self, leader: int) -> None:
        """Take the lead from a thread whose turn has taken long, if it still does."""
        with self._lock:
            link = self.turn.pop(leader, None)
            if link is None:
                return
            self._leader = 0
        # From now on it is one of many.
        self._host.handlers.enter(link)
        self._given_up(link)

    def _keep(self, link: "ServedLink", me: int) -> bool:
        """Let the answers of a turn leave at the end of its round; say whether they do."""
        if not self._kept:
            self._kept_until = self.began_at + KEPT_FOR
        link.cork()
        self._kept.append(link)
        if me in self.turn:
            return True
        # The lead was taken, and what was kept by then was sent.
        link.uncork()
        return False

    def _send_kept(self) -> None:
        """Send the answers of this round that are there; also by who takes the lead."""
        while self._kept:
            try:
                link = self._kept.popleft()
            except IndexError:
                return
            link.uncork()

    def _given_up(self, link: "ServedLink | None") -> None:
        self._send_kept()
        if link is not None:
            link.uncork()
            if link.has_frame():
                self.push(link)
        self.offer()

    def spin_at_least(self, seconds: float) -> None:
        """Look for so long from now on, unless it is turned off: see `Spinning.at_least`."""
        self._spinning.at_least(seconds)

    def nudge(self) -> None:
        """Have the thread that leads look around."""
        if self._sleeps:
            self._bell.ring()

    def is_idle(self) -> bool:
        """Say whether a thread leads and has nothing to do."""
        return bool(self._leader) and not self.turn

    # Leading.

    def _run(self) -> None:
        """Give links their turns for as long as this thread leads."""
        self._is_coming = False
        if not self._claim():
            return
        me = _thread.get_ident()
        host, ready, kept, turn = self._host, self._ready, self._kept, self.turn
        handlers, monitor, links, poll = host.handlers, host.monitor, self._links, self._poll
        serving.counted_by, serving.lead = handlers, self
        try:
            # If requests wait for a thread, none can be had but this one.
            while not self._closed and not host.late:
                found = poll(0)
                if not found and not ready:
                    found = self._wait()
                came = []
                for fd, _ in found:
                    link = links.get(fd)
                    if link is None:
                        self._bell.silence()
                    elif not link.has_turn:
                        link.has_turn = True
                        came.append(link)
                if len(came) > 1:
                    came.sort(key=_last_turn)
                ready.extend(came)
                for _ in range(len(ready)):
                    try:
                        link = ready.popleft()
                    except IndexError:
                        # Another took it, for a moment.
                        break
                    link.has_turn = False
                    # First: a thread that sees the turn sees no older time.
                    self.began_at = link.turn_at = time.monotonic()
                    serving.path = turn[me] = link
                    if monitor.dozes:
                        monitor.rouse()
                    if kept and (self.began_at > self._kept_until or link.slow):
                        self._send_kept()
                    keeps = (ready or kept) and self._keeps and self._keep(link, me)
                    link.take_turn(me, bool(keeps))
                    if turn.pop(me, None) is None:
                        # What it was at counted as one request of many since the lead was lost.
                        handlers.leave()
                        if not self._claim():
                            return
                        break
                    if handlers.waiting:
                        handlers.fill()
                serving.path = None
                if kept:
                    self._send_kept()
        except BaseException:
            with self._lock:
                was_lost = self._leader != me
            if was_lost:
                handlers.leave()
            raise
        finally:
            serving.path = serving.counted_by = serving.lead = None
            self.leave()

    def _wait(self) -> list[tuple[int, int]]:
        """Return what has come, after looking for a moment and then sleeping."""
        found: list[tuple[int, int]] = self._spinning.spin(self._poll)
        if not found:
            self._sleeps = True
            # Again: what was pushed before found nobody asleep.
            if not self._ready and not self._closed:
                began = time.monotonic()
                found = self._poll(self._longest)
                self._spinning.waited(time.monotonic() - began)
            self._sleeps = False
        return found

    def close(self) -> None:
        """Let the thread that leads end."""
        self._closed = True
        self._bell.ring()

    def free(self) -> None:
        """Free the descriptors, when no thread leads any more."""
        with self._lock:
            if not self._leader:
                self._set.close()
                self._bell.close()
