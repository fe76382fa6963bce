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
from typing import Any, Final

import torch

from telegrad.distributed.foreign import Cut
from telegrad.graph import next_key
from telegrad.interop.torch_bridge import GONE_OVER, Entry, ToTorch, accumulator_of
from telegrad.interop.torch_ends import Landing, Leaf, Place, Tap
from telegrad.interop.torch_regions import Region
from telegrad.tensors.recorded import OutputNode

__all__ = ["Walk", "cut", "cut_walk"]

_FUNCTION: Any = ToTorch._backward_cls
_ACCUMULATOR: Any = type(accumulator_of(torch.zeros((), requires_grad=True)))
_ENDS: Final = (_FUNCTION, _ACCUMULATOR)


class Walk:
    """What the entries of a pass reach in both graphs.

    `is_deep`: whether telegrad's graph may lead to PyTorch's. Else all entries are given.
    """

    def __init__(self, nodes: Iterable[Any], is_deep: bool = True) -> None:
        self.ways: dict[Entry, Any] = {}
        """Where each entry leads to: an end, or the region of what it reaches."""
        self.boundaries: list[Any] = []
        self.following: dict[Any, Sequence[Place]] = {}
        """For each inner node of PyTorch's, where its edges lead; no node where nowhere."""
        self.ends: dict[Any, Leaf | Landing] = {}
        self.leaves: dict[int, Leaf] = {}
        """By the identity of the tensor: a leaf may be reached by its node and be sent as it is."""
        self.is_shared = False
        """Whether some inner node is reached by several entries."""
        self.comes_back = False
        """Whether PyTorch's graph comes back over telegrad's."""
        self._region_of: dict[Any, Region] = {}
        self._behind: list[Any] = []
        """The nodes of telegrad's behind the landings that were met."""
        if is_deep:
            self._walk_both(nodes)
        else:
            for entry in nodes:
                if entry not in self.ways:
                    self._enter(entry)

    def _walk_both(self, nodes: Iterable[Any]) -> None:
        seen: set[Any] = set()
        stack = list(nodes)[::-1]
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if type(node) is Entry:
                self._enter(node)
                stack.extend(self._behind)
                self._behind.clear()
                continue
            if node.is_boundary:
                self.boundaries.append(node)
            stack.extend(reversed(node.edges))

    def _enter(self, entry: Entry) -> None:
        """Walks PyTorch's graph from an entry."""
        place = entry.place
        if place is None:
            way: Any = self._leaf(entry.leaf)
            way.reached_from(entry)
        elif type(place[0]) in _ENDS:
            way = self._end_at(place[0])
            way.reached_from(entry)
        else:
            way = Region()
            way.slot(place)
            self._follow(place[0], way)
        self.ways[entry] = way

    def _follow(self, start: Any, region: Region) -> None:
        """Notes in the region what lies behind a node, up to the ends of the graph."""
        following, region_of = self.following, self._region_of
        stack = [start]
        while stack:
            node = stack.pop()
            known = region_of.get(node)
            if known is not None:
                if known is not region:
                    self.is_shared = True
                continue
            region_of[node] = region
            leading = following[node] = node.next_functions
            inner = []
            for which, place in enumerate(leading):
                target = place[0]
                if type(target) in _ENDS:
                    end = self._end_at(target)
                    end.reached_from(region)
                    region.add_exit(place, node, which, end)
                elif target is not None:
                    inner.append(target)
            if inner:
                stack.extend(reversed(inner))

    def _end_at(self, node: Any) -> Leaf | Landing:
        """What ends PyTorch's graph at a node that does."""
        found = self.ends.get(node)
        if found is None:
            if type(node) is _FUNCTION:
                found = Landing(node)
                self._behind.append(found.crossing.node)
                if found.crossing.entries:
                    self.comes_back = True
            else:
                found = self._leaf(node.variable)
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
        for leading in self.following.values():
            for node, _ in leading:
                if node is not None:
                    missing[node] += 1
        starts = [entry.place for entry in self.ways] + [tap.place for tap in taps]
        for i, place in enumerate(starts):
            if place is not None:
                marks[place[0]] |= 1 << i
        ready = [node for node, count in missing.items() if not count]
        while ready:
            node = ready.pop()
            for other, _ in self.following.get(node, ()):
                if other is None:
                    continue
                marks[other] |= marks[node]
                missing[other] -= 1
                if not missing[other]:
                    ready.append(other)
        return marks


def cut(nodes: Iterable[Any], keep_graph: bool, targets: Collection[Any] = ()) -> Cut:
    """PyTorch's graph as the nodes that a pass begins with reach it."""
    if GONE_OVER:
        return cut_walk(Walk(nodes), keep_graph, targets)
    # Then telegrad's graph leads nowhere: only what is given away or is a root itself is an entry.
    entries = []
    for node in nodes:
        if type(node) is Entry:
            entries.append(node)
        else:
            entries.extend([edge for edge in node.edges if type(edge) is Entry])
    return cut_walk(Walk(entries, False), keep_graph, targets) if entries else Cut({}, {})


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
    joined: dict[Any, Sequence[Any]] = {}
    for entry, way in walk.ways.items():
        is_whole = type(way) is not Region or len(way.places) == 1
        joined[entry] = (way if is_whole else _way_in(entry, way),)
    leaves: dict[Any, Any] = {leaf: leaf.value for leaf in walk.leaves.values()}
    if taps:
        leaves.update((tap, tap.value) for tap in taps)
    return Cut(joined, leaves)


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
    for node, leading in walk.following.items():
        mark = marks[node]
        region = regions[mark]
        for which, place in enumerate(leading):
            if place[0] is None:
                continue
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


def _way_in(entry: Entry, region: Region) -> OutputNode:
    """One of several ways into a region."""
    assert entry.place is not None
    return OutputNode((region,), next_key(), region.places[entry.place], len(region.places))
