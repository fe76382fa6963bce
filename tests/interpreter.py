"""What tests have to know of the Python that runs them."""

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.rpc.neighbours import eventually

from telegrad.arrays.ownership import IS_LOCKED

__all__ = [
    "HANDS_CONTEXTS_ON",
    "HAS_EAGER_COLLECTOR",
    "IS_LOCKED",
    "has_gone",
    "needs_eager_collector",
    "needs_lock",
    "needs_prompt_freeing",
    "settle",
]

HANDS_CONTEXTS_ON = bool(getattr(sys.flags, "thread_inherit_context", False))
"""Whether a new thread begins with the context variables of the one that starts it."""
HAS_EAGER_COLLECTOR = IS_LOCKED and sys.version_info < (3, 14)
"""Whether the collector may come, and find a young cycle, whenever something is made.

Without Python's lock it comes a good while later; that of 3.14 does its work in steps, and may find
the cycle in a later one.
"""
needs_lock = pytest.mark.skipif(
    not IS_LOCKED, reason="without Python's lock nobody can tell that nobody else holds an array"
)
needs_eager_collector = pytest.mark.skipif(
    not HAS_EAGER_COLLECTOR,
    reason="this Python's collector does not free all of a sudden when something is made",
)
needs_prompt_freeing = pytest.mark.skipif(
    not IS_LOCKED,
    reason="without Python's lock, what another thread made goes when that one runs again",
)


def settle(simulation: Any, seconds: float) -> None:
    """Let virtual time pass in a simulation, and all go that nobody holds any more.

    Without Python's lock, what another thread made waits for that thread, which rests, or for the
    collector; and what goes may let others go.
    """
    parts = 1 if IS_LOCKED else 8
    for _ in range(parts):
        if not IS_LOCKED:
            gc.collect()
        simulation.settle(seconds / parts)


def has_gone(condition: Callable[[], bool]) -> bool:
    """Say whether the condition holds once all has gone that nobody holds any more.

    With Python's lock that is now. Without it, what another thread has a part in goes when that one
    has run again, or with the collector.
    """
    if IS_LOCKED:
        return condition()
    return eventually(lambda: gc.collect() >= 0 and condition())
