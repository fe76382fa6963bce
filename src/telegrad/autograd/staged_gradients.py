"""Gradients held back until the pass has succeeded: a pass that fails leaves every ``.grad`` as it
was.

The exception is a leaf with a post-accumulate hook, or one on its node: such hooks are there to use
a gradient and free it while the pass still runs, so that leaf accumulates at once.
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
            # Now, while the engine's word holds that nothing else refers to it.
            if not is_alone or gradient.base is not None:
                gradient = own(gradient, is_alone)
                is_alone = True
        else:
            # What is added to an older gradient need not be copied first.
            is_alone = False
        self._staged.append((leaf, gradient, is_alone))

    def commit(self) -> None:
        """Add everything to ``.grad``; called once, when nothing can fail any more."""
        for leaf, gradient, is_alone in self._staged:
            accumulate(leaf, gradient, is_alone)
        self._staged.clear()
