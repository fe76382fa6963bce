"""Cut PyTorch's graph into regions, for one pass of telegrad's engine.

Each group of the pass's entries into PyTorch's graph (the roots, a message, a converted value)
marks the nodes that it reaches. Nodes with the same marks form a region, and a region runs when the
cotangents of all live edges into it have arrived. A tap also marks the nodes behind it, so that a
region begins at its place and the whole cotangent passes there.

Most often no two groups meet before the ends of the graph. Then each group's region is what it
reaches, which the walk has found, and no marks are computed. Most often the groups share no end
either. Then only the ends matter, and the gradients of a region's leaves are delivered together
(``cut_apart``): 0.3 µs a node, against 0.7 for a walk that notes every edge.

Invariant: regions form no cycle. An edge of PyTorch's leads to a node with the same marks or more.
Suppose that a path leaves a region at a node n, goes through another worker or telegrad's own
graph, and enters the region again by some group. All nodes of a region have the same marks, so that
group reaches n as well: its cotangents would depend on those of n, and those of n on them. But the
cotangents of roots depend on nothing, and those of a message depend on what was computed after it,
never on the nodes that it reaches, which were computed before.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from telegrad.distributed.frameworks import Cut
from telegrad.graph import next_key
from telegrad.interop.torch.bridge import GONE_OVER
from telegrad.interop.torch.graph.ends import Landing, Tap
from telegrad.interop.torch.graph.lone_region import LoneRegion
from telegrad.interop.torch.graph.region import Region
from telegrad.interop.torch.graph.walk import CROSSING, ROOTS, Walk, grouped
from telegrad.tensors.recording.op_node import OutputNode


def cut(
    entries: Collection[Any],
    keep_graph: bool,
    targets: Collection[Any] = (),
    is_plain: bool = False,
) -> Cut:
    """Cut the part of PyTorch's graph that a pass's first nodes reach into regions.

    `is_plain`: all leaves take their gradients, and nothing observes single gradients meanwhile.
    """
    if GONE_OVER:
        return cut_walk(Walk.of_both(entries, targets), keep_graph, targets)
    if is_plain and not targets:
        found = cut_apart(entries, keep_graph)
        if found is not None:
            return found
    # No entry lies behind telegrad's own nodes: only roots and sent values can be entries.
    walk = Walk()
    walk.want(targets)
    for entry, group in grouped(entries):
        walk.enter(entry, group)
    return cut_walk(walk, keep_graph, targets)


def cut_apart(nodes: Iterable[Any], keep_graph: bool) -> Cut | None:
    """Cut as ``cut`` does if no two groups reach the same node or end; return None if some do."""
    ways: dict[Any, Sequence[Any]] = {}
    regions: dict[Any, LoneRegion] = {}
    seen: dict[Any, Region] = {}
    for entry, group in grouped(nodes):
        region = regions.get(group)
        if region is None:
            region = regions[group] = LoneRegion(next_key(), keep_graph)
        if not region.reach(entry.place, seen):
            return None
        if group is ROOTS or len(group.edges) > 1:
            ways[entry] = (region,)
        else:
            # The region takes the entry's place, which saves running one node.
            region.entry = entry
            ways[group] = (region,)
    leaves: dict[Any, Any] = {}
    for region in regions.values():
        end = region.end()
        if end is not None:
            leaves[end] = end.values
    if len(ways) > len(regions):
        _find_ways_in(ways)
    return Cut(ways, leaves, [*regions.values()])


def cut_walk(walk: Walk, keep_graph: bool, targets: Collection[Any] = ()) -> Cut:
    """Cut as ``cut`` does, given a finished walk."""
    taps = [x for x in targets if type(x) is Tap and _is_reached(x, walk)] if targets else []
    inner_taps = [tap for tap in taps if tap.place[0] in walk.following] if taps else []
    marks: dict[Any, int] = {}
    if walk.is_shared or inner_taps:
        marks = walk.marks(inner_taps)
        regions = _by_marks(walk, marks, inner_taps)
    else:
        regions = list(walk.regions.values())
    for tap in taps:
        walk.values[tap] = tap.value
        end = walk.ends.get(tap.place[0])
        if type(end) is Landing:
            end.tap = tap
    if marks or walk.comes_back or walk.meets:
        _find_taken(regions, walk, marks)
    has_several = False
    for region in regions:
        region.finish(keep_graph)
        if len(region.places) > 1:
            has_several = True
    if has_several:
        _find_ways_in(walk.ways)
    return Cut(walk.ways, walk.values, regions)


def _is_reached(tap: Tap, walk: Walk) -> bool:
    return tap.place[0] in walk.following or tap.place[0] in walk.ends


def _by_marks(walk: Walk, marks: dict[Any, int], taps: Iterable[Tap]) -> list[Region]:
    """Return the regions of nodes with the same marks, which replace the walk's regions."""
    distinct = dict.fromkeys([marks[node] for node in walk.following])
    regions = {mark: Region(next_key()) for mark in distinct}
    for end in [*walk.ends.values(), *walk.leaves.values()]:
        end.forget()
    for entry, (way,) in walk.ways.items():
        if type(way) is Region and entry.place is not None:
            region = regions[marks[entry.place[0]]]
            region.lead_in(entry.place)
            walk.ways[entry] = (region,)
        else:
            way.is_shared = True
    for node, leading in walk.following.items():
        mark = marks[node]
        region = walk.region_of[node] = regions[mark]
        for place in leading:
            if place[0] is None:
                continue
            goal: Any = walk.ends.get(place[0])
            if goal is not None:
                goal.reached_from(region)
            elif marks[place[0]] == mark:
                continue
            else:
                goal = regions[marks[place[0]]]
                goal.lead_in(place)
            region.exits[place] = goal
    for tap in taps:
        regions[marks[tap.place[0]]].taps.append(tap)
    return list(regions.values())


