"""Dual levels: which forward-mode derivatives are being taken, innermost last.

A level is an object; the stack is per thread and async task, and the integers that users see index
it. A tensor's ``tangents`` maps levels to tangents. The tangent at a level may itself carry
tangents of the levels further out, never of those further in: that is the mixed derivative.

Every such map is a ``Tangents``, and every level knows the ``Tangents`` that have an entry of it.
So closing a level removes its tangents everywhere, from copies and saved values too, and dual
tensors become ordinary again; a tangent can't outlive its level by being copied.

A level may have shadows in other processes, and all of them must agree which of two levels is
further in, whichever they met first. So a shadow has the depth of its level: the time of a logical
clock that is ahead of every depth it has seen, and then a number of the process, which orders
levels that know nothing of each other.
"""

import os
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from typing import Any, Final

Depth = tuple[int, int]
"""A time of the clock below, and a number that no other process has."""

# Of 40 bits: with the process id above it, the number of this process.
_SALT: Final = int.from_bytes(os.urandom(5), "big")
# Reentrant, like the lock of a level: a finalizer that runs inside may use levels itself.
_clock_lock = threading.RLock()
_clock = 0


def _next_depth() -> Depth:
    global _clock
    with _clock_lock:
        _clock += 1
        # A forked process has the salt of its parent.
        return _clock, os.getpid() << 40 | _SALT


def _seen(depth: Depth) -> Depth:
    global _clock
    with _clock_lock:
        if depth[0] > _clock:
            _clock = depth[0]
    return depth


class Level:
    """One forward-mode derivative under way."""

    __slots__ = (
        "_lock",
        "depth",
        "holders",
        "is_open",
        "prune_at",
        "records",
        "token",
        "watchers",
    )

    def __init__(self, *, records: bool = True, depth: Depth | None = None) -> None:
        self.records = records
        """Whether its tangents have a history, so that reverse mode can differentiate them."""
        self.depth = _next_depth() if depth is None else _seen(depth)
        """Later levels are further in; the order is total, and the same on all workers."""
        self.is_open = True
        self.token: Token[tuple[Level, ...]] | None = None
        """Restores the stack; only the thread or task that entered the level can use it."""
        self.watchers: list[Callable[[Level], object]] = []
        """Called with the level when it closes."""
        self.holders: list[weakref.ref[Tangents]] = []
        """The maps to remove this level's tangents from when it closes."""
        self.prune_at = 4096
        """How many holders there may be before the dead ones are dropped."""
        self._lock = threading.RLock()

    def remember(self, tangents: "Tangents") -> None:
        """Note that `tangents` has an entry of this level, to be removed when the level closes."""
        self.holders.append(weakref.ref(tangents))
        if len(self.holders) > self.prune_at:
            self.prune()

    def prune(self) -> None:
        """Drop the holders that are gone."""
        with self._lock:
            # Not again before this is done, on this thread either.
            self.prune_at = sys.maxsize
            # What other threads append just now lies behind what is replaced.
            size = len(self.holders)
            self.holders[:size] = [r for r in self.holders[:size] if r() is not None]
            self.prune_at = max(4096, 2 * len(self.holders))

    def close(self) -> None:
        """Remove the tangents of this level everywhere."""
        self.is_open = False
        with self._lock:
            holders = list(self.holders)
            self.holders.clear()
        for ref in holders:
            tangents = ref()
            if tangents is not None:
                tangents.pop(self, None)
        for watcher in self.watchers:
            watcher(self)


class Tangents(dict[Level, Any]):
    """Tangents by level. Entries of a closed level are gone, and no new ones stay."""

    __slots__ = ("__weakref__",)

    def __init__(self, entries: Mapping[Level, Any]) -> None:
        super().__init__(entries)
        for level in entries:
            level.remember(self)
            if not level.is_open:
                # After remembering, so that a thread that closes it now misses nothing.
                self.pop(level, None)


LEVELS: ContextVar[tuple[Level, ...]] = ContextVar("telegrad.levels", default=())
