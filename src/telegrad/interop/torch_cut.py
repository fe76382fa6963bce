"""Cutting PyTorch's graph into regions, for one pass of telegrad's engine.

Every group of entries of the pass into PyTorch's graph (the roots, a message, a value that went
over) marks the nodes that it reaches. Nodes with the same marks form a region, and a region runs
when the cotangents of all live edges into it are in. A tap marks what lies behind it, too, so that
its place is where a region begins and a whole cotangent comes by.

Most often no two groups meet before the ends of the graph. Then what each group reaches is a
region, and the walk has found it already; only else are there marks to compute.

Invariant: regions have no circle. An edge leads to a node with the same marks or more. A way that
leaves a region through another worker or telegrad's own graph and comes back would come back by
another group, which every node of the region would have been reached by, the one that it left from
too; and never by the same: what a pass begins with depends on nothing of it, and a message on
nothing that was there before it.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from telegrad.distributed.foreign import Cut
from telegrad.graph import next_key
from telegrad.interop.torch_bridge import GONE_OVER, Entry
from telegrad.interop.torch_ends import Landing, Tap
from telegrad.interop.torch_regions import Region
from telegrad.interop.torch_walk import CROSSING, Walk, grouped
from telegrad.tensors.recorded import OutputNode

__all__ = ["cut", "cut_walk"]


def cut(nodes: Iterable[Any], keep_graph: bool, targets: Collection[Any] = ()) -> Cut:
    """PyTorch's graph as the nodes that a pass begins with reach it."""
    if GONE_OVER:
        return cut_walk(Walk.of_both(nodes, targets), keep_graph, targets)
    # Telegrad's graph leads nowhere: only roots and what was given away can be entries.
    entries = grouped(nodes)
    if not entries:
        return Cut({}, {})
    walk = Walk(targets)
    for entry, group in entries:
        walk.enter(entry, group)
    return cut_walk(walk, keep_graph, targets)


def cut_walk(walk: Walk, keep_graph: bool, targets: Collection[Any] = ()) -> Cut:
    """The same of what was walked already."""
    taps = [x for x in targets if type(x) is Tap and _is_reached(x, walk)] if targets else []
    marks: dict[Any, int] = {}
    if walk.is_shared or (taps and any(tap.place[0] in walk.following for tap in taps)):
        inner_taps = [tap for tap in taps if tap.place[0] in walk.following]
        marks = walk.marks(inner_taps)
        regions = _by_marks(walk, marks, inner_taps)
    else:
        regions = list(walk.regions.values())
    for tap in taps:
        end = walk.ends.get(tap.place[0])
        if type(end) is Landing:
            end.tap = tap
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
    return Cut(joined, leaves, regions)


def _is_reached(tap: Tap, walk: Walk) -> bool:
    return tap.place[0] in walk.following or tap.place[0] in walk.ends


def _by_marks(walk: Walk, marks: dict[Any, int], taps: Iterable[Tap]) -> list[Region]:
    """The regions of nodes with the same marks, in place of those that the walk found."""
    distinct = dict.fromkeys([marks[node] for node in walk.following])
    regions = {mark: Region() for mark in distinct}
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
    if any(type(node) is CROSSING and node.crossing.entries for node in crossings):
        return True
    return any(marks[a] & marks[b] == marks[a] for a in inner for b in nodes if b is not a)


def _way_in(entry: Entry, region: Region) -> OutputNode:
    """One of several ways into a region."""
    assert entry.place is not None
    return OutputNode((region,), next_key(), region.places[entry.place], len(region.places))
