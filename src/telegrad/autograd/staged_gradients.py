"""Hold gradients back until the pass has succeeded: a failed pass leaves every ``.grad`` unchanged.

The exception is a leaf with a post-accumulate hook, or a hook on its node: such hooks use a
gradient and free it while the pass still runs, so that leaf accumulates at once.
"""

from typing import Any

import numpy as np

from telegrad.tensors.recording.accumulation import accumulate, own


class Staging:
    """The gradients of one pass."""

    __slots__ = ("_staged",)

    def __init__(self) -> None:
        self._staged: list[tuple[Any, Any, bool]] = []
        """Leaves, their gradients, and whether nothing else refers to those."""

    def deliver(self, leaf: Any, gradient: Any, is_alone: bool) -> None:
        """Take the complete gradient of a leaf, unless it has stopped requiring grad since."""
        if leaf.node is None:
            return
        meta = leaf.meta
        hooks = None if meta is None else meta.hooks
        if hooks is not None and (hooks.accumulated or hooks.after):
            accumulate(leaf, gradient, is_alone)
            return
        if (meta is None or meta.grad is None) and type(gradient) is np.ndarray:
            # Copied now, since `is_alone` holds only at this moment.
            if not is_alone or gradient.base is not None:
                gradient = own(gradient, is_alone)
                is_alone = True
        else:
            # A gradient that is added to an older one need not be copied first.
            is_alone = False
        self._staged.append((leaf, gradient, is_alone))

    def commit(self) -> None:
        """Add everything to ``.grad``; called once, when nothing can fail any more."""
        for leaf, gradient, is_alone in self._staged:
            accumulate(leaf, gradient, is_alone)
        self._staged.clear()
