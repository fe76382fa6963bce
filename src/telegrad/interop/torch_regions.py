"""The pieces of PyTorch's graph in one pass of telegrad's engine: regions, leaves, landings.

To the engine each is a node. A *region* runs, once, as one call of ``torch.autograd.grad`` from the
edges into it to the edges out of it, so broadcasting, hooks inside, freeing and streams are
PyTorch's own. What leads out of it goes to another region, to a *leaf*, or to a *landing*: the end
of a crossing, where the cotangent goes on in telegrad's graph (and perhaps to another worker).
``torch_cut.py`` makes them.

Note EXITS. PyTorch captures the sum of what reaches a node, also over a node that is captured
itself. Where several regions lead to one node that sum would count twice what goes over another
region, and the hooks of the node would be applied to parts. So the cotangent on each such edge is
taken where it leaves its own node, by a hook, and the capture only makes PyTorch go there. (The
same where PyTorch would go on over a node outside to another exit of the region.) The hooks of a
node's tensor are applied once to the whole sum: where its region begins, or at its leaf or
landing. (They also see the parts, and what they return for those is dropped.)
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, ClassVar

import torch
from torch.autograd.graph import GradientEdge

from telegrad.errors import GraphFreedError, SavedValueChanged
from telegrad.graph import Bundle, Cotangent, next_key
from telegrad.interop.torch_bridge import REGIONS_RUNNING, from_torch, raw
from telegrad.tensors.hooked import Hooked

__all__ = ["Landing", "Leaf", "Place", "Region"]

Place = tuple[Any, int]
"""A node of PyTorch's and which of its results."""


def _with_hooks(place: Place, cotangent: torch.Tensor, recorded: bool) -> torch.Tensor:
    """A complete cotangent as the hooks of its tensor leave it."""
    edge = GradientEdge(*place)
    return torch.autograd.grad([edge], [edge], [cotangent], True, recorded)[0]


class Leaf:
    """A leaf of PyTorch's; equal to any other node that stands for the same one."""

    __slots__ = ("is_shared", "variable")

    edges: ClassVar[tuple[Any, ...]] = ()
    key: ClassVar[int] = -1
    freed: ClassVar[bool] = False
    is_leaf: ClassVar[bool] = True
    is_boundary: ClassVar[bool] = False

    def __init__(self, variable: torch.Tensor) -> None:
        self.variable = variable
        self.is_shared = False
        """Whether its gradient is a sum over regions: then its hooks are still to be run."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Leaf) and other.variable is self.variable

    def __hash__(self) -> int:
        return id(self.variable)

    @property
    def hooks(self) -> bool | None:
        return True if self.is_shared else None

    def before(self, cotangent: torch.Tensor) -> torch.Tensor:
        if not self.variable._backward_hooks:
            return cotangent
        edge = torch.autograd.graph.get_gradient_edge(self.variable)
        return _with_hooks((edge.node, 0), cotangent, torch.is_grad_enabled())

    def name(self) -> str:
        return "AccumulateGrad"


class _Piece(Hooked):
    """What the nodes of one pass have in common."""

    hooks: ClassVar[None] = None
    freed: ClassVar[bool] = False
    is_leaf: ClassVar[bool] = False
    is_boundary: ClassVar[bool] = False

    def __init__(self) -> None:
        self.key = next_key()

    def release(self) -> None:
        return


class Landing(_Piece):
    """Where cotangents go on in telegrad's graph."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place
        self.is_shared = False
        self.edges = (place[0].crossing.node,)

    def name(self) -> str:
        return "ToTorchBackward"

    def pull(self, cotangent: Cotangent) -> Sequence[Cotangent | None]:
        if self.is_shared:
            cotangent = _with_hooks(self.place, cotangent, False)
        return (raw(cotangent),)

    def pull_recorded(self, cotangent: Cotangent) -> Sequence[Cotangent | None]:
        with torch.enable_grad():
            if self.is_shared:
                cotangent = _with_hooks(self.place, cotangent, True)
            if cotangent.dtype is torch.bfloat16:
                cotangent = cotangent.float()
            return (from_torch(cotangent),)


