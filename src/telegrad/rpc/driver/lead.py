"""The lead of a worker's served links, on which others send requests; as a rule one for all.

Where Python runs without its lock there may be several leads, each on a processor (host.py); each
keeps this law for its own links.

The law of this file:

1. One thread leads. It watches all served links together, reads what came and runs requests right
   there, in fair turns among peers; so threads neither fight for the interpreter's lock nor wake
   each other, however many peers there are.
2. Before a request sleeps, its thread gives up the lead; and the monitor takes it from a thread
   whose turn takes longer than a grace period. So no slow handler, nested call or peer that does
   not read delays the others. The thread's own request goes on, counted as one of many. (A request
   that waits for an answer first spins for a while: lookout.py.)
3. Then no thread leads until there is something to do: the monitor watches the whole set, and
   starts a new leader. A request whose wait ends before that regains the lead at once.
4. The lead is not a right to read: each link has its own (link.py). Two threads that both think for
   a moment that they lead do no harm.
5. A thread that waits for an answer on a served link (its request called back to the waiting
   caller) reads that link itself, and takes it out of the set meanwhile.
6. The link whose last turn was longest ago goes first. The system reports first what it reported
   before: a peer that was last in one round, and asks again just after the next has begun, would be
   last in the round after that as well, and have half as many turns as the others.
7. Where several links have something, and this machine has fewer processors than workers, the
   small answers of that round leave together at its end, or after a moment: a peer that is woken
   takes this thread's processor, and the others' requests are served later, with cold caches.
"""

import _thread
import collections
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

# The most seconds that a lead sleeps where there is no lock. An object that another thread drops is
# freed only when the thread that made it runs again (PEP 703), so it runs now and then.
_LONGEST: Final = 2.0
_last_turn = attrgetter("turn_at")


def is_locked() -> bool:
    """Say whether the interpreter's lock lets one thread run at a time."""
    return getattr(sys, "_is_gil_enabled", lambda: True)()


