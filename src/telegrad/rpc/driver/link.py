"""One connection and the right to read it.

The law of this file, lazy leader/follower:

1. At most one thread reads a link: the one that has its lead. It is claimed, never checked and
   then acted upon.
2. A thread that waits for an answer claims the lead and reads until its answer is there. Those
   that find it taken sleep until their answer came or they are woken to lead.
3. A link whose peer sends requests is served: a thread of the pool holds the lead, reads a
   request and runs it right there, without any hand-over. While it runs, the lead can be taken
   from it: by itself, when it is about to wait for something else, or by the monitor, when
   requests wait and it has run for longer than a grace period. The token `_serving` decides who
   was first.
4. Whoever gives the lead up sees to it that somebody else finds what comes: a sleeper, the pool if
   a frame lies in the reader already, else the monitor, which watches the descriptor. Answers for
   which nobody sleeps and that have no callbacks are left for some ticks of the monitor: whoever
   sent many calls will most likely wait for them now, and read best undisturbed.
5. A call that a handler makes back to the one who waits for it travels on the same link and runs
   on the waiting thread's own stack, so a chain of calls that goes back and forth needs no new
   threads (but for one each `_DEEPEST_STACK` levels, to spare Python's stack).
6. What an answer runs on the thread that reads it (a ``__setstate__`` of the user's, a finalizer)
   may wait for another one: there the thread, which has the lead, reads on. In the midst of a
   frame it can't, and says so. While it waits for something else nobody reads this link: two
   threads that so wait for each other's links do it until a deadline.
"""

import _thread
import collections
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from telegrad.errors import ProtocolViolation, UsageError, WorkerLost
from telegrad.rpc.calls.future import Future, wake
from telegrad.rpc.driver.admission import Admission
from telegrad.rpc.driver.frame_reader import FrameReader
from telegrad.rpc.driver.frame_writer import FrameWriter
from telegrad.rpc.driver.spin import Spinning
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.transport.connection import Connection
from telegrad.rpc.wire.frames import CREATES, Frame

if TYPE_CHECKING:
    from telegrad.rpc.driver.host import SocketHost

__all__ = ["Link", "serving"]

# How many nested calls run within each other on one thread; the next gets another thread.
_DEEPEST_STACK: Final = 12
# Seconds after which a request counts as slow. After two in a row (one may just have been put
# off by the scheduler) the next gets a thread of its own.
_SLOW: Final = 0.001
_SLOW_IN_A_ROW: Final = 2
_INTERRUPTS: Final = (KeyboardInterrupt, SystemExit)


def _led_by_another() -> None:
    """Returned in place of a task where another thread leads; never called."""


class _Waiting:
    """A thread that sleeps until its call is answered, and the nested calls it is to run."""

    __slots__ = ("sleeper", "tasks")

    def __init__(self, sleeper: _thread.LockType) -> None:
        self.sleeper = sleeper
        self.tasks: list[Callable[[], object]] = []


class _Serving(threading.local):
    """What the current thread is serving: the link whose lead it may hold, and its token."""

    link: "Link | None" = None
    token: object = None
    depth: int = 0


serving = _Serving()


