"""PyTorch's forward-mode level across workers.

PyTorch has one level per process. Telegrad's registry treats it as any other Level: it has an id on
the wire and a shadow on every worker that one of its tangents reached, and a notice closes the
shadows. When a tangent of a shadow arrives, the shadow is *bound*: its process enters PyTorch's
level until the shadow closes. PyTorch does not report when a user leaves a level, but drops the
level's tangents then. So it is given a tangent whose memory telegrad watches.

Invariant: tangents of two levels never mix. While one is bound, a tangent of another is refused.
"""

import threading
import weakref
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad

from telegrad.distributed.contexts.dual_levels import are_one
from telegrad.errors import LevelError
from telegrad.interop.torch.values.arrays import CPU
from telegrad.tensors.forward.levels import Level

_make_dual: Any = forward_ad.make_dual
_unpack_dual: Any = forward_ad.unpack_dual
_enter: Any = forward_ad.enter_dual_level
_exit: Any = forward_ad.exit_dual_level
_lock = threading.RLock()
_bound: Level | None = None
_watched: torch.Tensor | None = None


def is_open() -> bool:
    """Tell whether any torch tensor of this process may have a tangent."""
    return forward_ad._current_level >= 0


def tangent_of(tensor: torch.Tensor) -> Any:
    """Return a tensor's tangent, or None."""
    return _unpack_dual(tensor).tangent if is_open() else None


def primal_of(tensor: torch.Tensor) -> Any:
    """Return the tensor without its tangent but with its history."""
    return _unpack_dual(tensor).primal


def make_dual(primal: torch.Tensor, tangent: torch.Tensor) -> Any:
    """Return a dual tensor at PyTorch's current level."""
    return _make_dual(primal, tangent)


def current() -> Level:
    """Return the Level that stands for PyTorch's open level."""
    with _lock:
        return _watch() if _bound is None else _bound


def bind(level: Level) -> None:
    """Enter PyTorch's level for the tangents of `level`, which came from another worker."""
    global _bound
    with _lock:
        if not is_open():
            _enter()
            _bound = level
            level.watchers.append(_leave)
            if not level.is_open:
                _leave(level)
        elif not are_one(current(), level):
            raise LevelError(
                "expected tangents of one forward-mode level of PyTorch at a time in a process, "
                "got one of another level while the first is open; leave that one first, or take "
                "this derivative on another worker"
            )


def _leave(level: Level) -> None:
    """Leave PyTorch's level in this process, since its shadow closed."""
    global _bound
    with _lock:
        if _bound is level:
            _bound = None
            _exit()


def _watch() -> Level:
    """Return a Level for the one that a user of this process entered; it closes with that."""
    global _bound, _watched
    level = _bound = Level()
    memory = np.zeros(())
    # Only PyTorch holds the tangent's memory, and only as long as the level is open.
    primal = torch.zeros((), dtype=torch.float64, device=CPU)
    _watched = _make_dual(primal, torch.from_numpy(memory))
    weakref.finalize(memory, _end, level).atexit = False
    return level


def _end(level: Level) -> None:
    global _bound, _watched
    with _lock:
        if _bound is level:
            _bound = _watched = None
    level.close()