class Lead:
    """A lead of one worker, and the links that it serves."""

    unattended = False
    """See `Link.unattended`: the monitor watches the set as it watches a link."""

    def __init__(self, host: "SocketHost") -> None:
        self._host = host
        self._set = ReadySet()
        self._poll = self._set.poll
        self._bell = Bell()
        self._set.add(self._bell.fileno())
        self._set.watch(self._bell.fileno(), once=False)
        self._spinning = Spinning(host.options.spin, host.spare_processors)
        self._longest = -1 if is_locked() else _LONGEST
        self._links: dict[int, ServedLink] = {}
        # Links with something to read, in the order of their turns.
        self._ready: collections.deque[ServedLink] = collections.deque()
        # Whether processors are few; links of this round that keep their answers, and until when.
        self._keeps = False
        self._kept: collections.deque[ServedLink] = collections.deque()
        self._kept_until = 0.0
        # Guards `_leader`, `_is_coming` and the set of links.
        self._lock = threading.RLock()
        # The id of the thread that leads; 0 if nobody does.
        self._leader = 0
        # Whether a thread of the pool has been started to lead; whether the leader sleeps.
        self._is_coming = False
        self._sleeps = False
        self._closed = False
        self.watched = False
        """Whether the monitor starts a leader when something comes."""
        self.began_at = 0.0
        """When the last turn was begun, by the monotonic clock."""
        self.turn: dict[int, ServedLink] = {}
        """The id of the leading thread, while it is at a turn, and the link whose turn it is.

        Whoever removes the entry has decided: its thread leads on, or the monitor takes the lead.
        """

    def __len__(self) -> int:
        return len(self._links)

    def fileno(self) -> int:
        """Return a descriptor that is ready when one of the links is."""
        return self._set.fileno()

    # The links.

    def add(self, link: "ServedLink") -> None:
        """Serve the link from now on, unless it has ended already."""
        with self._lock:
            if link.closed or self._closed:
                return
            fd = link.connection.fileno()
            self._links[fd] = link
            self._keeps = self._host.spare_processors() < 0
            self._set.add(fd)
            # Whoever armed it before this was too early: the set did not know it.
            link.watched = False
        self.arm(link)
        self.offer()

    def arm(self, link: "ServedLink") -> None:
        """Have the leader read the link when something comes: no other thread does."""
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
            self._keeps = self._host.spare_processors() < 0

    def push(self, link: "ServedLink") -> None:
        """Give the link a turn: frames of it have been received and not handled."""
        if not link.has_turn:
            link.has_turn = True
            self._ready.append(link)
        if not self._leader:
            self.start_attending()
        elif self._sleeps:
            self._bell.ring()

    # The lead itself.

    def start_attending(self) -> None:
        """Start a thread of the pool that leads, unless one is on its way."""
        try:
            with self._lock:
                if self._is_coming or self._leader:
                    return
                self._is_coming = True
            self._host.start(self._run)
        except BaseException:
            # Ctrl-C: the next one that asks starts a thread.
            self._is_coming = False
            raise

    def offer(self) -> None:
        """If no thread leads, have one lead as soon as there is something to do."""
        if self._leader or self._closed:
            return
        if not self._ready:
            self._host.monitor.watch(self)
        # Check again: a link pushed meanwhile found no leader either.
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
        """Give up the lead if this thread has it, before it sleeps; say whether it had it."""
        own, serving.own = serving.own, None
        if own is not None:
            # First, since answers on the link are for this thread: no other is started for them.
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
        """Say whether this thread, which leads, holds other peers' answers or requests."""
        link = self.turn.get(_thread.get_ident())
        if link is None or self._ready or self._kept:
            return True
        return link.is_corked or link.has_frame()

    def has_work(self) -> object:
        """Return a true value if something has come for the leader to do."""
        return self._ready or self._poll(0)

    def regain(self) -> bool:
        """Take the lead again, in the midst of a turn, if it is free; say whether it was."""
        link = serving.path
        if self._leader or self._is_coming or self._ready or link is None or not self._claim():
            return False
        self.began_at = time.monotonic()
        self.turn[_thread.get_ident()] = link  # type: ignore[assignment]
        return True

    def take(self, leader: int) -> None:
        """Take the lead from a thread whose turn has taken long, unless the turn is over."""
        with self._lock:
            # From now on its request counts as one of many.
            link = self._host.handlers.take(self.turn, leader)
            if link is None:
                return
            self._leader = 0
        self._given_up(link)

    def _keep(self, link: "ServedLink", me: int) -> bool:
        """Keep a turn's answers until the end of its round; say whether they are kept."""
        if not self._kept:
            self._kept_until = self.began_at + KEPT_FOR
        link.cork()
        self._kept.append(link)
        if me in self.turn:
            return True
        # The lead was taken, and the answers kept by then were sent.
        link.uncork()
        return False

    def _send_kept(self) -> None:
        """Send the answers kept in this round; called by whichever thread ends it."""
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
        if self._host.handlers.waiting:
            self._host.handlers.fill()

    def nudge(self) -> None:
        """Wake the leading thread, if it sleeps, so that it looks around."""
        if self._sleeps:
            self._bell.ring()

    def is_idle(self) -> bool:
        """Say whether a thread leads and is at no turn."""
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
            # Tasks are late where the system has no thread for them: then this one runs them.
            while not self._closed and not host.late:
                if self._leader != me:
                    # A finalizer waited between two turns, and counts as a request since.
                    handlers.leave()
                    if not self._claim():
                        return
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
                    came.sort(key=_last_turn, reverse=True)
                # Before those that are here already: these have just had a turn, and have more.
                ready.extendleft(came)
                for _ in range(len(ready)):
                    try:
                        link = ready.popleft()
                    except IndexError:
                        # Another thread that leads for a moment took it.
                        break
                    link.has_turn = False
                    # Before `turn` is set: a thread that sees the turn must not see an older time.
                    self.began_at = link.turn_at = time.monotonic()
                    serving.path = turn[me] = link
                    if monitor.dozes:
                        monitor.rouse()
                    if kept and (self.began_at > self._kept_until or link.slow):
                        self._send_kept()
                    keeps = (ready or kept) and self._keeps and self._keep(link, me)
                    link.take_turn(me, bool(keeps))
                    if turn.pop(me, None) is None:
                        # Since the lead was lost, this thread's request was counted as one of many.
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
        """Return the ready descriptors, after spinning for a moment and then sleeping."""
        found: list[tuple[int, int]] = self._spinning.spin(self._poll)
        if not found:
            self._sleeps = True
            # Check again: a link pushed before this found no thread asleep to wake.
            if not self._ready and not self._closed:
                began = time.monotonic()
                found = self._poll(self._longest)
                self._spinning.waited(time.monotonic() - began)
            self._sleeps = False
        return found

    def close(self) -> None:
        """Let the leading thread end."""
        self._closed = True
        self._bell.ring()

    def free(self) -> None:
        """Free the descriptors, when no thread leads any more."""
        with self._lock:
            if not self._leader:
                self._set.close()
                self._bell.close()
