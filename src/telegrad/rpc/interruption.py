"""What may interrupt telegrad between any two steps: Ctrl-C, a signal's handler, a finalizer.

Whatever the collector frees may run a finalizer of the user's, on any thread; a signal's handler
runs on the main thread. Both may call telegrad, and a handler may raise, as that of Ctrl-C does.
These are the rules for all files beside this one and above:

1. A thread that moves bytes (that sends, reads or dials) is `busy`: it is marked here until they
   are in order again. The mark is checked where users call in: a call or a wait is refused, and a
   notice or an answer is sent by another thread. So no thread that is in the middle of a frame, or
   of dialling, starts another. Code of the user's that telegrad itself runs (a handler, a callback,
   a ``__setstate__``) runs while nothing is marked, and may call whatever it likes.
2. Elsewhere a finalizer may call in. For some, such as that of a value that goes with its last
   reference, or of an argument whose call has been served, this is always the place where they
   run, so they must not be refused by chance. Therefore every lock that is held for several steps
   is reentrant, what it guards is consistent after each of them, and what is iterated over under it
   is a copy. Telegrad's own finalizers take no lock: they note what is due, and timers do it
   (`References.release`).
3. A worker may be closed at any point, most likely by a signal's handler. What a thread has just
   taken for a link, it gives back itself when it sees that the link has ended.
4. An interrupt that raises can't be postponed: the handler may be the user's own, and telegrad
   installs none. So it comes wherever Python looks for signals: as a function begins, a loop turns
   or a call has returned. What a socket took is counted in the step that sends it
   (`Connection.went`), so a frame that was begun is finished, by another thread if need be, and
   the interrupt raised when that is in order (`put_off`). Where nobody knows what went, the
   connection ends, which is told to all who wait for something there. A frame that was read is
   put back for the next reader, and so is the right to read. No call is left open without being
   settled. That is why BaseException is caught where a lock, a right, a descriptor or an open call
   would be left behind, and why what has to happen together stands in one line, or in lines that
   call nothing.

`tests/rpc/test_finalizers.py` and `tests/rpc/calls/test_interrupted_anywhere.py` try it.
"""

import _thread
from typing import Final

from telegrad.errors import UsageError

busy: Final[dict[int, object]] = {}
"""The threads that send, by their ids, and those that read or dial, by their ids' complements.

There are two marks, since a thread that dials sends a greeting, and one that reads may close the
worker and tell others. Each has what it is for: a link, or an attempt. The dict is mostly empty, so
`if busy` is all that a call pays. It is set and deleted in lines that call nothing.
"""


put_off: Final[dict[int, BaseException]] = {}
"""Interrupts, by the threads they came to, that are raised when what was sent is in order."""


def raise_put_off() -> None:
    """Raise the interrupt that came to this thread while it sent, if one did."""
    interrupt = put_off.pop(_thread.get_ident(), None)
    if interrupt is not None:
        raise interrupt


def is_busy() -> bool:
    """Say whether a finalizer or a signal's handler runs on a thread that moves bytes."""
    me = _thread.get_ident()
    return me in busy or ~me in busy


def check_not_busy() -> None:
    """Raise UsageError if a finalizer or a signal's handler runs on a thread that moves bytes."""
    if is_busy():
        raise UsageError(
            "expected no call from here: a finalizer or a signal's handler interrupted this "
            "thread while it sent, read or dialled; make the call on another thread, or note what "
            "is to be done and do it later"
        )
