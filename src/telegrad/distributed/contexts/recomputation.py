"""The second run of a checkpoint: its calls are recorded in a context of their own, gone with it.

Its values are all that is wanted. Recorded in the context of the pass, its messages would be ones
that nobody uses, and they would hold its graph, here and on the workers it called, until that
context ends.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from telegrad.distributed.contexts.context import CURRENT, ProgramPoint
from telegrad.distributed.current import autograd_of
from telegrad.rpc.current import current_worker


@contextmanager
def apart() -> Iterator[None]:
    """Enter a new context in place of the current one, if there is one, until the block ends."""
    if CURRENT.get() is None:
        yield
        return
    worker = current_worker()
    autograd = autograd_of(worker)
    made = autograd.contexts.new(worker.next_id())
    token = CURRENT.set(ProgramPoint(made, ()))
    try:
        yield
    finally:
        CURRENT.reset(token)
        autograd.leases.release(made.id)