class Link(FrameWriter):
    """A connection of the socket driver. `served`: the peer sends its requests on it."""

    def __init__(
        self, host: "SocketHost", connection: Connection, peer: WorkerInfo, *, served: bool
    ) -> None:
        super().__init__(host, connection, peer)
        self.served = served
        self.watched = False
        """Whether the monitor starts a reader when something comes."""
        self.unattended = False
        """Whether an answer is expected that no thread waits for: the monitor looks in a while."""
        # Whether somebody has to be told of an answer at once: see `attend`.
        self._is_prompt = False
        self._admission = Admission(host.room, peer.name)
        self._reader = FrameReader(
            connection, Spinning(host.options.spin, host.is_crowded), self.sharing, self._admission
        )
        # A frame that was read and not received, because a signal's handler interrupted that:
        # whoever leads next goes on with it. Never on a served link: those are not read by the main
        # thread, the only one that handles signals.
        self._unread: Frame | None = None
        # Holds the id of the thread that leads, or nothing. Claimed together with the id, in one
        # step: a finalizer that interrupts the thread right then must not wait for it.
        self._lead: dict[None, int] = {}
        # Whether the thread that leads is at a whole frame.
        self._is_receiving = False
        # Decides who was first, about `_serving`, `_attending` and `_waiting`. Reentrant: from
        # Python 3.12 on a finalizer may interrupt its holder anywhere, not only where that makes
        # an object.
        self._mutex = threading.RLock()
        # The token of the request that runs on the leading thread, None if none does.
        self._serving: object = None
        # How many requests in a row were slow.
        self._slow = 0
        # Whether a thread of the pool is on its way to read.
        self._attending = False
        self._waiting: dict[int, _Waiting] = {}
        self._followers: collections.deque[_thread.LockType] = collections.deque()

    # Reading.

    def wait(self, future: Future[Any], number: int, deadline: float | None) -> None:
        """Return when the future is settled or the deadline has passed, reading meanwhile."""
        leads = serving.link is self and self._keep_lead(serving.token)
        can_nest = serving.depth < _DEEPEST_STACK
        while not future._done:
            task = self._lead_until(future, number, deadline, can_nest, leads)
            if task is None:
                return
            leads = False
            if task is not _led_by_another:
                self._run_nested(task)
            elif self._lead.get(None) == _thread.get_ident():
                self._read_within(future, deadline)
                return
            elif not self._follow(future, number, deadline, can_nest):
                return

    def _lead_until(
        self,
        future: Future[Any],
        number: int,
        deadline: float | None,
        can_nest: bool,
        leads: bool,
    ) -> Callable[[], object] | None:
        """Read until the future is settled, the time is over, or there is work for this thread.

        `leads`: the lead is this thread's already. Returns `_led_by_another` if it is another's.
        """
        receive, reader = self._host.worker.receive, self._reader
        try:
            if not leads:
                leads = self._claim_lead()
                if not leads:
                    return _led_by_another
            reader.is_torn = False
            if self.watched:
                self._host.monitor.unwatch(self)
            while not future._done:
                self._is_receiving = False
                frame = reader.read(deadline) if self._unread is None else self._take_unread()
                if frame is None:
                    return None
                reader.is_torn = False
                self._is_receiving = True
                self.frames += 1
                try:
                    task = receive(self, frame)
                except _INTERRUPTS:
                    self._unread = frame
                    raise
                if task is None:
                    continue
                if can_nest and frame.parent == number and not frame.flags & CREATES:
                    return task
                if not self._hand_over(frame, task):
                    self._host.start(task)
            if not self.served and self.calls.open:
                self._take_answers()
            return None
        except (OSError, EOFError, WorkerLost, ProtocolViolation) as error:
            self._host.link_failed(self, error)
            return None
        except _INTERRUPTS:
            if not leads or reader.is_torn:
                # It came while the lead was being claimed, or bytes taken from the stream, and
                # nobody knows whether that was done: the link ends, which is told to all.
                self._host.link_failed(self, ConnectionAbortedError("reading was interrupted"))
            raise
        finally:
            if leads:
                try:
                    self._lead.clear()
                    self._lead_released()
                except _INTERRUPTS:
                    self._lead_released()
                    raise

    def _take_answers(self) -> None:
        """Settle the calls whose answers came along, since that costs nothing but the settling."""
        while self._reader.has_frame() and self._receive_next(0.0):
            pass

    def _receive_next(self, deadline: float | None) -> bool:
        """Receive one frame, with the lead; False if none came in time."""
        self._is_receiving = False
        frame = self._reader.read(deadline) if self._unread is None else self._take_unread()
        if frame is None:
            return False
        self._reader.is_torn = False
        self._is_receiving = True
        self.frames += 1
        try:
            task = self._host.worker.receive(self, frame)
        except _INTERRUPTS:
            self._unread = frame
            raise
        if task is not None and not self._hand_over(frame, task):
            self._host.start(task)
        return True

    def _read_within(self, future: Future[Any], deadline: float | None) -> None:
        """Read where this thread leads already, further out on its stack."""
        if not self._is_receiving:
            raise UsageError(
                f"expected no call to {self.peer.name!r} to be waited for here: a finalizer or a "
                "signal's handler interrupted this thread in reading what that worker sent; call "
                "it from another thread"
            )
        try:
            while not future._done and self._receive_next(deadline):
                pass
        except (OSError, EOFError, WorkerLost, ProtocolViolation) as error:
            self._host.link_failed(self, error)
        except _INTERRUPTS:
            if self._reader.is_torn:
                # Here, since Python drops what a finalizer raises: the outer read never sees it.
                self._host.link_failed(self, ConnectionAbortedError("reading was interrupted"))
            raise
        finally:
            # As it was: the outer read is still receiving its frame.
            self._is_receiving = True

    def _take_unread(self) -> Frame | None:
        frame, self._unread = self._unread, None
        return frame

    def _hand_over(self, frame: Frame, task: Callable[[], object]) -> bool:
        """Give a nested call to the thread that waits for the call it belongs to."""
        if not frame.parent or frame.flags & CREATES:
            return False
        with self._mutex:
            waiting = self._waiting.get(frame.parent)
            if waiting is None:
                return False
            waiting.tasks.append(task)
        wake(waiting.sleeper)
        return True

    def _run_nested(self, task: Callable[[], object]) -> None:
        before, serving.link = serving.link, None
        serving.depth += 1
        try:
            task()
        finally:
            serving.depth -= 1
            serving.link = before

    def _follow(
        self, future: Future[Any], number: int, deadline: float | None, can_nest: bool
    ) -> bool:
        """Sleep until there is an answer, a lead or a nested call; False if time is over."""
        sleeper = future._new_sleeper()
        if sleeper is None:
            return True
        waiting = _Waiting(sleeper)
        try:
            if can_nest:
                self._waiting[number] = waiting
            self._followers.append(sleeper)
            if self._host.is_stressed:
                self._host.at("follower enlisted")
            if self._lead:
                left = math.inf if deadline is None else max(0.0, deadline - time.monotonic())
                woken = sleeper.acquire(True, left if left < _thread.TIMEOUT_MAX else -1)
            else:
                woken = True
        except BaseException:
            # Ctrl-C: neither a lead nor a nested call may be left to a thread that has gone.
            for task in self._stop_following(future, number, waiting, False):
                self._host.start(task)
            raise
        for task in self._stop_following(future, number, waiting, woken):
            self._run_nested(task)
        return woken

    def _stop_following(
        self, future: Future[Any], number: int, waiting: _Waiting, woken: bool
    ) -> list[Callable[[], object]]:
        """Return the nested calls that came for the thread that slept."""
        future._forget_sleeper(waiting.sleeper)
        try:
            self._followers.remove(waiting.sleeper)
        except ValueError:
            # The lead was offered to us. If we don't need it any more, it goes to the next.
            if future._done or not woken or waiting.tasks:
                self.offer_lead()
        with self._mutex:
            # Another thread that waits for the same future may have taken the place.
            if self._waiting.get(number) is waiting:
                del self._waiting[number]
        return waiting.tasks

    def _claim_lead(self) -> bool:
        """Take the lead if nobody has it; say whether that was so."""
        me = _thread.get_ident()
        if self._lead or self._lead.setdefault(None, me) != me:
            return False
        self._is_receiving = False
        return True

    def give_up_lead(self) -> None:
        """Release the lead and see to it that somebody reads on."""
        self._lead.clear()
        self._lead_released()

    def _lead_released(self) -> None:
        if self._host.is_stressed:
            self._host.at("lead released")
        if self.closed:
            # We may be the last to leave: what was ended while we read can be freed now.
            self._host.tidy()
        if self._is_prompt and not self.calls.open:
            self._is_prompt = False
        if self._followers or self.served or self._is_prompt:
            self.offer_lead()
        elif self.expects():
            self.expect()

    def offer_lead(self) -> None:
        """If nobody leads, let somebody: a follower, the pool, or whoever the monitor starts."""
        if self._lead:
            return
        if self._followers:
            try:
                wake(self._followers.popleft())
                return
            except IndexError:
                pass
        if not self.closed and (self.served or self.expects()):
            if self._unread is not None or self._reader.has_frame():
                self.start_attending()
            else:
                self._host.monitor.watch(self)

    def expect(self) -> None:
        """An answer will come for which nobody waits yet: the monitor sees to it in a while."""
        if self.watched or self.unattended:
            return
        self.unattended = True
        if self._host.monitor.dozes:
            self._host.monitor.rouse()

    def attend(self) -> None:
        """Somebody has to be told of an answer without waiting for it: read it at once."""
        if not self._is_prompt:
            self._is_prompt = True
            if not self.watched:
                self.offer_lead()

    def read_on(self) -> None:
        """See to it that what the peer owes is read, though no thread waits for it."""
        if not self.watched:
            self.offer_lead()

    def spin_at_least(self, seconds: float) -> None:
        """Look so long for what comes before sleeping: what is asked here takes longer."""
        self._reader.spinning.at_least(seconds)

    def signs_of_life(self) -> int:
        """Return a number that grows with each frame, and with each piece of a large one."""
        return self.frames + self._reader.pieces

    def expects(self) -> bool:
        """Say whether the peer owes this side something."""
        return bool(self.calls.open or self.outbox.entries or self._pinged == self.frames)

    # Serving.

    def start_attending(self) -> None:
        """Let a thread of the pool read, unless one is on its way to do so."""
        with self._mutex:
            if self._attending:
                return
            self._attending = True
        self._host.start(self._attend)

    def _attend(self) -> None:
        """Read for as long as there is something, on a thread of the pool."""
        self._attending = False
        if not self._claim_lead():
            return
        if self.watched:
            self._host.monitor.unwatch(self)
        if self.served:
            self._serve()
        else:
            self._drain()

    def _serve(self) -> None:
        """Read requests and run them here, until the lead is taken away or the link ends."""
        host, read, receive = self._host, self._reader.read, self._host.worker.receive
        leads = True
        token: object = None
        try:
            while True:
                frame = read(None)
                assert frame is not None
                self.frames += 1
                task = receive(self, frame)
                if task is None or (frame.parent and self._hand_over(frame, task)):
                    continue
                if self._slow >= _SLOW_IN_A_ROW:
                    # The last ones took their time. Another thread is cheaper than making whoever
                    # comes next wait for a tick of the monitor.
                    host.start(partial(self._run_timed, task))
                    continue
                token = serving.token = object()
                serving.link = self
                self._serving = token
                if host.monitor.dozes:
                    host.monitor.rouse()
                began = time.perf_counter()
                # Until the request has ended, well or not, the token alone tells.
                leads = False
                task()
                self._slow = self._slow + 1 if time.perf_counter() - began > _SLOW else 0
                serving.link = None
                if host.is_stressed:
                    host.at("request served")
                leads = self._keep_lead(token) or self._claim_lead()
                if not leads:
                    return
                if self.watched:
                    host.monitor.unwatch(self)
        except (OSError, EOFError, WorkerLost, ProtocolViolation) as error:
            host.link_failed(self, error)
        finally:
            serving.link = None
            if leads or self._keep_lead(token):
                self.give_up_lead()

    def _run_timed(self, task: Callable[[], object]) -> None:
        began = time.perf_counter()
        task()
        self._slow = self._slow + 1 if time.perf_counter() - began > _SLOW else 0

    def _drain(self) -> None:
        """Read what is there and no more."""
        try:
            while self._receive_next(0.0):
                pass
        except (OSError, EOFError, WorkerLost, ProtocolViolation) as error:
            self._host.link_failed(self, error)
        finally:
            self.give_up_lead()

    def _keep_lead(self, token: object) -> bool:
        """Stop serving; say whether the lead is still this thread's."""
        with self._mutex:
            if self._serving is not token or token is None:
                return False
            self._serving = None
            return True

    def yield_lead(self, token: object) -> None:
        """Give up the lead of a request that is about to wait, if it was not taken before."""
        if self._keep_lead(token):
            self.give_up_lead()

    def served_token(self) -> object:
        """Return what identifies the request that runs on the leading thread, None if none."""
        return self._serving

    def awaits_request(self) -> bool:
        """Say whether a thread reads here and runs nothing."""
        return self.served and bool(self._lead) and self._serving is None

    # Ending.

    def close(self) -> None:
        """Wake whoever reads or writes; the descriptors go when the last has left."""
        self.closed = True
        self._admission.close()
        self.connection.shutdown()
        with suppress(IndexError):
            while True:
                wake(self._followers.popleft())

    def free(self) -> bool:
        """Close the descriptors if nobody uses them any more; say whether that was so."""
        if not self._claim_lead():
            return False
        try:
            if not self._write.acquire(False):
                return False
            try:
                self.connection.close()
                return True
            finally:
                self._write.release()
        finally:
            self._lead.clear()
