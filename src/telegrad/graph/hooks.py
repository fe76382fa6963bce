"""Hooks: functions that users attach to a node, and the handles that remove them.

A hook runs before its node, on the complete cotangent, which it may replace; or after it, on the
contributions and the cotangent. Hooks run in the order of their registration.
"""

import threading
from collections.abc import Callable
from itertools import count
from typing import Any

_next_id = count().__next__
# Threads that attach the first hooks to a node at once must share one NodeHooks. Reentrant, since
# a finalizer may run inside.
_making = threading.RLock()


class Handle:
    """Removes a hook: by ``remove``, or at the end of a ``with`` block."""

    __slots__ = ("_hooks", "_id")

    def __init__(self, hooks: dict[int, Callable[..., Any]], hook: Callable[..., Any]) -> None:
        self._hooks = hooks
        self._id = _next_id()
        while self._id in hooks:
            # A module that came from another process brings hooks with that process's ids.
            self._id = _next_id()
        hooks[self._id] = hook

    def remove(self) -> None:
        """Remove the hook; a second time does nothing."""
        self._hooks.pop(self._id, None)

    def __enter__(self) -> "Handle":
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


class NodeHooks:
    """The hooks of one node, in order of registration."""

    __slots__ = ("accumulated", "after", "before", "retain", "tensor")

    def __init__(self) -> None:
        self.tensor: dict[int, Callable[..., Any]] = {}
        """On the gradient of the value; set by ``Tensor.register_hook``."""
        self.before: dict[int, Callable[..., Any]] = {}
        """On a tuple with the gradient; set by ``grad_fn.register_prehook``."""
        self.after: dict[int, Callable[..., Any]] = {}
        """On (gradients of the inputs, gradients of the outputs); ``grad_fn.register_hook``.

        Those of a leaf's node run after ``accumulated``.
        """
        self.accumulated: dict[int, Callable[..., Any]] = {}
        """On a leaf after its ``.grad`` has changed."""
        self.retain: Callable[[Any], Callable[[], None]] | None = None
        """Keeps the gradient of a value that is not a leaf; returns a function that undoes this."""


def hooks_of(node: Any) -> NodeHooks:
    """Return the hooks of a node, made when first needed."""
    hooks: NodeHooks | None = node.hooks
    if hooks is None:
        with _making:
            hooks = node.hooks = node.hooks or NodeHooks()
    return hooks
