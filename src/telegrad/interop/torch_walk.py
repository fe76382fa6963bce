"""Walking PyTorch's graph from the entries of a pass: which nodes lie behind each, and which ends.

Entries whose cotangents come at once, those of one message or of all roots, form a *group*. What a
group reaches is noted as a region, as if no two groups met. ``torch_cut.py`` makes others of them
where some do.

Invariant: a node of PyTorch's is asked once for where it leads.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import torch

from telegrad.interop.torch_bridge import Entry, ToTorch, accumulator_of
from telegrad.interop.torch_ends import Landing, Leaf, Place, Tap, WantedLeaf
from telegrad.interop.torch_modes import run_ordinarily
from telegrad.interop.torch_regions import Region

__all__ = ["CROSSING", "Walk", "grouped"]

CROSSING: Any = ToTorch._backward_cls
"""The type of the nodes of PyTorch's behind which telegrad's graph is."""
_ACCUMULATOR: Any = type(
    run_ordinarily(lambda: accumulator_of(torch.zeros((), requires_grad=True)))
)
_ENDS: Final = (CROSSING, _ACCUMULATOR)


_ROOTS: Final = "roots"


def grouped(nodes: Iterable[Any]) -> list[tuple[Entry, Any]]:
    """The entries among nodes that a pass begins with and right behind them, with their groups."""
    found: list[tuple[Entry, Any]] = []
    for node in nodes:
        if type(node) is Entry:
            found.append((node, _ROOTS))
            continue
        for edge in node.edges:
            if type(edge) is Entry:
                found.append((edge, node))
    return found


class Walk:
    """What the entries of a pass reach; some leaves are asked for."""

    __slots__ = (
        "behind",
        "boundaries",
        "comes_back",
        "ends",
        "following",
        "groups",
        "is_shared",
        "leaves",
        "region_of",
        "regions",
        "ways",
    )

    def __init__(self, targets: Iterable[Any] = ()) -> None:
        self.ways: dict[Entry, Any] = {}
        """Where each entry leads to: an end, or the region of what its group reaches."""
        self.groups: dict[Entry, Any] = {}
        """What stands for the group of each entry."""
        self.regions: dict[Any, Region] = {}
        """By the group."""
        self.following: dict[Any, Sequence[Place]] = {}
        """For each inner node of PyTorch's, where its edges lead; no node where nowhere."""
        self.region_of: dict[Any, Region] = {}
        """For each inner node, the region of the group that reached it first."""
        self.ends: dict[Any, Leaf | Landing] = {}
        self.leaves: dict[int, Leaf] = {}
        """By the identity of the tensor: a leaf may be reached by its node and be sent as it is."""
        for target in targets:
            if type(target) is WantedLeaf:
                target.forget()
                self.leaves[id(target.value)] = target
        self.behind: list[Any] = []
        """The nodes of telegrad's behind landings, for whoever walks its graph too."""
        self.boundaries: list[Any] = []
        """Nodes of telegrad's behind which other workers are."""
        self.is_shared = False
        """Whether some inner node is reached by several groups."""
        self.comes_back = False
        """Whether PyTorch's graph comes back over telegrad's."""

    @classmethod
    def of_both(cls, nodes: Iterable[Any], targets: Iterable[Any] = ()) -> "Walk":
        """Walks both graphs from nodes of telegrad's, to all entries that are behind them."""
        walk = cls(targets)
        seen: set[Any] = set()
        stack = list(nodes)[::-1]
        # An entry that has a tensor is part of telegrad's graph: its cotangent comes by itself.
        groups = {entry: group for entry, group in grouped(stack) if entry.tensor is None}
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if type(node) is Entry:
                walk.enter(node, groups.get(node, node))
                stack.extend(walk.behind)
                walk.behind.clear()
                continue
            if node.is_boundary:
                walk.boundaries.append(node)
            stack.extend(reversed(node.edges))
        return walk

    def enter(self, entry: Entry, group: Any) -> None:
        """Walks PyTorch's graph from an entry that has not been met."""
        self.groups[entry] = group
        place = entry.place
        if place is None:
            way: Any = self._leaf(entry.leaf)
            way.reached_from(entry)
        elif type(place[0]) in _ENDS:
            way = self._end_at(place[0])
            way.reached_from(entry)
        else:
            way = self.regions.get(group)
            if way is None:
                way = self.regions[group] = Region()
            way.slot(place)
            self._follow(place[0], way)
        self.ways[entry] = way

    def _follow(self, start: Any, region: Region) -> None:
        """Notes in the region what lies behind a node, up to the ends of the graph."""
        following, region_of = self.following, self.region_of
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
            if type(node) is CROSSING:
                found = Landing(node)
                self.behind.append(found.crossing.node)
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
        """Which groups and taps reach each node: a bit for each."""
        marks = dict.fromkeys((*self.following, *self.ends), 0)
        missing = dict.fromkeys(marks, 0)
        for leading in self.following.values():
            for node, _ in leading:
                if node is not None:
                    missing[node] += 1
        bits: dict[Any, int] = {}
        starts = [(entry.place, self.groups[entry]) for entry in self.ways]
        for place, source in [*starts, *((tap.place, tap) for tap in taps)]:
            if place is not None:
                marks[place[0]] |= 1 << bits.setdefault(source, len(bits))
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
