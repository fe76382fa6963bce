"""The terminal of a LocalCluster's process, which it lends to one worker at a time.

Workers ask for it by a service of worker 0, and return it when done, or are lost. There is one to
lend only if this process runs in the foreground of a terminal.
"""

import os
import sys
import threading
from collections import deque
from contextlib import suppress
from functools import partial
from typing import Final

from telegrad.errors import PeerError, ProtocolViolation
from telegrad.rpc.calls.service import ServiceRequest
from telegrad.rpc.debugger.console import LENDER
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.worker import Worker

_TAKE: Final = "telegrad.terminal"
_GIVE: Final = "telegrad.terminal.back"


class Terminal:
    """The side of the process that has the terminal."""

    def __init__(self, worker: Worker) -> None:
        self._lock = threading.RLock()
        self._holder: WorkerInfo | None = None
        self._waiting: deque[ServiceRequest] = deque()
        worker.register_service(_TAKE, self._on_take, inline=True)
        worker.register_service(_GIVE, self._on_give, inline=True)
        worker.on_worker_lost(lambda who, _: partial(self._free, who))

    def _on_take(self, request: ServiceRequest) -> None:
        path = _path()
        if path is None:
            request.reply(None)
            return
        with self._lock:
            self._waiting.append(request)
        self._lend()

    def _lend(self) -> None:
        with self._lock:
            if self._holder is not None or not self._waiting:
                return
            request = self._waiting.popleft()
            self._holder = request.frm
        request.reply(_path())

    def _on_give(self, request: ServiceRequest) -> None:
        if self._holder is None or request.frm.name != self._holder.name:
            raise ProtocolViolation(f"{request.frm.name!r} gives back a terminal that it has not")
        self._free(request.frm)
        request.reply(None)

    def _free(self, who: WorkerInfo) -> None:
        """Note that a worker has returned it, or was lost."""
        with self._lock:
            self._waiting = deque(each for each in self._waiting if each.frm.name != who.name)
            if self._holder is not None and self._holder.name == who.name:
                self._holder = None
        self._lend()


def _path() -> str | None:
    """Return the path of this process's terminal; None if there is none to lend."""
    try:
        fd = sys.stdin.fileno()
        if os.isatty(fd) and os.tcgetpgrp(fd) == os.getpgrp() and sys.stdout.isatty():
            return os.ttyname(fd)
    except (AttributeError, OSError, ValueError):
        # There is no such stream, it is not a file of the system, or it is closed.
        pass
    return None


class _Borrowed:
    """The side of a worker: a `Lender`."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def take(self) -> str | None:
        with suppress(PeerError):
            path, _ = self._worker.ask_service(0, _TAKE, timeout=0)
            return str(path) if path is not None else None
        return None

    def give(self) -> None:
        with suppress(PeerError):
            self._worker.ask_service(0, _GIVE)


def borrow_terminal(worker: Worker) -> None:
    """Have a worker ask its starter for the terminal."""
    worker.attached[LENDER] = _Borrowed(worker)
