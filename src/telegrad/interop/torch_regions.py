"""PyTorch's graph in a pass of telegrad's engine, cut into regions.

1. Every entry of the pass into PyTorch's graph (a root, a message, a value that went over) marks
   the nodes that it reaches. Nodes with the same marks form a *region*. An edge leads
   to a node with the same marks or more, so regions have no circle; nor has any way that leaves a
   region through another worker or telegrad's own graph and comes back, since it would come back
   by an entry that every node of the region must have been reached by.
2. A region is one node of telegrad's engine. When the cotangents of all live edges into it are in,
   it runs as one call of ``torch.autograd.grad``, to the edges out of it. So broadcasting, hooks
   inside, freeing and streams are PyTorch's own.
3. What leads out of a region goes to another region, to a *leaf*, or to a *landing*: the end of a
   crossing, where the cotangent goes on in telegrad's graph (and perhaps to another worker).

Note EXITS. PyTorch captures the sum of what reaches a node, also over a node that is captured
itself. Where several regions lead to one node that sum would count twice what goes over another
region, and the hooks of the node would be applied to parts. So the cotangent on each such edge is
taken where it leaves its own node, by a hook, and the capture only makes PyTorch go there. (The
same where PyTorch would go on over a node outside to another exit of the region.) The
hooks of a node's tensor are applied once to the whole sum: where its region begins, or at its leaf
or landing. (They also see the part, whose result is dropped; the documentation says so.)
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, ClassVar

import torch
from torch.autograd.graph import GradientEdge

from telegrad.distributed.foreign import Cut
from telegrad.engine import OrderedTask
from telegrad.errors import GraphFreedError, InternalError, SavedValueChanged
from telegrad.graph import Bundle, Cotangent, next_key
from telegrad.interop.torch_bridge import REGIONS_RUNNING, Entry, ToTorch, from_torch, raw
from telegrad.tensors.hooked import Hooked
from telegrad.tensors.modes import ModeScope
from telegrad.tensors.recorded import OutputNode

__all__ = ["Leaf", "cut", "run_joined"]

_FUNCTION: Any = ToTorch._backward_cls
_Place = tuple[Any, int]
"""A node of PyTorch's and which of its results."""


def _with_hooks(place: _Place, cotangent: torch.Tensor, recorded: bool) -> torch.Tensor:
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

    def __init__(self, place: _Place) -> None:
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
        self.places: dict[_Place, int] = {}
        """The edges into it, with their places in the Bundle."""
        self.exits: dict[_Place, list[tuple[Any, int]]] = {}
        """The edges out of it: for each place outside, the nodes inside and which edge of each."""
        self.edges: tuple[Any, ...] = ()
        self.goals: list[tuple[Any, list[_Place]]] = []
        """For each edge, its node and the places outside that belong to it."""
        self.goes_on = False
        """Whether PyTorch runs over nodes outside, which must keep their values."""

    def name(self) -> str:
        return "TorchRegionBackward"

    def slot(self, place: _Place) -> int:
        """The place in the Bundle of an edge into the region."""
        return self.places.setdefault(place, len(self.places))

    def pull(self, cotangent: Cotangent) -> Sequence[Cotangent | None]:
        return self._run(cotangent, False)

    def pull_recorded(self, cotangent: Cotangent) -> Sequence[Cotangent | None]:
        with torch.enable_grad():
            return self._run(cotangent, True)

    def _run(self, cotangent: Bundle, recorded: bool) -> list[Any]:
        given = [(p, g) for p, g in zip(self.places, cotangent) if g is not None]
        taken: dict[_Place, torch.Tensor] = {}
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
        self, node: Any, places: list[_Place], results: dict[_Place, Any], given: list[Any]
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
    def _taking(self, taken: dict[_Place, torch.Tensor], wanted: set[_Place]) -> Iterator[None]:
        """Notes the cotangents on the edges to these places; see the note EXITS."""
        by_node: dict[Any, list[tuple[int, _Place]]] = {}
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
        taken: dict[_Place, torch.Tensor],
        edges: list[tuple[int, _Place]],
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
    result: torch.Tensor, place: _Place, results: dict[_Place, Any], given: list[Any]
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


class _Walk:
    """What the entries of a pass reach in both graphs."""

    def __init__(self, entries: Iterable[Any]) -> None:
        self.entries: dict[Entry, None] = {}
        self.boundaries: list[Any] = []
        self.following: dict[Any, list[tuple[int, _Place]]] = {}
        """For each inner node of PyTorch's, where its edges lead."""
        self.ends: dict[Any, Leaf | Landing] = {}
        seen: set[Any] = set()
        stack = list(entries)[::-1]
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if isinstance(node, Entry):
                self.entries[node] = None
                stack.extend(self._follow(node.edge.node))
            elif node.is_boundary:
                self.boundaries.append(node)
            stack.extend(reversed(node.edges))

    def _follow(self, start: Any) -> list[Any]:
        """Walks PyTorch's graph; returns the nodes of telegrad's where it comes back."""
        back: list[Any] = []
        stack = [start]
        while stack:
            node = stack.pop()
            if node in self.following or node in self.ends:
                continue
            if isinstance(node, _FUNCTION):
                self.ends[node] = Landing((node, 0))
                back.append(node.crossing.node)
            elif hasattr(node, "variable"):
                self.ends[node] = Leaf(node.variable)
            else:
                edges = [(i, p) for i, p in enumerate(node.next_functions) if p[0] is not None]
                self.following[node] = edges
                stack.extend(place[0] for _, place in reversed(edges))
        return back

    def marks(self) -> dict[Any, int]:
        """Which entries reach each node: a bit for each."""
        marks = dict.fromkeys((*self.following, *self.ends), 0)
        missing = dict.fromkeys(marks, 0)
        for edges in self.following.values():
            for _, (node, _) in edges:
                missing[node] += 1
        for i, entry in enumerate(self.entries):
            marks[entry.edge.node] |= 1 << i
        ready = [node for node, count in missing.items() if not count]
        while ready:
            node = ready.pop()
            for _, (other, _) in self.following.get(node, ()):
                marks[other] |= marks[node]
                missing[other] -= 1
                if not missing[other]:
                    ready.append(other)
        return marks


