"""What may interrupt telegrad between any two steps: Ctrl-C, a signal's handler, a finalizer.

Freeing an object may run a user's finalizer, on any thread; a signal's handler runs on the main
thread. Both may call telegrad, and a handler may raise, as that of Ctrl-C does. The rules for all
other files of this folder and of the layers above:

1. A thread that moves bytes (that sends, reads or dials) is `busy`: it is marked here until the
   stream is in order again. Every entry point for users checks the mark: a call or a wait is
   refused, and a notice or an answer is sent by another thread. So no thread that is in the middle
   of a frame, or of dialling, starts another. User code that telegrad itself runs (a handler, a
   callback, a ``__setstate__``) runs while its thread is unmarked, and may call whatever it likes.
2. Elsewhere a finalizer may call in. Some finalizers, such as that of a value freed with its last
   reference, or of an argument whose call has been served, always run inside telegrad, so they
   must not be refused by chance. Therefore every lock that is held for several steps is reentrant,
   the state that it guards is consistent after each step, and loops under it iterate over copies.
   Telegrad's own finalizers take no lock: they note the work, and timers do it
   (`References.release`).
3. A worker may be closed at any point, most likely by a signal's handler. A thread that has just
   acquired something for a link gives it back itself when it sees that the link has ended.
4. An interrupt that raises can't be postponed: the handler may be the user's own, and telegrad
   installs none. So it may come wherever Python checks for signals: as a function begins, a loop
   repeats or a call has returned. The bytes that a socket took are counted in the step that sends
   them (`Connection.unsent`), so a frame that was begun is finished, by another thread if need be,
   and the interrupt is raised afterwards (`put_off`). Where the count is unknown, the connection
   ends, and all who wait on it are told. A frame that was read is put back for the next reader,
   and so is the right to read. No open call is left unsettled. That is why BaseException is caught
   where a lock, a right, a descriptor or an open call would leak, and why steps that must happen
   together stand in one line, or in lines that call nothing.

`tests/rpc/test_finalizers.py` and `tests/rpc/calls/test_interrupted_anywhere.py` test these rules.
"""

import _thread
import threading
from typing import Final

from telegrad.errors import UsageError

busy: Final[dict[int, object]] = {}
"""The threads that send, by their ids, and those that read or dial, by their ids' complements.

There are two marks, since a thread that dials also sends a greeting, and one that reads may close
the worker and tell others. A mark's value is its link or attempt. The dict is mostly empty, so
`if busy` is all that a call pays. Marks are set and deleted in lines that call nothing.
"""


put_off: Final[dict[int, BaseException]] = {}
"""Interrupts to raise when the thread has finished its frame, by the id of the thread."""


def raise_put_off() -> None:
    """Raise the interrupt that came to this thread while it sent, if one did."""
    interrupt = put_off.pop(_thread.get_ident(), None)
    if interrupt is not None:
        raise interrupt


def put_off_if_pressed(error: BaseException) -> None:
    """Put off Ctrl-C that came while the main thread ran a request of others: it is for both.

    What a function raises goes to its caller alone, KeyboardInterrupt like anything else. Ctrl-C is
    told from that by having no arguments.
    """
    if type(error) is KeyboardInterrupt and not error.args:
        me = _thread.get_ident()
        if me == threading.main_thread().ident:
            put_off[me] = error


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
