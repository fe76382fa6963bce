"""A lock for each parameter, made when first asked for and gone with the parameter."""

import threading
import weakref
from collections.abc import Iterable
from typing import Any

__all__ = ["locks_of"]

_guard = threading.Lock()
_locks: dict[int, tuple["weakref.ref[Any]", threading.Lock]] = {}


def locks_of(parameters: Iterable[Any]) -> list[threading.Lock]:
    """The locks of these parameters, in one order for all, so that nobody waits in a circle.

    One that is given twice has its lock here once.
    """
    chosen = {id(parameter): parameter for parameter in parameters}
    with _guard:
        return [_lock_of(chosen[key]) for key in sorted(chosen)]


def _lock_of(parameter: Any) -> threading.Lock:
    key = id(parameter)
    found = _locks.get(key)
    if found is None:
        # Keyed by identity: equality of tensors is elementwise.
        reference = weakref.ref(parameter, lambda _: _locks.pop(key, None))
        found = _locks[key] = (reference, threading.Lock())
    return found[1]
