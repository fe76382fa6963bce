"""Python's debugger for one handler, from a breakpoint to the handler's end.

From a stop until the program goes on (by `continue`, by `quit`, or at the end of the handler), the
session has a prompt and the deadlines rest. It never steps into telegrad's own frames, which come
after the handler's.
"""

import pdb
import sys
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from telegrad.rpc.debugger.console import Console

if TYPE_CHECKING:
    from telegrad.rpc.worker import Worker

_MACHINERY: Final = ("telegrad", "asyncio", "threading", "contextvars")
"""Packages whose frames call a handler."""


class Session(pdb.Pdb):
    """A debugger that talks over a console."""

    def __init__(self, worker: "Worker", frame: FrameType) -> None:
        # Ctrl-C goes to the main thread, but the handler runs on another.
        super().__init__(skip=["telegrad.*"], nosigint=True)
        self._worker = worker
        self._handler = _outermost(frame)
        self._where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        self._console: Console | None = None

    def _take(self) -> None:
        if self._console is None:
            self._worker.rest.begin()
            try:
                self._console = console = Console(self._worker, self._where)
            except BaseException:
                self._worker.rest.end()
                raise
            self.stdin, self.stdout = console.stdin, console.stdout
            self.use_rawinput = console.is_own

    def _give(self) -> None:
        console, self._console = self._console, None
        if console is not None:
            try:
                console.close()
            finally:
                self._worker.rest.end()

    def interaction(self, *arguments: Any, **options: Any) -> Any:
        """Show the prompt."""
        self._take()
        return super().interaction(*arguments, **options)

    def set_continue(self) -> None:
        """Let the program run until the next breakpoint."""
        super().set_continue()
        self._give()

    def set_quit(self) -> None:
        """End the handler, with an exception for its caller."""
        super().set_quit()
        self._give()

    def dispatch_return(self, frame: FrameType, arg: Any) -> Any:
        """Stop debugging once the handler has returned."""
        found = super().dispatch_return(frame, arg)
        if frame is self._handler:
            self._handler = None
            # Python 3.14 traces differently, and has a function to end it.
            getattr(self, "stop_trace", partial(sys.settrace, None))()
            self._give()
            return None
        return found


def _outermost(frame: FrameType) -> FrameType | None:
    """Return the frame of the handler: the user's outermost, as seen from a breakpoint in it."""
    found, here = frame, frame.f_back
    while here is not None:
        if here.f_globals.get("__name__", "").partition(".")[0] not in _MACHINERY:
            found = here
        here = here.f_back
    return found
