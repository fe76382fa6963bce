"""Take cotangents where they leave a region of PyTorch's graph, by hooks on its nodes.

The note EXITS in ``region.py`` says why. Other passes, of other threads or nested in this one, may
run the same nodes meanwhile; the hooks ignore them.
"""

import ctypes
from collections.abc import Iterable, Mapping
from functools import partial
from sys import getrefcount
from typing import Any

import torch

from telegrad.graph import added
from telegrad.interop.torch.bridge import REGIONS_RUNNING
from telegrad.interop.torch.graph.accumulation import hang
from telegrad.interop.torch.graph.ends import TorchEdge

_CURRENT = "telegrad.region"


def _stash(what: Any) -> None:
    """Attach an object to this thread; PyTorch's engine attaches it to its threads, too."""
    if _STEALS:
        # Python has no function of its own that adds a reference.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(what))
    torch._C._stash_obj_in_tls(_CURRENT, what)


def _takes_over_references() -> bool:
    """Tell whether PyTorch drops a reference that it never took, as 2.11 does."""
    probe = object()
    before = getrefcount(probe)
    torch._C._stash_obj_in_tls(_CURRENT, probe)
    is_uncounted = getrefcount(probe) == before
    if is_uncounted:
        for each in (probe, None):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
    torch._C._stash_obj_in_tls(_CURRENT, None)
    return is_uncounted


_STEALS = _takes_over_references()


def _current() -> Any:
    """Return the capture of the pass that this thread works for, if any.

    PyTorch's engine runs deeply nested passes on other threads. A thread's attached objects follow
    a pass there, and so identify it.
    """
    return torch._C._get_obj_in_tls(_CURRENT) if torch._C._is_key_in_tls(_CURRENT) else None


class ExitCapture:
    """One run of a region; entered around it."""

    def __init__(
        self,
        starts: Iterable[TorchEdge],
        exits: Mapping[TorchEdge, list[tuple[Any, int]]],
        taps: Iterable[TorchEdge],
    ) -> None:
        self.taken: dict[TorchEdge, torch.Tensor] = {}
        """The cotangents on the edges to each place outside, summed."""
        self.tapped: dict[TorchEdge, torch.Tensor] = {}
        """The whole cotangents at the taps, which are where the region begins."""
        self._starts = {node: None for node, _ in starts}
        self._taps = list(taps)
        self._exits: dict[Any, list[tuple[int, TorchEdge]]] = {}
        for place, edges in exits.items():
            for node, which in edges:
                self._exits.setdefault(node, []).append((which, place))
        self._task: int | None = None
        self._handles: list[Any] = []
        self._outer: Any = None

    def __enter__(self) -> None:
        hooks: list[tuple[Any, Any]] = [
            (node.register_prehook, self._begin) for node in self._starts
        ]
        for place in self._taps:
            hooks.append((place[0].register_prehook, partial(self._tap, place)))
        for node, edges in self._exits.items():
            hooks.append((node.register_hook, partial(self._take, edges)))
        self._handles = hang(hooks)
        self._outer = _current()
        _stash(self)

    def __exit__(self, *exception: object) -> None:
        _stash(self._outer)
        if self._task is not None:
            REGIONS_RUNNING.discard(self._task)
        for handle in self._handles:
            handle.remove()

    def _begin(self, cotangents: Any) -> None:
        """Note the id of PyTorch's pass when its first node runs."""
        if self._task is None and _current() is self:
            self._task = torch._C._current_graph_task_id()
            REGIONS_RUNNING.add(self._task)

    def _is_current(self) -> bool:
        # A pass that a hook starts within this one has another id.
        return self._task is not None and torch._C._current_graph_task_id() == self._task

    def _tap(self, place: TorchEdge, cotangents: Any) -> None:
        """Note the whole cotangent at a place, after the hooks of its tensor."""
        if self._is_current():
            cotangent = cotangents[place[1]]
            if cotangent is not None:
                self.tapped[place] = cotangent

    def _take(self, edges: list[tuple[int, TorchEdge]], contributions: Any, cotangents: Any) -> Any:
        """Note the cotangents of a node's edges to places outside; put zeros in their place."""
        if not self._is_current():
            return None
        left = list(contributions)
        for which, place in edges:
            contribution = contributions[which]
            if contribution is not None:
                before = self.taken.get(place)
                self.taken[place] = contribution if before is None else added(before, contribution)
                left[which] = torch.zeros_like(contribution)
        return tuple(left)
