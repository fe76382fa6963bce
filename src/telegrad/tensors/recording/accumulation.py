"""How a leaf takes its gradient: ``.grad`` is set, or the gradient is added to it.

Two leaves never share a gradient's memory, though rules that pass a gradient on unchanged give the
same array to several edges: an array is taken as it is only if nothing else refers to it.
"""

import threading
from sys import getrefcount
from typing import Any, Final

import numpy as np

from telegrad.tensors.recording.hooked import run_accumulated
from telegrad.tensors.recording.modes import Recording
from telegrad.tensors.tensor import Tensor, history_of, wrap


def _count_held(holder: list[Any]) -> int:
    value = holder[0]
    return getrefcount(value)


_HELD: Final = _count_held([object()])
"""References to a value that a local and one holder know: note COUNTS in engine/local.py."""

# Threads that share leaves add to the same .grad. There is a lock for each of 64 groups of leaves,
# chosen by bits of their addresses above the lowest, which alignment makes equal. Reentrant, since
# a finalizer that runs inside may run a pass itself.
_LOCKS = tuple(threading.RLock() for _ in range(64))


def own(gradient: Any, is_alone: bool) -> Any:
    """Return a gradient that nothing else holds: the given one if it is alone, else a copy.

    A Tensor's array is never written to while others hold it, so a new Tensor around it will do.
    """
    if type(gradient) is not np.ndarray:
        if isinstance(gradient, Tensor):
            return wrap(gradient.array, history_of(gradient), gradient.tangents)
        return np.array(gradient) if isinstance(gradient, np.generic) else gradient
    base = gradient.base
    if is_alone and base is not None:
        # A view is alone if nobody but the view (and this local) knows its base.
        flags = gradient.flags
        is_alone = getrefcount(base) <= _HELD and flags.forc and flags.writeable
    return gradient if is_alone else gradient.copy()


def accumulate(leaf: Tensor, gradient: Any, is_alone: bool) -> None:
    """Add a complete gradient to ``leaf.grad`` and run the hooks that wait for that."""
    with _LOCKS[id(leaf) >> 6 & 63]:
        meta = leaf.meta or leaf.ensure_meta()
        while True:
            old = meta.grad
            if old is None:
                if is_alone and type(gradient) is np.ndarray and gradient.base is None:
                    new = wrap(gradient)
                else:
                    owned = own(gradient, is_alone)
                    new = owned if isinstance(owned, Tensor) else wrap(owned)
            elif old.node is not None:
                new = _added_to_recorded(old, gradient)
            elif isinstance(gradient, Tensor):
                new = old + gradient
            elif old.tangents is None and type(old.array) is np.ndarray:
                new = wrap(np.asarray(old.array + gradient))
            else:
                new = old + wrap(gradient)
            # Otherwise a finalizer has just run a pass to the same leaf, on this thread: try again.
            if meta.grad is old:
                meta.grad = new
                break
    if meta.hooks is not None:
        run_accumulated(meta.hooks, leaf, gradient)


def _added_to_recorded(old: Tensor, gradient: Any) -> Tensor:
    """Return the sum, recorded like the old gradient, even if this pass is not."""
    if type(gradient) is type(old.array) is np.ndarray and not old.is_leaf:
        # A constant adds nothing to the history, and a node for each pass would pile up.
        return wrap(np.asarray(old.array + gradient), old.node, old.tangents)
    with Recording(True):
        return old + (gradient if isinstance(gradient, Tensor) else wrap(gradient))
