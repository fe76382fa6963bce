"""Where PyTorch's graph ends for a pass of telegrad's engine: leaves, landings, taps.

A *leaf* takes its gradient, and that of its *former* value (``successors.py``). A *landing* is
where a cotangent leaves PyTorch's graph at a crossing and continues in telegrad's graph (perhaps to
another worker). A *tap* receives the gradient requested for an inner place of PyTorch's graph. Each
is a node of the engine.

The hooks of a tensor are applied once, to its whole cotangent. If only one region leads to an end,
PyTorch has already applied them; if several do (`is_shared`), the end applies them to the sum.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec
import torch
from torch.autograd.graph import GradientEdge

from telegrad.graph import Cotangent, LeafNode, Node, NodeHooks
from telegrad.interop.torch.bridge import (
    Crossing,
    accumulator_of,
    entry_of,
    from_torch,
    numbers,
)
from telegrad.interop.torch.graph.pytorch_engine import run_backward
from telegrad.interop.torch.values.arrays import raw
from telegrad.interop.torch.values.levels import current, is_open, primal_of, tangent_of
from telegrad.tensors import Tensor, wrap
from telegrad.tensors.forward.levels import Tangents
from telegrad.tensors.recording.hooked import Hooked
from telegrad.tensors.recording.op_node import OutputNode

TorchEdge = tuple[Any, int]
"""A PyTorch node and an output index."""

Slot = tuple[Node, int, int]
"""A node of telegrad's engine; the index and size of its cotangent's Bundle (1: no Bundle)."""


def over(cotangent: torch.Tensor, recorded: bool, for_message: bool = False) -> Any:
    """Convert a cotangent of PyTorch's for telegrad's graph.

    `for_message`: the next node is a message, so a cotangent on a device may stay there.
    """
    if not recorded and not is_open():
        if for_message:
            return cotangent if cotangent.is_cuda else raw(cotangent)
        return numbers(cotangent)
    tangent = tangent_of(cotangent)
    if tangent is None:
        return _taken_over(cotangent, recorded, for_message)
    went = _taken_over(primal_of(cotangent), recorded, for_message)
    primal = went if isinstance(went, Tensor) else wrap(went)
    beside = _taken_over(tangent, recorded, for_message)
    entry = beside if isinstance(beside, Tensor) else wrap(beside)
    return wrap(primal.array, primal.node, Tangents({current(): entry}))


def slot_of(crossing: Crossing) -> Slot:
    """Return the slot for the cotangent of a received value that only one region leads to."""
    node = crossing.node
    if type(node) is OutputNode:
        # The region sends one Bundle with all its cotangents for the message.
        return node.edges[0], node.index, node.size
    return node, 0, 1


def _taken_over(cotangent: torch.Tensor, recorded: bool, for_message: bool) -> Any:
    if not recorded:
        return cotangent if for_message and cotangent.is_cuda else numbers(cotangent)
    with torch.enable_grad():
        dense = cotangent if cotangent.layout is torch.strided else cotangent.to_dense()
        if for_message and dense.is_cuda:
            # Not from_torch, which copies to a CuPy array: a message takes the tensor as it is.
            return wrap(dense.detach(), entry_of(dense, keeps=False))
        return from_torch(dense.float() if dense.dtype is torch.bfloat16 else dense)


def _with_hooks(place: TorchEdge, cotangent: torch.Tensor, recorded: bool) -> torch.Tensor:
    """Apply a tensor's hooks to its complete cotangent."""
    edge = GradientEdge(*place)
    # Not torch.autograd.grad: before PyTorch 2.13 its checks fail at nodes that Python defines.
    found: tuple[torch.Tensor] = run_backward(
        (edge,), (cotangent,), True, recorded, (edge,), False, accumulate_grad=False
    )
    return found[0]


class End(msgspec.Struct, eq=False, kw_only=True):
    """The base of all ends."""

    source: int = 0
    """The identity of the first region or entry that leads here."""
    is_shared: bool = False
    """Whether its cotangent is a sum over regions, so that its hooks have not run yet."""

    def forget(self) -> None:
        """Forget the regions and entries that lead here."""
        self.source = 0
        self.is_shared = False

    def reached_from(self, source: Any) -> None:
        """Note a region or an entry that leads here."""
        if not self.source:
            self.source = id(source)
        elif self.source != id(source):
            self.is_shared = True

    @property
    def has_hooks(self) -> bool:
        """Whether the tensor may have hooks, which must see the whole cotangent."""
        return True


_PYTORCHS = NodeHooks()
"""Tells the engine that a leaf has hooks; PyTorch runs them."""


