"""Cutting PyTorch's graph into regions, for one pass of telegrad's engine.

Every entry of the pass into PyTorch's graph (a root, a message, a value that went over) marks the
nodes that it reaches. Nodes with the same marks form a region, and a region runs when the
cotangents of all live edges into it are in. A tap marks what lies behind it, too, so that its place
is where a region begins and a whole cotangent comes by.

Invariant: regions have no circle. An edge leads to a node with the same marks or more. A way that
leaves a region through another worker or telegrad's own graph and comes back would come back by an
entry, which every node of the region would have been reached by, the one that it left from too.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from telegrad.distributed.foreign import Cut
from telegrad.graph import next_key
from telegrad.interop.torch_bridge import Entry, ToTorch
from telegrad.interop.torch_ends import Landing, Leaf, Place, Tap
from telegrad.interop.torch_regions import Region
from telegrad.tensors.recorded import OutputNode

__all__ = ["Walk", "cut", "cut_walk"]

_FUNCTION: Any = ToTorch._backward_cls


class Walk:
    """What the entries of a pass reach in both graphs."""

    def __init__(self, entries: Iterable[Any]) -> None:
        self.entries: list[Entry] = []
        self.boundaries: list[Any] = []
        self.following: dict[Any, list[tuple[int, Place]]] = {}
        """For each inner node of PyTorch's, where its edges lead."""
        self.first: dict[Any, int] = {}
        """For each inner node, the entry that reached it first."""
        self.is_shared = False
        """Whether some inner node is reached by several entries."""
        self.comes_back = False
        """Whether PyTorch's graph comes back over telegrad's."""
        self.ends: dict[Any, Leaf | Landing] = {}
        self.leaves: dict[int, Leaf] = {}
        """By the identity of the tensor: a leaf may be reached by its node and be sent as it is."""
        seen: set[Any] = set()
        stack = list(entries)[::-1]
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if type(node) is Entry:
                self.entries.append(node)
                if node.place is not None:
                    stack.extend(self._follow(node.place[0]))
            elif node.is_boundary:
                self.boundaries.append(node)
            stack.extend(reversed(node.edges))

    def leaf(self, tensor: Any) -> Leaf:
        """The one node that stands for a leaf."""
        found = self.leaves.get(id(tensor))
        if found is None:
            found = self.leaves[id(tensor)] = Leaf(tensor)
        return found

    def _follow(self, start: Any) -> list[Any]:
        """Walks PyTorch's graph; returns the nodes of telegrad's where it comes back."""
        following, ends, first = self.following, self.ends, self.first
        number = len(self.entries) - 1
        back: list[Any] = []
        stack = [start]
        while stack:
            node = stack.pop()
            if node in following:
                self.is_shared = self.is_shared or first[node] != number
            elif node in ends:
                continue
            elif type(node) is _FUNCTION:
                ends[node] = Landing(node)
                back.append(node.crossing.node)
                self.comes_back = self.comes_back or bool(node.crossing.entries)
            elif hasattr(node, "variable"):
                ends[node] = self.leaf(node.variable)
            else:
                places = node.next_functions
                edges = [(i, p) for i, p in enumerate(places) if p[0] is not None]
                following[node] = edges
                first[node] = number
                stack.extend([place[0] for _, place in reversed(edges)])
        return back

    def marks(self, taps: Sequence[Tap]) -> dict[Any, int]:
        """Which entries and taps reach each node: a bit for each."""
        marks = dict.fromkeys((*self.following, *self.ends), 0)
        missing = dict.fromkeys(marks, 0)
        for edges in self.following.values():
            for _, (node, _) in edges:
                missing[node] += 1
        starts = [entry.place for entry in self.entries] + [tap.place for tap in taps]
        for i, place in enumerate(starts):
            if place is not None:
                marks[place[0]] |= 1 << i
        ready = [node for node, count in missing.items() if not count]
        while ready:
            node = ready.pop()
            for _, (other, _) in self.following.get(node, ()):
                marks[other] |= marks[node]
                missing[other] -= 1
                if not missing[other]:
                    ready.append(other)
        return marks


