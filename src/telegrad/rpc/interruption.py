"""What may come between any two steps of telegrad: Ctrl-C, a signal's handler, a finalizer.

Whatever the collector frees may run a finalizer of the user's, on any thread; a signal's handler
runs on the main thread. Both may call telegrad, and a handler may raise, as that of Ctrl-C does.
The law, for all files beside this one:

1. A lock that is held for some steps is reentrant, and what it guards is whole after each of them:
   who goes through something under it goes through a copy. So a call that interrupts the holder
   ends like any other.
2. A thread can't send a frame, read one or dial a peer while it is at just that. A call that
   interrupts it there is refused (`refusal`), a notice is sent afterwards. Finalizers of telegrad's
   own take no lock: they note what is due, and timers do it (`References.release`).
3. An interrupt that raises ends the connection whose frame it tore, which is told to all who wait
   for something there. A frame that was read is left to whoever reads next, and so is the right to
   read. No call is left open without being settled.
"""

from telegrad.errors import UsageError

__all__ = ["refusal"]


def refusal(peer: str, doing: str) -> UsageError:
    """Return what to raise for a call to a peer that interrupted its own thread in `doing`."""
    return UsageError(
        f"expected no call to {peer!r} from here: a finalizer or a signal's handler interrupted "
        f"this thread in {doing} that worker; call it from another thread"
    )