def _find_ways_on(regions: Iterable[Region], walk: Walk, marks: dict[Any, int]) -> None:
    for region in regions:
        region.goes_on = _goes_on(region, walk, marks)
        if region.goes_on:
            for goal in region.exits.values():
                if type(goal) is not Region:
                    goal.is_shared = True


def _goes_on(region: Region, walk: Walk, marks: dict[Any, int]) -> bool:
    """Tell whether PyTorch may go from one exit of a region to another over nodes outside."""
    nodes = {place[0]: None for place in region.exits}
    inner = [node for node in nodes if node in walk.following]
    # A ToTorch has PyTorch edges to its entries, which marks don't show.
    crossings = walk.ends if inner else nodes
    if any(type(node) is CROSSING and node.crossing.entries for node in crossings):
        return True
    return any(marks[a] & marks[b] == marks[a] for a in inner for b in nodes if b is not a)


def _find_taken(regions: Sequence[Region], walk: Walk, marks: dict[Any, int]) -> None:
    """Find the exits whose cotangents are taken (note EXITS), and the inner edges to them."""
    if marks or walk.comes_back:
        _find_ways_on(regions, walk, marks)
    for region in regions:
        region.find_taken()
    if not any(region.taken for region in regions):
        return
    for node, leading in walk.following.items():
        taken = walk.region_of[node].taken
        if taken:
            for which, place in enumerate(leading):
                if place in taken:
                    taken[place].append((node, which))


def _find_ways_in(ways: dict[Any, Sequence[Any]]) -> None:
    """Lead each entry to its part of the Bundle, in regions that several edges enter."""
    for entry, (way,) in ways.items():
        if isinstance(way, Region) and len(way.places) > 1 and entry.place is not None:
            index, size = way.places[entry.place], len(way.places)
            ways[entry] = (OutputNode((way,), next_key(), index, size),)
