"""What tests have to know of the Python that runs them."""

import sys

import pytest

from telegrad.arrays.ownership import IS_LOCKED

__all__ = [
    "HANDS_CONTEXTS_ON",
    "IS_LOCKED",
    "needs_eager_collector",
    "needs_lock",
    "needs_prompt_freeing",
]

HANDS_CONTEXTS_ON = bool(getattr(sys.flags, "thread_inherit_context", False))
"""Whether a new thread begins with the context variables of the one that starts it."""
needs_lock = pytest.mark.skipif(
    not IS_LOCKED, reason="without Python's lock nobody can tell that nobody else holds an array"
)
needs_eager_collector = pytest.mark.skipif(
    not IS_LOCKED, reason="without Python's lock the collector does not run when something is made"
)
needs_prompt_freeing = pytest.mark.skipif(
    not IS_LOCKED,
    reason="without Python's lock, what another thread made goes when that one runs again",
)
