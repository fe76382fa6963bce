"""A lock for each parameter, made on first use and dropped with the parameter."""

import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

_locks: dict[int, tuple["weakref.ref[Any]", threading.Lock]] = {}


@contextmanager
def alone_with(parameters: Iterable[Any]) -> Iterator[None]:
    """Lock these parameters: in the block, no other thread steps them or sets their ``.grad``."""
    # A parameter given twice is locked once.
    chosen = {id(parameter): parameter for parameter in parameters}
    with ExitStack() as stack:
        # All threads lock in the same order, which prevents deadlocks.
        for key in sorted(chosen):
            stack.enter_context(_lock_of(chosen[key]))
        yield


def _lock_of(parameter: Any) -> threading.Lock:
    key = id(parameter)
    found = _locks.get(key)
    if found is None:
        # Keyed by identity: equality of tensors is elementwise.
        reference = weakref.ref(parameter, lambda _: _locks.pop(key, None))
        # Atomic, so it needs no lock: another thread may just have added one.
        found = _locks.setdefault(key, (reference, threading.Lock()))
    return found[1]
