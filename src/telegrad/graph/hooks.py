"""What users hang on a node: functions called before and after it runs, and handles to take them
off.

Before: on the cotangent, complete, in order of registration; each may return a replacement. After:
on the contributions and the cotangent. Retained values and captures are the engine's, not hooks.
"""

import threading
from collections.abc import Callable
from itertools import count
from typing import Any

_next_id = count().__next__
# Two threads that hang hooks on a node hang them on the same ones. Reentrant, for finalizers.
_making = threading.RLock()


class Handle:
    """Takes a hook off again, once or by leaving a ``with`` block."""

    __slots__ = ("_hooks", "_id")

    def __init__(self, hooks: dict[int, Callable[..., Any]], hook: Callable[..., Any]) -> None:
        self._hooks = hooks
        self._id = _next_id()
        while self._id in hooks:
            # A module that came from another process brings hooks with that process's ids.
            self._id = _next_id()
        hooks[self._id] = hook

    def remove(self) -> None:
        """Take the hook off; a second time does nothing."""
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
        """Keeps the gradient of a value that is not a leaf; gives what takes it back."""


def hooks_of(node: Any) -> NodeHooks:
    """Return the hooks of a node, made when first needed."""
    hooks: NodeHooks | None = node.hooks
    if hooks is None:
        with _making:
            hooks = node.hooks = node.hooks or NodeHooks()
    return hooks
