"""The second run of a checkpoint: its calls are recorded in a context of their own, gone with it.

Its values are all that is wanted. Recorded in the context of the pass, its messages would be ones
that nobody uses, and they would hold its graph, here and on the workers it called, until that
context ends.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from telegrad.distributed.contexts.context import CURRENT, ProgramPoint
from telegrad.rpc.current import current_worker

__all__ = ["apart"]


@contextmanager
def apart() -> Iterator[None]:
    """A context for a while, in place of the current one, if there is one."""
    if CURRENT.get() is None:
        yield
        return
    worker = current_worker()
    recorder: Any = worker.interceptor  # A Recorder: there is a context.
    made = recorder.contexts.open(worker.next_id(), None)
    token = CURRENT.set(ProgramPoint(made, ()))
    try:
        yield
    finally:
        CURRENT.reset(token)
        recorder.autograd.leases.release(made.id)
