"""One connection and the right to read it.

The law of this file, lazy leader/follower:

1. At most one thread reads a link: the one that has the right to read it. It claims that in one
   step; it never checks first and then acts.
2. A thread that waits for an answer claims the right and reads until the answer is there. Threads
   that find the right taken sleep until their answer comes or they are woken to read.
3. A link whose peer sends requests is served (served_link.py): the leader reads it in its turns.
4. A thread that gives up the right ensures that another one reads what comes: a sleeper; else,
   where the link is served, the leader; else the pool if a frame has been received already, or
   the monitor, which watches the descriptor. Answers for which no thread sleeps and that have no
   callbacks are left for some ticks of the monitor: a thread that sent many calls will most likely
   wait for them now, and reads best undisturbed.
5. A call that a handler makes back to its waiting caller travels on the same link and runs on the
   waiting thread's own stack, so a chain of calls that goes back and forth needs no new threads
   (except one for every `_DEEPEST_STACK` levels, to spare Python's stack).
6. Code that an answer runs on the thread that reads it (a user's ``__setstate__``, a finalizer) may
   wait for another answer: on this link the thread may read, and reads on. While it waits for
   something else no thread reads this link: two threads that wait in this way for each
   other's links wait until a deadline.
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


def _can_nest() -> bool:
    """Say whether this thread may run one more nested call."""
    return serving.depth < _DEEPEST_STACK


class _Waiting:
    """A thread that sleeps until its call is answered, and the nested calls for it to run."""

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
        """Whether a reader of the monitor's, or the leader, reads when something comes."""
        self.unattended = False
        """Whether no thread waits for an expected answer: the monitor sees to it in a while."""
        # Whether an answer has a callback, so that it must be read at once: see `attend`.
        self._is_prompt = False
        # How many bytes had been received when the peer was last pinged.
        self._pinged = -1
        self.anteroom = self._admission = Admission(host.room, peer.name)
        self._reader = FrameReader(
            connection,
            Lookout(host),
            self.sharing,
            self._admission,
            lambda nbytes: host.memory(nbytes),
        )
        # Holds the mark of the thread that reads (see `busy`), if one does, so that claiming the
        # right and noting who has it is one step.
        self._reads: dict[None, int] = {}
        # Guards `_attending` and `_waiting`.
        self._mutex = threading.RLock()
        # Whether a thread of the pool has been started to read.
        self._attending = False
        self._waiting: dict[int, _Waiting] = {}
        self._followers: collections.deque[_thread.LockType] = collections.deque()

    # Reading.

    def fileno(self) -> int:
        """Return the descriptor to poll for input."""
        return self.connection.fileno()

    def has_frame(self) -> bool:
        """Say whether a frame has been received and not handled."""
        return self._reader.has_frame()

    def _watch(self) -> None:
        """Have another thread read when something comes."""
        self._host.monitor.watch(self)

    def _unwatch(self) -> None:
        """Have this thread read the link, instead of the monitor's reader."""
        if self.watched:
            self._host.monitor.unwatch(self)

    def wait(self, call: Call, timeout: float | None, reads: bool) -> None:
        """Return when the call is settled or the time is over, reading meanwhile.

        `reads`: this thread has the right to read already; it is given up here, even if another
        thread settled the call just before.
        """
        me = ~_thread.get_ident()
        end = None if timeout is None else time.monotonic() + timeout
        while reads or not call._done:
            deadline = call.deadline
            if end is not None and end < deadline:
                deadline = end
            if reads or not self._reads:
                task = self._read_until(me, call, deadline, reads)
                reads = False
                if task is not None:
                    self._run_nested(task)
                    continue
            elif self._reads.get(None) == me:
                self._read_within(call, deadline)
            else:
                self._follow(call, deadline)
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

        `reads`: this thread has the right to read already. If another one has just claimed it,
        return at once.
        """
        receive, reader = self._host.worker.receive, self._reader
        try:
            if not reads:
                # `_claim_read`, inlined.
                if self._reads.setdefault(None, me) != me:
                    return None
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
            if not reads:
                # It came just as the right to read was claimed.
                reads = self._reads.get(None) == me
            elif not reader.mend():
                # Nobody knows how much was received: the link ends, and all who wait are told.
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
        """Settle other calls whose answers have been received as well, without a system call."""
        while self._reader.has_frame() and self._receive_next(0.0):
            pass

    def _receive_next(self, deadline: float | None) -> bool:
        """Receive one frame, holding the right to read; False if none came in time."""
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
        """Read on, where this thread is reading already further up its stack."""
        try:
            while not call._done and self._receive_next(deadline):
                pass
        except (OSError, EOFError, WorkerLost, ProtocolViolation) as error:
            self._host.link_failed(self, error)
        except _INTERRUPTS:
            if not self._reader.mend():
                # Handled here: Python drops what a finalizer raises before the outer read sees it.
                self._host.link_failed(self, ConnectionAbortedError("reading was interrupted"))
            raise

    def _hand_over(self, frame: Frame, task: Callable[[], object]) -> bool:
        """Give a nested call to the thread that waits for its parent call; say if there is one."""
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
        """Sleep until the answer or a nested call comes, nobody reads, or the time is over."""
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
            # Ctrl-C: this thread leaves, so others must read the link and run its nested calls.
            for task in self._stop_following(call, waiting, False):
                self._host.start(task)
            raise
        for task in self._stop_following(call, waiting, woken):
            self._run_nested(task)

    def _stop_following(
        self, call: Call, waiting: _Waiting, woken: bool
    ) -> list[Callable[[], object]]:
        """Return the nested calls that came for this thread while it slept."""
        call._forget_sleeper(waiting.sleeper)
        try:
            self._followers.remove(waiting.sleeper)
        except ValueError:
            # This thread was woken to read. If it has no need to any more, wake another.
            if call._done or not woken or waiting.tasks:
                self.offer_read()
        with self._mutex:
            # Another thread that waits for the same call may have replaced the entry.
            if self._waiting.get(call.number) is waiting:
                del self._waiting[call.number]
        return waiting.tasks

    def _claim_read(self, me: int) -> bool:
        """Take the right to read for this thread if it is free; say whether it was."""
        return not self._reads and self._reads.setdefault(None, me) == me

    def give_up_read(self) -> None:
        """Release the right to read, and ensure that another thread reads on."""
        self._reads.clear()
        self._read_released()

    def _read_released(self) -> None:
        if self.closed:
            # This may have been the last thread to use the link, which can then be freed.
            self._host.tidy()
        if self._is_prompt and not self.calls.open:
            self._is_prompt = False
        if self._followers or self._is_prompt:
            self.offer_read()
        elif self.calls.open or self._pinged == self._reader.received:
            # `expects`, inlined, since each wait ends here.
            self.expect()

    def offer_read(self) -> None:
        """If no thread reads, have one read: a follower, the leader or the monitor's reader."""
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
        """Have the monitor look, in a while, for an answer that no thread waits for yet."""
        if self.watched or self.unattended:
            return
        self.unattended = True
        if self._host.monitor.dozes:
            self._host.monitor.rouse()

    def attend(self) -> None:
        """Have an answer read at once: a callback will be told of it."""
        if not self._is_prompt:
            self._is_prompt = True
            if not self.watched:
                self.offer_read()

    def read_on(self) -> None:
        """Have the peer's outstanding answers read, though no thread waits for them."""
        if not self.watched:
            self.offer_read()

    def signs_of_life(self) -> int:
        """Return a number that grows whenever bytes arrive or are read."""
        return self.signs + self._reader.signs_of_life()

    def ping(self) -> None:
        """Ask the peer for a sign of life."""
        self._pinged = self._reader.received
        # Now or not at all: the thread that checks on all peers waits for none.
        self.send(Frame(PING), time.monotonic())

    def expects(self) -> bool:
        """Say whether the peer owes an answer, to a call or to a ping."""
        return bool(self.calls.open or self._pinged == self._reader.received)

    # Serving.

    def start_attending(self) -> None:
        """Start a thread of the pool that reads, unless one is on its way."""
        try:
            with self._mutex:
                if self._attending:
                    return
                self._attending = True
            self._host.start(self._attend)
        except BaseException:
            # Ctrl-C: the next one that asks starts a thread.
            self._attending = False
            raise

    def _attend(self) -> None:
        """Read what is there, on a thread of the pool; wait for room if a request needs it."""
        self._attending = False
        if not self._claim_read(~_thread.get_ident()):
            return
        deadline = None if self._reader.awaits_room else 0.0
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
        """Close the descriptors if no thread uses them; say whether that was so."""
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