class Region(_Piece):
    """Nodes of PyTorch's that are reached by the same entries; its cotangent is a Bundle."""

    def __init__(self, keep_graph: bool) -> None:
        super().__init__()
        self.keep_graph = keep_graph
        self.places: dict[Place, int] = {}
        """The edges into it, with their places in the Bundle."""
        self.exits: dict[Place, list[tuple[Any, int]]] = {}
        """The edges out of it: for each place outside, the nodes inside and which edge of each."""
        self.edges: tuple[Any, ...] = ()
        self.goals: list[tuple[Any, list[Place]]] = []
        """For each edge, its node and the places outside that belong to it."""
        self.goes_on = False
        """Whether PyTorch runs over nodes outside, which must keep their values."""

    def name(self) -> str:
        return "TorchRegionBackward"

    def slot(self, place: Place) -> int:
        """The place in the Bundle of an edge into the region."""
        return self.places.setdefault(place, len(self.places))

    def pull(self, cotangent: Cotangent) -> Sequence[Cotangent | None]:
        return self._run(cotangent, False)

    def pull_recorded(self, cotangent: Cotangent) -> Sequence[Cotangent | None]:
        with torch.enable_grad():
            return self._run(cotangent, True)

    def _run(self, cotangent: Bundle, recorded: bool) -> list[Any]:
        given = [(p, g) for p, g in zip(self.places, cotangent) if g is not None]
        taken: dict[Place, torch.Tensor] = {}
        alone = [place for node, places in self.goals if not _is_shared(node) for place in places]
        wanted = set(self.exits) - set(alone)
        # Without them PyTorch stays inside of the region, and what it captures is all there is.
        needs_hooks = bool(wanted) or self.goes_on
        with self._taking(taken, wanted) if needs_hooks else nullcontext():
            try:
                captured = torch.autograd.grad(
                    [GradientEdge(*place) for place, _ in given],
                    [GradientEdge(*place) for place in self.exits],
                    [g for _, g in given],
                    retain_graph=self.keep_graph or self.goes_on or recorded,
                    create_graph=recorded,
                    allow_unused=True,
                )
            except RuntimeError as error:
                raise _explained(error) from error
        found = dict(zip(self.exits, captured))
        results = {place: found[place] for place in alone} | taken
        return [self._contribution(node, places, results, given) for node, places in self.goals]

    def _contribution(
        self, node: Any, places: list[Place], results: dict[Place, Any], given: list[Any]
    ) -> Any:
        if isinstance(node, Region):
            parts: list[Any] = [None] * len(node.places)
            for place in places:
                parts[node.places[place]] = results.get(place)
            return None if all(part is None for part in parts) else Bundle(parts)
        result = results.get(places[0])
        if result is None or not isinstance(node, Leaf) or result.requires_grad:
            return result
        return result.clone() if _is_held(result, places[0], results, given) else result

    @contextmanager
    def _taking(self, taken: dict[Place, torch.Tensor], wanted: set[Place]) -> Iterator[None]:
        """Notes the cotangents on the edges to these places; see the note EXITS."""
        by_node: dict[Any, list[tuple[int, Place]]] = {}
        for place in self.exits:
            if place in wanted:
                for node, which in self.exits[place]:
                    by_node.setdefault(node, []).append((which, place))
        running = _Running()
        starts = {node: None for node, _ in self.places}
        handles = [node.register_prehook(running.begin) for node in starts]
        for node, edges in by_node.items():
            handles.append(node.register_hook(partial(running.take, taken, edges)))
        try:
            yield
        finally:
            running.end()
            for handle in handles:
                handle.remove()


class _Running:
    """One run of a region, as seen by hooks on nodes that other passes may run at the same time."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._task: int | None = None

    def begin(self, cotangents: Any) -> None:
        """Learns the id of PyTorch's pass, from the first node that runs in this thread."""
        if self._task is None and threading.get_ident() == self._thread:
            self._task = torch._C._current_graph_task_id()
            REGIONS_RUNNING.add(self._task)

    def take(
        self,
        taken: dict[Place, torch.Tensor],
        edges: list[tuple[int, Place]],
        contributions: Any,
        cotangents: Any,
    ) -> None:
        """Notes the cotangents that a node of this run gives to the places outside."""
        if torch._C._current_graph_task_id() != self._task:
            return
        for which, place in edges:
            contribution = contributions[which]
            if contribution is not None:
                before = taken.get(place)
                taken[place] = contribution if before is None else before + contribution

    def end(self) -> None:
        if self._task is not None:
            REGIONS_RUNNING.discard(self._task)


def _is_shared(node: Any) -> bool:
    return True if isinstance(node, Region) else bool(node.is_shared)


def _is_held(
    result: torch.Tensor, place: Place, results: dict[Place, Any], given: list[Any]
) -> bool:
    """Whether something else has the memory of a leaf's gradient."""
    if result.layout is not torch.strided:
        return False
    others = [g for _, g in given] + [g for p, g in results.items() if p != place]
    memory = result.untyped_storage().data_ptr()
    return any(
        g is not None and g.layout is torch.strided and g.untyped_storage().data_ptr() == memory
        for g in others
    )


def _explained(error: RuntimeError) -> Exception:
    if "modified by an inplace operation" in str(error):
        return SavedValueChanged(
            "expected values that PyTorch saved for the backward pass to be as they were, but one "
            f"was changed in place, perhaps by an optimiser's step ({error})"
        )
    if "second time" not in str(error):
        return error
    return GraphFreedError(
        "expected a PyTorch graph that still has its saved values, but they were freed by an "
        f"earlier pass; pass retain_graph=True to that earlier call ({error})"
    )
