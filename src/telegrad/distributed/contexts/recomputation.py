"""Give a checkpoint's second run a context of its own, which ends with it.

Only the values of the second run are needed. In the context of the pass, its messages would never
be used, and would keep its graph alive, here and on the workers it called, until that context ends.
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
