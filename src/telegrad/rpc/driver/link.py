"""One connection and the right to read it.

The law of this file, lazy leader/follower:

1. At most one thread reads a link: the one that has the right to it. That is claimed, never checked
   and then acted upon.
2. A thread that waits for an answer claims it and reads until its answer is there. Those that find
   it taken sleep until their answer came or they are woken to read.
3. A link whose peer sends requests is served (served_link.py): the leader reads it in its turns.
4. The thread that gives the right up sees to it that another finds what comes: a sleeper, else,
   where the link is served, the leader; else the pool if a frame lies in the reader already, or
   the monitor, which watches the descriptor. Answers for which nobody sleeps and that have no
   callbacks are left for some ticks of the monitor: a thread that sent many calls will most likely
   wait for them now, and read best undisturbed.
5. A call that a handler makes back to the one who waits for it travels on the same link and runs
   on the waiting thread's own stack, so a chain of calls that goes back and forth needs no new
   threads (but for one each `_DEEPEST_STACK` levels, to spare Python's stack).
6. What an answer runs on the thread that reads it (a ``__setstate__`` of the user's, a finalizer)
   may wait for another one: there the thread, which may read the link, reads on. While it waits for
   something else nobody reads this link: two threads that so wait for each other's links do it
   until a deadline.
"""

import _thread
import collections
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from telegrad.errors import ProtocolViolation, WorkerLost
from telegrad.rpc.calls.call import Call
from telegrad.rpc.calls.future import wake
from telegrad.rpc.driver.admission import Admission
from telegrad.rpc.driver.frame_reader import FrameReader
from telegrad.rpc.driver.frame_writer import FrameWriter
from telegrad.rpc.driver.handlers import serving
from telegrad.rpc.driver.lookout import Lookout
from telegrad.rpc.interruption import busy
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.transport.connection import Connection
from telegrad.rpc.wire.frames import CREATES, PING, Frame

if TYPE_CHECKING:
    from telegrad.rpc.driver.host import SocketHost

# How many nested calls run within each other on one thread; the next gets another thread.
_DEEPEST_STACK: Final = 12
_INTERRUPTS: Final = (KeyboardInterrupt, SystemExit)


def _read_by_another() -> None:
    """Stand in the place of a task where another thread reads; never called."""


def _can_nest() -> bool:
    """Say whether this thread may run one more call within those that it runs."""
    return serving.depth < _DEEPEST_STACK


class _Waiting:
    """A thread that sleeps until its call is answered, and the nested calls it is to run."""

    __slots__ = ("sleeper", "tasks")

    def __init__(self, sleeper: _thread.LockType) -> None:
        self.sleeper = sleeper
        self.tasks: list[Callable[[], object]] = []


