"""The console of a handler at a breakpoint: the place of its prompt, and who may use it.

1. This process's terminal, if it has one.
2. The terminal of the process that started this one, lent to one worker at a time: see `Lender`.
3. Otherwise a Unix socket in a directory that only this user can enter. A line on standard error
   says how to attach, and the handler waits until the user does; other users are refused.

Only one handler of a process has a prompt at a time; others wait for their turn.
"""

import os
import socket
import sys
import threading
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Final, Protocol

from telegrad.errors import AuthenticationFailed
from telegrad.rpc.transport import PrivateDirectory
from telegrad.rpc.transport.user import check_same_user

if TYPE_CHECKING:
    from telegrad.rpc.worker import Worker

LENDER: Final = "terminal"
"""The name of the Lender in a worker's `attached`."""
_turn: Final = threading.Lock()


class Lender(Protocol):
    """Lends the terminal of another process."""

    def take(self) -> str | None:
        """Wait until the terminal is free and return its path; None if there is none."""

    def give(self) -> None:
        """Return the terminal, for the next worker."""


class Console:
    """The two streams of a prompt, open until `close`."""

    def __init__(self, worker: "Worker", where: str) -> None:
        self.is_own = False
        """Whether this is the process's own terminal, so that lines can be edited."""
        self._lender: Lender | None = None
        _turn.acquire()
        try:
            self.stdin, self.stdout = self._open(worker, where)
        except BaseException:
            self._end()
            raise

    def _open(self, worker: "Worker", where: str) -> tuple[IO[str], IO[str]]:
        if _is_terminal(sys.stdin) and _is_terminal(sys.stdout):
            self.is_own = True
            return sys.stdin, sys.stdout
        self._lender = worker.attached.get(LENDER)
        path = None if self._lender is None else self._lender.take()
        if path is None:
            return _visited(worker, where)
        # It must not become this process's controlling terminal: its Ctrl-C is for the lender.
        stdin = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOCTTY), "r")
        stdout = os.fdopen(os.open(path, os.O_WRONLY | os.O_NOCTTY), "w")
        print(f"worker {worker.name!r} is at a breakpoint", file=stdout, flush=True)
        return stdin, stdout

    def close(self) -> None:
        """Close the streams, and let the next handler have a prompt."""
        if not self.is_own:
            for stream in (self.stdin, self.stdout):
                with suppress(OSError):
                    stream.close()
        self._end()

    def _end(self) -> None:
        try:
            if self._lender is not None:
                self._lender.give()
        finally:
            _turn.release()


def _is_terminal(stream: IO[str] | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        # The stream is closed.
        return False


def _visited(worker: "Worker", where: str) -> tuple[IO[str], IO[str]]:
    """Print how to attach, and return the streams of the user who does."""
    with PrivateDirectory.make() as directory:
        path = directory.socket_address("debug").removeprefix("unix://")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(path)
            listener.listen(1)
            print(
                f"worker {worker.name!r} is at a breakpoint, {where}; attach with: "
                f"telegrad debug {path}",
                file=sys.stderr,
                flush=True,
            )
            while True:
                visitor, _ = listener.accept()
                with visitor, suppress(AuthenticationFailed):
                    check_same_user(visitor)
                    return visitor.makefile("r"), visitor.makefile("w")