def cut(entries: Iterable[Any], keep_graph: bool, targets: Iterable[Any] = ()) -> Cut:
    """PyTorch's graph as the entries of a pass reach it."""
    return cut_walk(Walk(entries), keep_graph, targets)


def cut_walk(walk: Walk, keep_graph: bool, targets: Iterable[Any] = ()) -> Cut:
    """The same of what was walked already."""
    taps = [x for x in targets if type(x) is Tap and _is_reached(x, walk)] if targets else []
    inner_taps = [tap for tap in taps if tap.place[0] in walk.following]
    is_simple = not walk.is_shared and not inner_taps
    # Where no two entries meet, the first that reached a node is the only one.
    marks = walk.first if is_simple else walk.marks(inner_taps)
    regions = _Regions(keep_graph)
    _add_entries(walk, marks, regions)
    _add_edges(walk, marks, regions)
    for tap in taps:
        end = walk.ends.get(tap.place[0])
        if end is None:
            regions[marks[tap.place[0]]].taps.append(tap)
        elif type(end) is Landing:
            end.tapped_by(tap)
    if not is_simple or walk.comes_back:
        _find_ways_on(regions.values(), walk, marks)
    for region in regions.values():
        region.finish()
    joined: dict[Any, Sequence[Any]] = {
        entry: (_way_in(entry, walk, marks, regions),) for entry in walk.entries
    }
    ends: list[Leaf | Tap] = [*walk.leaves.values(), *taps]
    return Cut(joined, {end: end.value for end in ends})


class _Regions(dict[int, Region]):
    """By their marks, made when first asked for."""

    def __init__(self, keep_graph: bool) -> None:
        self._keep_graph = keep_graph

    def __missing__(self, mark: int) -> Region:
        made = self[mark] = Region(self._keep_graph)
        return made


def _is_reached(tap: Tap, walk: Walk) -> bool:
    return tap.place[0] in walk.following or tap.place[0] in walk.ends


def _add_entries(walk: Walk, marks: dict[Any, int], regions: _Regions) -> None:
    for entry in walk.entries:
        place = entry.place
        if place is None:
            walk.leaf(entry.leaf).reached_from(entry)
        elif place[0] in walk.ends:
            walk.ends[place[0]].reached_from(entry)
        else:
            regions[marks[place[0]]].slot(place)


def _add_edges(walk: Walk, marks: dict[Any, int], regions: _Regions) -> None:
    """Finds the edges that lead from one region to another or to an end."""
    ends = walk.ends
    for node, edges in walk.following.items():
        mark = marks[node]
        region = regions[mark]
        for which, place in edges:
            goal: Any = ends.get(place[0])
            if goal is not None:
                goal.reached_from(region)
            elif marks[place[0]] == mark:
                continue
            else:
                goal = regions[marks[place[0]]]
                goal.slot(place)
            region.add_exit(place, node, which, goal)


def _find_ways_on(regions: Iterable[Region], walk: Walk, marks: dict[Any, int]) -> None:
    for region in regions:
        region.goes_on = _goes_on(region, walk, marks)
        if region.goes_on:
            for goal in region.goals:
                if type(goal) is not Region:
                    goal.is_shared = True


def _goes_on(region: Region, walk: Walk, marks: dict[Any, int]) -> bool:
    """Whether a node outside may lead PyTorch from one exit of a region to another."""
    nodes = {place[0]: None for place in region.exits}
    inner = [node for node in nodes if node in walk.following]
    # A way over telegrad's graph is one of PyTorch's, too, but marks don't show it.
    crossings = walk.ends if inner else nodes
    if any(type(node) is _FUNCTION and node.crossing.entries for node in crossings):
        return True
    return any(marks[a] & marks[b] == marks[a] for a in inner for b in nodes if b is not a)


def _way_in(entry: Entry, walk: Walk, marks: dict[Any, int], regions: _Regions) -> Any:
    place = entry.place
    if place is None:
        return walk.leaf(entry.leaf)
    end = walk.ends.get(place[0])
    if end is not None:
        return end
    region = regions[marks[place[0]]]
    if len(region.places) == 1:
        return region
    return OutputNode((region,), next_key(), region.places[place], len(region.places))