class Link(FrameWriter):
    """A connection of the socket driver, on which this side sends its requests."""

    __slots__ = (
        *("_admission", "_attending", "_followers", "_is_prompt", "_mutex", "_pinged", "_reader"),
        *("_reads", "_waiting", "unattended", "watched"),
    )

    def __init__(self, host: "SocketHost", connection: Connection, peer: WorkerInfo) -> None:
        super().__init__(host, connection, peer)
        self.watched = False
        """Whether somebody reads when something comes: the monitor's reader, or the leader."""
        self.unattended = False
        """Whether an answer is expected that no thread waits for: the monitor looks in a while."""
        # Whether somebody has to be told of an answer at once: see `attend`.
        self._is_prompt = False
        # How many bytes had come when the peer was last asked for a sign of life.
        self._pinged = -1
        self.anteroom = self._admission = Admission(host.room, peer.name)
        self._reader = FrameReader(
            connection,
            Lookout(host),
            self.sharing,
            self._admission,
            lambda nbytes: host.memory(nbytes),
        )
        # Holds the mark of the thread that reads (see `busy`), or nothing: claimed with it in one
        # step.
        self._reads: dict[None, int] = {}
        # Decides who was first, about `_attending` and `_waiting`.
        self._mutex = threading.RLock()
        # Whether a thread of the pool is on its way to read.
        self._attending = False
        self._waiting: dict[int, _Waiting] = {}
        self._followers: collections.deque[_thread.LockType] = collections.deque()

    # Reading.

    def fileno(self) -> int:
        """Return the descriptor that has something to read when something came."""
        return self.connection.fileno()

    def has_frame(self) -> bool:
        """Say whether something lies here that was received and not dealt with."""
        return self._reader.has_frame()

    def _watch(self) -> None:
        """Let somebody read when something comes."""
        self._host.monitor.watch(self)

    def _unwatch(self) -> None:
        """Have this thread read, and the monitor no more."""
        if self.watched:
            self._host.monitor.unwatch(self)

    def wait(self, call: Call, timeout: float | None, reads: bool) -> None:
        """Return when the call is settled or the time is over, reading meanwhile.

        `reads`: the right to read is this thread's already; it is given up, also if another thread
        settled the call just before.
        """
        me = ~_thread.get_ident()
        end = None if timeout is None else time.monotonic() + timeout
        while reads or not call._done:
            deadline = call.deadline
            if end is not None and end < deadline:
                deadline = end
            task = self._read_until(me, call, deadline, reads)
            reads = False
            if task is _read_by_another:
                if self._reads.get(None) == me:
                    self._read_within(call, deadline)
                else:
                    self._follow(call, deadline)
            elif task is not None:
                self._run_nested(task)
                continue
            if call._done:
                return
            now = time.monotonic()
            if now >= call.deadline:
                self._host.worker.outgoing.expire_call(call)
            if end is not None and now >= end:
                return

    def _read_until(
        self, me: int, call: Call, deadline: float, reads: bool
    ) -> Callable[[], object] | None:
        """Read until the call is settled, the time is over, or there is work for this thread.

        `reads`: the right to is this thread's already. Returns `_read_by_another` if it is
        another's.
        """
        receive, reader = self._host.worker.receive, self._reader
        try:
            if not reads:
                # As `_claim_read`, without the call.
                if self._reads or self._reads.setdefault(None, me) != me:
                    return _read_by_another
                reads = True
            reader.is_torn = False
            if self.watched:
                self._unwatch()
            while not call._done:
                busy[me] = self
                try:
                    frame = reader.read(deadline)
                finally:
                    del busy[me]
                if frame is None:
                    return None
                reader.is_torn = False
                try:
                    task = receive(self, frame)
                except _INTERRUPTS:
                    reader.put_back(frame)
                    raise
                if task is None:
                    continue
                if frame.parent == call.number and not frame.flags & CREATES and _can_nest():
                    return task
                if not self._hand_over(frame, task):
                    self._host.serve(self, task)
            if self.calls.open:
                self._take_answers()
            return None
        except (OSError, EOFError, WorkerLost, ProtocolViolation) as error:
            self._host.link_failed(self, error)
            return None
        except _INTERRUPTS:
            if not reads or not reader.mend():
                # It came while the right to read was being claimed, or bytes taken from the stream,
                # and nobody knows whether that was done: the link ends, which is told to all.
                self._host.link_failed(self, ConnectionAbortedError("reading was interrupted"))
            raise
        finally:
            if reads:
                try:
                    self._reads.clear()
                    self._read_released()
                except _INTERRUPTS:
                    self._read_released()
                    raise

    def _take_answers(self) -> None:
        """Settle the calls whose answers came along, since that costs nothing but the settling."""
        while self._reader.has_frame() and self._receive_next(0.0):
            pass

    def _receive_next(self, deadline: float | None) -> bool:
        """Receive one frame, with the right to; False if none came in time."""
        me = ~_thread.get_ident()
        busy[me] = self
        try:
            frame = self._reader.read(deadline)
        finally:
            del busy[me]
        if frame is None:
            return False
        self._reader.is_torn = False
        try:
            task = self._host.worker.receive(self, frame)
        except _INTERRUPTS:
            self._reader.put_back(frame)
            raise
        if task is not None and not self._hand_over(frame, task):
            self._host.serve(self, task)
        return True

    def _read_within(self, call: Call, deadline: float) -> None:
        """Read where this thread reads already, further out on its stack."""
        try:
            while not call._done and self._receive_next(deadline):
                pass
        except (OSError, EOFError, WorkerLost, ProtocolViolation) as error:
            self._host.link_failed(self, error)
        except _INTERRUPTS:
            if not self._reader.mend():
                # Here, since Python drops what a finalizer raises: the outer read never sees it.
                self._host.link_failed(self, ConnectionAbortedError("reading was interrupted"))
            raise

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
        serving.depth += 1
        try:
            task()
        finally:
            serving.depth -= 1

    def _follow(self, call: Call, deadline: float) -> None:
        """Sleep until there is an answer, a nested call, or nobody reads, or the time is over."""
        sleeper = call._new_sleeper()
        if sleeper is None:
            return
        waiting, woken = _Waiting(sleeper), True
        try:
            if _can_nest():
                self._waiting[call.number] = waiting
            self._followers.append(sleeper)
            if self._reads:
                self._host.about_to_sleep()
                left = max(0.0, deadline - time.monotonic())
                woken = sleeper.acquire(True, left if left < _thread.TIMEOUT_MAX else -1)
        except BaseException:
            # Ctrl-C: neither the link nor a nested call may be left to a thread that has gone.
            for task in self._stop_following(call, waiting, False):
                self._host.start(task)
            raise
        for task in self._stop_following(call, waiting, woken):
            self._run_nested(task)

    def _stop_following(
        self, call: Call, waiting: _Waiting, woken: bool
    ) -> list[Callable[[], object]]:
        """Return the nested calls that came for the thread that slept."""
        call._forget_sleeper(waiting.sleeper)
        try:
            self._followers.remove(waiting.sleeper)
        except ValueError:
            # It was offered to us to read. If we don't need it any more, it goes to the next.
            if call._done or not woken or waiting.tasks:
                self.offer_read()
        with self._mutex:
            # Another thread that waits for the same call may have taken the place.
            if self._waiting.get(call.number) is waiting:
                del self._waiting[call.number]
        return waiting.tasks

    def _claim_read(self, me: int) -> bool:
        """Take the right to read for this thread if nobody has it; say whether that was so."""
        return not self._reads and self._reads.setdefault(None, me) == me

    def give_up_read(self) -> None:
        """Release the right to read and see to it that somebody reads on."""
        self._reads.clear()
        self._read_released()

    def _read_released(self) -> None:
        if self.closed:
            # We may be the last to leave: what was ended while we read can be freed now.
            self._host.tidy()
        if self._is_prompt and not self.calls.open:
            self._is_prompt = False
        if self._followers or self._is_prompt:
            self.offer_read()
        elif self.calls.open or self._pinged == self._reader.received:
            # As in `expects`, without the call: each wait ends here.
            self.expect()

    def offer_read(self) -> None:
        """If nobody reads, let another thread: a follower, the leader, or one of the monitor's."""
        if self._reads:
            return
        if self._followers:
            try:
                wake(self._followers.popleft())
                return
            except IndexError:
                pass
        if self.closed or not self.expects():
            return
        if self.has_frame():
            self.start_attending()
        else:
            self._watch()

    def expect(self) -> None:
        """Have the monitor see, in a while, to an answer for which nobody waits yet."""
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
                self.offer_read()

    def read_on(self) -> None:
        """See to it that what the peer owes is read, though no thread waits for it."""
        if not self.watched:
            self.offer_read()

    def spin_at_least(self, seconds: float) -> None:
        """Look so long for what comes before sleeping: what is asked here takes longer."""
        self._reader.spinning.at_least(seconds)

    def signs_of_life(self) -> int:
        """Return a number that grows whenever bytes come."""
        return self.signs + self._reader.received

    def ping(self) -> None:
        """Ask the peer for a sign of life."""
        self._pinged = self._reader.received
        # Now or not at all: the thread that looks after all peers waits for none.
        self.send(Frame(PING), time.monotonic())

    def expects(self) -> bool:
        """Say whether the peer is to send something that has to be read."""
        return bool(self.calls.open or self._pinged == self._reader.received)

    # Serving.

    def start_attending(self) -> None:
        """Let a thread of the pool read, unless one is on its way to do so."""
        with self._mutex:
            if self._attending:
                return
            self._attending = True
        self._host.start(self._attend)

    def _attend(self, deadline: float | None = 0.0) -> None:
        """Read what is there and no more, on a thread of the pool; without a deadline, one frame.

        For that the thread waits: a request needs room.
        """
        self._attending = False
        if not self._claim_read(~_thread.get_ident()):
            return
        try:
            if self.watched:
                self._unwatch()
            while self._receive_next(deadline) and deadline is not None:
                pass
        except (OSError, EOFError, WorkerLost, ProtocolViolation) as error:
            self._host.link_failed(self, error)
        finally:
            self.give_up_read()

    # Ending.

    def close(self) -> None:
        """Wake the threads that read or write; the descriptors go when the last has left."""
        self.closed = True
        self._admission.close()
        self.connection.shutdown()
        with suppress(IndexError):
            while True:
                wake(self._followers.popleft())

    def free(self) -> bool:
        """Close the descriptors if nobody uses them any more; say whether that was so."""
        if not self._claim_read(~_thread.get_ident()):
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
            self._reads.clear()
