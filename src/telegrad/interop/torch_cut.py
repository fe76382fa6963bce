"""Cutting PyTorch's graph into regions, for one pass of telegrad's engine.

Every entry of the pass into PyTorch's graph (a root, a message, a value that went over) marks the
nodes that it reaches. Nodes with the same marks form a region, and a region runs when the
cotangents of all live edges into it are in.

Invariant: regions have no circle. An edge leads to a node with the same marks or more. A way that
leaves a region through another worker or telegrad's own graph and comes back would come back by an
entry, which every node of the region would have been reached by, the one that it left from too.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from telegrad.distributed.foreign import Cut
from telegrad.graph import next_key
from telegrad.interop.torch_bridge import Entry, ToTorch
from telegrad.interop.torch_regions import Landing, Leaf, Place, Region
from telegrad.tensors.recorded import OutputNode

__all__ = ["Walk", "cut", "cut_walk"]

_FUNCTION: Any = ToTorch._backward_cls


class Walk:
    """What the entries of a pass reach in both graphs."""

    def __init__(self, entries: Iterable[Any]) -> None:
        self.entries: dict[Entry, None] = {}
        self.boundaries: list[Any] = []
        self.following: dict[Any, list[tuple[int, Place]]] = {}
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
    return cut_walk(Walk(entries), keep_graph)


def cut_walk(walk: Walk, keep_graph: bool) -> Cut:
    """The same of what was walked already."""
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
    goals: dict[int, tuple[Any, list[Place]]] = {}
    for place in region.exits:
        goal = region_of.get(place[0]) or ends[place[0]]
        goals.setdefault(id(goal), (goal, []))[1].append(place)
    region.goals = list(goals.values())
    region.edges = tuple(goal for goal, _ in region.goals)


def _goes_on(region: Region, walk: Walk, marks: dict[Any, int]) -> bool:
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
