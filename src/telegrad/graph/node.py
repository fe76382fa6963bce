"""The protocol of a node: all that the engine knows about a graph.

A node stands for one recorded value. Its *cotangent* is the derivative of what is being
differentiated with respect to that value. Running a node ("pull") turns its cotangent into one
contribution for each of its edges. An edge is simply the node of an input.

- ``edges``: the nodes of the inputs this one was computed from, in their order; ``()`` for a leaf.
- ``key``: creation order. An edge always points to a smaller key (a leaf's is -1), so running nodes
  by falling key runs every node after all that contribute to it.
- ``hooks``: None, or what users hung on the node.
- ``freed``: True when the values that ``pull`` needs were dropped by an earlier pass.
- ``pull(cotangent)`` and ``pull_recorded(cotangent)``: the contributions, one an edge, ``None``
  where there is none; the second works on values that record, so its results can be
  differentiated again.
- ``release()``: drop the saved values.
- ``before_capture``, ``before_run``, ``after`` and ``pass_by`` (a leaf: ``before_capture`` and
  ``before``) run the hooks; ``explain(error)`` notes on an error which node it came from.
  ``tensors/recording/hooked.py``.
- ``is_leaf``, ``is_boundary``: where a pass ends: a leaf takes its gradient; a boundary's
  cotangent leaves this engine (for another worker).

Leaves are tensors that implement this protocol themselves, so a graph keeps its leaves alive, and
no leaf and node refer to each other in a circle.
"""

from collections.abc import Sequence
from itertools import count
from typing import Any, Protocol, TypeAlias

from telegrad.graph.hooks import NodeHooks

__all__ = ["Cotangent", "Node", "next_key"]

Cotangent: TypeAlias = Any
"""A raw array, a Tensor, or a Bundle of those: whatever ``+`` adds."""

next_key = count().__next__


class Node(Protocol):
    """What the engine asks of a node; see the module's docstring."""

    @property
    def edges(self) -> Sequence["Node"]: ...
    @property
    def key(self) -> int: ...
    @property
    def hooks(self) -> NodeHooks | None: ...
    @property
    def freed(self) -> bool: ...
    @property
    def is_leaf(self) -> bool: ...
    @property
    def is_boundary(self) -> bool: ...
    def name(self) -> str: ...
    def pull(self, cotangent: Cotangent, /) -> Sequence[Cotangent | None]: ...
    def pull_recorded(self, cotangent: Cotangent, /) -> Sequence[Cotangent | None]: ...
    def release(self) -> None: ...
