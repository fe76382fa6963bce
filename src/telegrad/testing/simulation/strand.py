"""Strands: threads that pass one baton, so that blocking code runs deterministically.

A strand is a task on a thread of its own, but only one strand, or the simulation's loop, runs at a
time; the others sleep until they get the baton. Threads are reused, because making one costs more
than most tasks.
"""

import _thread
import threading
from collections.abc import Callable


class SimulatedCrash(BaseException):
    """The worker that this code runs on has died. Don't catch it: a real one can't be caught."""


class _Thread:
    """A thread that runs one strand after another."""

    idle: "list[_Thread]" = []

    def __init__(self) -> None:
        self.go = _thread.allocate_lock()
        self.go.acquire()
        self.strand: Strand | None = None
        threading.Thread(target=self._run, name="telegrad-strand", daemon=True).start()

    def _run(self) -> None:
        while True:
            self.go.acquire()
            strand = self.strand
            assert strand is not None
            strand._run()
            self.strand = None
            back = strand._back
            del strand
            _Thread.idle.append(self)
            back.release()


class Strand:
    """A task, its thread while it has one, and the locks of the baton."""

    def __init__(self, name: str, task: Callable[[], object]) -> None:
        self.name = name
        self.is_done = False
        self.is_killed = False
        self.error: BaseException | None = None
        self._task: Callable[[], object] | None = task
        self._thread: _Thread | None = None
        self._back = _thread.allocate_lock()
        self._back.acquire()

    def resume(self) -> None:
        """Pass the baton to the strand, and get it back when the strand waits or has ended."""
        if self.is_done:
            return
        if self._thread is None:
            self._thread = _Thread.idle.pop() if _Thread.idle else _Thread()
            self._thread.strand = self
        self._thread.go.release()
        self._back.acquire()

    def pause(self) -> None:
        """On the strand: give the baton back, and sleep until it comes again."""
        thread = self._thread
        assert thread is not None
        self._back.release()
        thread.go.acquire()
        if self.is_killed:
            raise SimulatedCrash(self.name)

    def kill(self) -> None:
        """Unwind the strand, wherever it waits."""
        self.is_killed = True
        if self._thread is None:
            self.is_done = True
        else:
            self.resume()

    def _run(self) -> None:
        task, self._task = self._task, None
        try:
            assert task is not None
            if not self.is_killed:
                task()
        except BaseException as error:
            self.error = error
        finally:
            self.is_done = True