def cut(entries: Iterable[Any], keep_graph: bool) -> Cut:
    """PyTorch's graph as the entries of a pass reach it."""
    return _cut(_Walk(entries), keep_graph)


def _cut(walk: _Walk, keep_graph: bool) -> Cut:
    marks = walk.marks()
    regions: dict[int, Region] = {}
    region_of: dict[Any, Region] = {}
    for node in walk.following:
        mark = marks[node]
        if mark not in regions:
            regions[mark] = Region(keep_graph)
        region_of[node] = regions[mark]
    sources: dict[Any, set[Any]] = {node: set() for node in walk.ends}
    for entry in walk.entries:
        node = entry.edge.node
        if node in walk.ends:
            sources[node].add(entry)
        else:
            region_of[node].slot((node, entry.edge.output_nr))
    for node, edges in walk.following.items():
        region = region_of[node]
        for which, place in edges:
            other = region_of.get(place[0])
            if other is region:
                continue
            region.exits.setdefault(place, []).append((node, which))
            if other is None:
                sources[place[0]].add(region)
            else:
                other.slot(place)
    for node, end in walk.ends.items():
        end.is_shared = len(sources[node]) > 1
    for region in regions.values():
        _finish(region, region_of, walk.ends)
        region.goes_on = _goes_on(region, walk, marks)
        if region.goes_on:
            for goal in region.edges:
                if not isinstance(goal, Region):
                    goal.is_shared = True
    joined: dict[Any, Sequence[Any]] = {
        entry: (_way_in(entry, region_of, walk.ends),) for entry in walk.entries
    }
    leaves = {end: end.variable for end in walk.ends.values() if isinstance(end, Leaf)}
    return Cut(joined, leaves)


def _finish(region: Region, region_of: dict[Any, Region], ends: dict[Any, Any]) -> None:
    goals: dict[int, tuple[Any, list[_Place]]] = {}
    for place in region.exits:
        goal = region_of.get(place[0]) or ends[place[0]]
        goals.setdefault(id(goal), (goal, []))[1].append(place)
    region.goals = list(goals.values())
    region.edges = tuple(goal for goal, _ in region.goals)


def _goes_on(region: Region, walk: _Walk, marks: dict[Any, int]) -> bool:
    """Whether a node outside may lead PyTorch from one exit of a region to another."""
    nodes = {place[0]: None for place in region.exits}
    inner = [node for node in nodes if node in walk.following]
    # A way over telegrad's graph is one of PyTorch's, too, but marks don't show it.
    crossings = walk.ends if inner else nodes
    if any(isinstance(node, _FUNCTION) and node.crossing.entries for node in crossings):
        return True
    return any(marks[a] & marks[b] == marks[a] for a in inner for b in nodes if b is not a)


def _way_in(entry: Entry, region_of: dict[Any, Region], ends: dict[Any, Any]) -> Any:
    node = entry.edge.node
    if node in ends:
        return ends[node]
    region = region_of[node]
    place = region.places[node, entry.edge.output_nr]
    return OutputNode((region,), next_key(), place, len(region.places))


def run_joined(
    roots: dict[Any, Any],
    deliver: Callable[[Any, Any, bool], None],
    keep_graph: bool,
    recorded: bool,
    targets: dict[Any, Any] | None,
) -> None:
    """Runs a pass of this process alone through both graphs.

    Without targets, ``.grad`` of PyTorch's leaves accumulates as ``backward`` promises.
    """
    walk = _Walk(roots)
    if walk.boundaries:
        # Part of the graph is on another worker, and knows how to go on.
        walk.boundaries[0].take_over(roots, deliver, keep_graph, recorded, targets)
        return
    joined = _cut(walk, keep_graph)
    foreign: list[tuple[Any, Any]] = []

    def sort(node: Any, gradient: Any, is_alone: bool) -> None:
        if node in joined.leaves:
            foreign.append((joined.leaves[node], gradient))
        elif targets is None or node in targets:
            deliver(node, gradient, is_alone)

    def refuse(node: Any, cotangent: Any) -> None:
        raise InternalError(f"a boundary that the walk did not see: {node.name()}")

    task = OrderedTask(
        sort, refuse, keep_graph=keep_graph, recorded=recorded, targets=targets or ()
    )
    task.joined = joined.edges
    with ModeScope(recording=recorded, inference=False):
        task.count(roots)
        for root, cotangent in roots.items():
            task.feed(root, cotangent)
        task.run()
    if targets is None:
        for leaf, gradient in foreign:
            accumulate_foreign(leaf, gradient)


def accumulate_foreign(leaf: torch.Tensor, gradient: torch.Tensor) -> None:
    """Adds a gradient to ``.grad`` of a leaf of PyTorch's."""
    leaf.grad = gradient if leaf.grad is None else leaf.grad + gradient
