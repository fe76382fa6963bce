"""Dual levels: which forward-mode derivatives are being taken, innermost last.

A level is an object; the stack is per thread and async task, and the integers that users see index
it. A tensor's ``tangents`` maps levels to tangents. The tangent at a level may itself carry tangents of the levels
further out, never of those further in: that is the mixed derivative. Leaving a level takes
its tangents off every tensor that still has one, so dual tensors become ordinary again.
"""

import weakref
from contextvars import ContextVar
from itertools import count
from typing import Any

__all__ = ["LEVELS", "Level"]

_next_depth = count().__next__


class Level:
    """One forward-mode derivative under way."""

    __slots__ = ("_holders", "_prune_at", "depth", "is_open")

    def __init__(self) -> None:
        self.depth = _next_depth()
        """Later levels are further in; total over all threads, so mixtures have one order."""
        self.is_open = True
        self._holders: list[weakref.ref[Any]] = []
        self._prune_at = 4096

    def remember(self, tensor: Any) -> None:
        """Notes that `tensor` has a tangent here, to take it off when the level closes."""
        holders = self._holders
        holders.append(weakref.ref(tensor))
        if len(holders) > self._prune_at:
            self._holders = [ref for ref in holders if ref() is not None]
            self._prune_at = max(4096, 2 * len(self._holders))

    def close(self) -> None:
        """Takes the tangents of this level off everything."""
        self.is_open = False
        for ref in self._holders:
            tensor = ref()
            if tensor is not None and tensor.tangents is not None:
                tensor.tangents.pop(self, None)
                if not tensor.tangents:
                    tensor.tangents = None
        self._holders.clear()


LEVELS: ContextVar[tuple[Level, ...]] = ContextVar("telegrad.levels", default=())