class Leaf(End, LeafNode, eq=False):
    """A leaf of PyTorch's in one pass."""

    value: torch.Tensor
    _has_hooks: bool | None = None

    is_leaf: ClassVar[bool] = True

    def slot(self, place: TorchEdge) -> Slot:
        """Return the slot for the cotangent of a region that leads here."""
        return self, 0, 1

    def forget(self) -> None:
        End.forget(self)
        self._has_hooks = None

    @property
    def has_hooks(self) -> bool:
        # Cached for the pass, so that all regions agree on who runs the hooks.
        if self._has_hooks is None:
            self._has_hooks = bool(self.value._backward_hooks)
        return self._has_hooks

    @property
    def hooks(self) -> NodeHooks | None:
        return _PYTORCHS if self.is_shared and self.has_hooks else None

    def before_capture(self, cotangent: torch.Tensor, /) -> torch.Tensor:
        # Only the tensor's hooks: its node's hooks run when the gradient accumulates.
        place = (accumulator_of(self.value), 0)
        # A copy: a hook may keep what it is given, or return a tensor of the program's own.
        return _with_hooks(place, cotangent, torch.is_grad_enabled()).clone()

    def name(self) -> str:
        return "AccumulateGrad"


class AllLeaves(msgspec.Struct, LeafNode, eq=False):
    """All leaves of a lone region, as one node whose cotangent is the list of their gradients."""

    values: list[torch.Tensor]

    is_leaf: ClassVar[bool] = True
    hooks: ClassVar[None] = None

    def name(self) -> str:
        return "AccumulateGrad"


class WantedLeaf(Leaf, eq=False):
    """A leaf whose gradient was requested; equal to any other for the same tensor.

    Plain leaves are compared by identity, since passes look them up often and ``__eq__`` is slow.
    """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WantedLeaf) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


class Former(End, Hooked, eq=False):
    """An earlier value of a leaf, saved by an older graph; its cotangent goes to the leaf."""

    key: int
    leaf: Leaf

    freed: ClassVar[bool] = False
    hooks: ClassVar[None] = None
    has_hooks: ClassVar[bool] = False

    @property
    def edges(self) -> tuple[Node, ...]:
        return (self.leaf,)

    def name(self) -> str:
        return "FormerValue"

    def slot(self, place: TorchEdge) -> Slot:
        return self, 0, 1

    def reached_from(self, source: Any) -> None:
        End.reached_from(self, source)
        # PyTorch has run no hooks, since they are registered on the leaf.
        self.leaf.is_shared = True

    def pull(self, cotangent: Cotangent) -> Sequence[Cotangent | None]:
        # A copy, since a leaf's gradient has memory of its own.
        return (cotangent.clone(),)

    def pull_recorded(self, cotangent: Cotangent) -> Sequence[Cotangent | None]:
        return (cotangent,)


class Tap(End, LeafNode, eq=False):
    """An inner tensor of PyTorch's graph whose gradient was requested; compared by place."""

    value: torch.Tensor
    place: TorchEdge

    is_leaf: ClassVar[bool] = True
    hooks: ClassVar[None] = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tap) and other.place == self.place

    def __hash__(self) -> int:
        return hash(self.place)

    def name(self) -> str:
        return "Tap"


class Landing(End, Hooked, eq=False):
    """Where cotangents continue in telegrad's graph."""

    key: int
    node: Any
    """PyTorch's node, a ``ToTorch``."""
    crossing: Crossing
    tap: Tap | None = None
    """A tap that takes the cotangent, too."""

    freed: ClassVar[bool] = False
    hooks: ClassVar[None] = None

    @property
    def edges(self) -> tuple[Node, ...]:
        node = self.crossing.node
        return (node,) if self.tap is None else (node, self.tap)

    def name(self) -> str:
        return "ToTorchBackward"

    def slot(self, place: TorchEdge) -> Slot:
        crossing = self.crossing
        if self.is_shared or self.tap is not None or not crossing.is_of_message:
            # A value converted twice has two landings, whose cotangents are summed at its node.
            return self, 0, 1
        # Nothing else leads to a received value: the one region may lead to its node directly.
        return slot_of(crossing)

    def pull(self, cotangent: Cotangent) -> Sequence[Cotangent | None]:
        return self._pull(cotangent, False)

    def pull_recorded(self, cotangent: Cotangent) -> Sequence[Cotangent | None]:
        with torch.enable_grad():
            return self._pull(cotangent, True)

    def _pull(self, cotangent: torch.Tensor, recorded: bool) -> Sequence[Cotangent | None]:
        if self.is_shared:
            cotangent = _with_hooks((self.node, 0), cotangent, recorded)
        went_over = over(cotangent, recorded, self.crossing.is_of_message)
        if self.tap is None:
            return (went_over,)
        # The tap gets a copy, since the converted cotangent may share the memory.
        return went_over, cotangent if recorded else cotangent.clone()
