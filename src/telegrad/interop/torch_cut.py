"""Cutting PyTorch's graph into regions, for one pass of telegrad's engine.

Every entry of the pass into PyTorch's graph (a root, a message, a value that went over) marks the
nodes that it reaches. Nodes with the same marks form a region, and a region runs when the
cotangents of all live edges into it are in. A tap marks what lies behind it, too, so that its place
is where a region begins and a whole cotangent comes by.

Most often no two entries meet before the ends of the graph. Then what each entry reaches is a
region, and the walk has found it already; only else are there marks to compute.

Invariant: regions have no circle. An edge leads to a node with the same marks or more. A way that
leaves a region through another worker or telegrad's own graph and comes back would come back by an
entry, which every node of the region would have been reached by, the one that it left from too.
"""

from collections.abc import Collection, Iterable, Sequence
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
        self.ways: dict[Entry, Any] = {}
        """Where each entry leads to: an end, or the region of what it reaches."""
        self.boundaries: list[Any] = []
        self.following: dict[Any, list[tuple[int, Place]]] = {}
        """For each inner node of PyTorch's, where its edges lead."""
        self.ends: dict[Any, Leaf | Landing] = {}
        self.leaves: dict[int, Leaf] = {}
        """By the identity of the tensor: a leaf may be reached by its node and be sent as it is."""
        self.is_shared = False
        """Whether some inner node is reached by several entries."""
        self.comes_back = False
        """Whether PyTorch's graph comes back over telegrad's."""
        self._region_of: dict[Any, Region] = {}
        seen: set[Any] = set()
        stack = list(entries)[::-1]
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if type(node) is Entry:
                stack.extend(self._enter(node))
                continue
            if node.is_boundary:
                self.boundaries.append(node)
            stack.extend(reversed(node.edges))

    def _enter(self, entry: Entry) -> list[Any]:
        """Walks PyTorch's graph from an entry; the nodes of telegrad's where it comes back."""
        back: list[Any] = []
        way: Any = self._leaf(entry.leaf) if entry.place is None else None
        if entry.place is not None:
            way = self.ends.get(entry.place[0]) or self._end_at(entry.place[0], back)
        if way is not None:
            way.reached_from(entry)
        else:
            way = Region()
            way.slot(entry.place)
            self._follow(entry.place, way, back)
        self.ways[entry] = way
        return back

    def _follow(self, start: Any, region: Region, back: list[Any]) -> None:
        """Notes in the region what lies behind a place, up to the ends of the graph."""
        following, ends, region_of = self.following, self.ends, self._region_of
        stack = [start[0]]
        while stack:
            node = stack.pop()
            known = region_of.get(node)
            if known is not None:
                self.is_shared = self.is_shared or known is not region
                continue
            region_of[node] = region
            edges = following[node] = []
            inner = []
            for which, place in enumerate(node.next_functions):
                target = place[0]
                if target is None:
                    continue
                edges.append((which, place))
                end = ends.get(target)
                if end is None and target not in region_of:
                    end = self._end_at(target, back)
                if end is None:
                    inner.append(target)
                else:
                    end.reached_from(region)
                    region.add_exit(place, node, which, end)
            stack.extend(reversed(inner))

    def _end_at(self, node: Any, back: list[Any]) -> Leaf | Landing | None:
        """The end that a node of PyTorch's is; None for one inside of the graph."""
        found: Leaf | Landing
        if type(node) is _FUNCTION:
            found = Landing(node)
            back.append(found.crossing.node)
            self.comes_back = self.comes_back or bool(found.crossing.entries)
        elif hasattr(node, "variable"):
            found = self._leaf(node.variable)
        else:
            return None
        self.ends[node] = found
        return found

    def _leaf(self, tensor: Any) -> Leaf:
        found = self.leaves.get(id(tensor))
        if found is None:
            found = self.leaves[id(tensor)] = Leaf(tensor)
        return found

    def marks(self, taps: Sequence[Tap]) -> dict[Any, int]:
        """Which entries and taps reach each node: a bit for each."""
        marks = dict.fromkeys((*self.following, *self.ends), 0)
        missing = dict.fromkeys(marks, 0)
        for edges in self.following.values():
            for _, (node, _) in edges:
                missing[node] += 1
        starts = [entry.place for entry in self.ways] + [tap.place for tap in taps]
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


def cut(entries: Iterable[Any], keep_graph: bool, targets: Collection[Any] = ()) -> Cut:
    """PyTorch's graph as the entries of a pass reach it."""
    return cut_walk(Walk(entries), keep_graph, targets)


def cut_walk(walk: Walk, keep_graph: bool, targets: Collection[Any] = ()) -> Cut:
    """The same of what was walked already."""
    taps = [x for x in targets if type(x) is Tap and _is_reached(x, walk)] if targets else []
    marks: dict[Any, int] = {}
    if walk.is_shared or any(tap.place[0] in walk.following for tap in taps):
        inner_taps = [tap for tap in taps if tap.place[0] in walk.following]
        marks = walk.marks(inner_taps)
        regions = _by_marks(walk, marks, inner_taps)
    else:
        regions = [way for way in walk.ways.values() if type(way) is Region]
    for tap in taps:
        end = walk.ends.get(tap.place[0])
        if type(end) is Landing:
            end.tapped_by(tap)
    if marks or walk.comes_back:
        _find_ways_on(regions, walk, marks)
    for region in regions:
        region.finish(keep_graph)
    joined: dict[Any, Sequence[Any]] = {
        entry: (_way_in(entry, way),) for entry, way in walk.ways.items()
    }
    ends: list[Leaf | Tap] = [*walk.leaves.values(), *taps]
    return Cut(joined, {end: end.value for end in ends})


def _is_reached(tap: Tap, walk: Walk) -> bool:
    return tap.place[0] in walk.following or tap.place[0] in walk.ends


def _by_marks(walk: Walk, marks: dict[Any, int], taps: Iterable[Tap]) -> list[Region]:
    """The regions of nodes with the same marks, in place of those that the walk found."""
    regions: dict[int, Region] = {}
    for node in walk.following:
        regions.setdefault(marks[node], Region())
    for end in [*walk.ends.values(), *walk.leaves.values()]:
        end.forget()
    for entry in walk.ways:
        if type(walk.ways[entry]) is Region and entry.place is not None:
            walk.ways[entry] = regions[marks[entry.place[0]]]
            walk.ways[entry].slot(entry.place)
        else:
            walk.ways[entry].reached_from(entry)
    for node, edges in walk.following.items():
        mark = marks[node]
        region = regions[mark]
        for which, place in edges:
            goal: Any = walk.ends.get(place[0])
            if goal is not None:
                goal.reached_from(region)
            elif marks[place[0]] == mark:
                continue
            else:
                goal = regions[marks[place[0]]]
                goal.slot(place)
            region.add_exit(place, node, which, goal)
    for tap in taps:
        regions[marks[tap.place[0]]].taps.append(tap)
    return list(regions.values())


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


def _way_in(entry: Entry, way: Any) -> Any:
    if type(way) is not Region or len(way.places) == 1 or entry.place is None:
        return way
    return OutputNode((way,), next_key(), way.places[entry.place], len(way.places))
