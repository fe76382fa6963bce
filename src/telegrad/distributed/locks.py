"""A lock for each parameter, made when first asked for and gone with the parameter."""

import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

__all__ = ["alone_with"]

_guard = threading.Lock()
_locks: dict[int, tuple["weakref.ref[Any]", threading.Lock]] = {}


@contextmanager
def alone_with(parameters: Iterable[Any]) -> Iterator[None]:
    """While nobody else steps these parameters or has their ``.grad``."""
    # One that is given twice is locked once.
    chosen = {id(parameter): parameter for parameter in parameters}
    with ExitStack() as held:
        with _guard:
            # In one order for all, so that nobody waits in a circle.
            locks = [_lock_of(chosen[key]) for key in sorted(chosen)]
        for lock in locks:
            held.enter_context(lock)
        yield


def _lock_of(parameter: Any) -> threading.Lock:
    key = id(parameter)
    found = _locks.get(key)
    if found is None:
        # Keyed by identity: equality of tensors is elementwise.
        reference = weakref.ref(parameter, lambda _: _locks.pop(key, None))
        found = _locks[key] = (reference, threading.Lock())
    return found[1]
