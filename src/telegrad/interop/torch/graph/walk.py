"""Walk PyTorch's graph from the entries of a pass, to find the nodes and ends behind each.

Entries whose cotangents arrive together, those of one message or of all roots, form a *group*. The
walk notes what a group reaches as a region, as if no two groups met; where some do, ``cut.py``
replaces these regions.

Invariant: each PyTorch node is asked once for its next functions.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import torch

from telegrad.graph import next_key
from telegrad.interop.torch.bridge import Entry, ToTorch, accumulator_of
from telegrad.interop.torch.graph.ends import Former, Landing, Leaf, Tap, TorchEdge, WantedLeaf
from telegrad.interop.torch.graph.region import Region
from telegrad.interop.torch.graph.successors import parameter_of
from telegrad.interop.torch.modes import run_ordinarily

CROSSING: Any = ToTorch._backward_cls
"""The type of PyTorch nodes that lead to telegrad's graph."""
ACCUMULATOR: Any = type(run_ordinarily(lambda: accumulator_of(torch.zeros((), requires_grad=True))))
"""The type of PyTorch nodes that stand for leaves."""
ENDS: Final = (CROSSING, ACCUMULATOR)
"""The types of the nodes where PyTorch's graph ends for telegrad's engine."""

ROOTS: Final = "roots"
"""The group of all roots."""


def grouped(nodes: Iterable[Any]) -> Iterator[tuple[Entry, Any]]:
    """Yield the entries among a pass's first nodes and their edges, with their groups."""
    for node in nodes:
        if type(node) is Entry:
            yield node, ROOTS
            continue
        for edge in node.edges:
            if type(edge) is Entry:
                yield edge, node


class Walk(msgspec.Struct, eq=False):
    """The part of PyTorch's graph that the entries of a pass reach."""

    ways: dict[Any, Sequence[Any]] = {}
    """The edge of each entry: to an end, or to the region of what its group reaches."""
    regions: dict[Any, Region] = {}
    """For each group, the region of what it reaches."""
    following: dict[Any, Sequence[TorchEdge]] = {}
    """The edges of each inner PyTorch node; one that leads nowhere has None for its node."""
    region_of: dict[Any, Region] = {}
    """For each inner node, the region of the group that reached it first."""
    ends: dict[Any, Leaf | Landing | Former] = {}
    leaves: dict[int, Leaf] = {}
    """By identity of the tensor, since a leaf may be reached by its node and as an entry, too."""
    values: dict[Any, torch.Tensor] = {}
    """The tensors of leaves and taps."""
    behind: list[Any] = []
    """Telegrad's nodes behind new landings, where a walk of both graphs continues."""
    boundaries: list[Any] = []
    """Telegrad's nodes that lead to other workers."""
    is_shared: bool = False
    """Whether some inner node is reached by several groups."""
    meets: bool = False
    """Whether some end is reached in several ways."""
    comes_back: bool = False
    """Whether a path goes from PyTorch's graph through telegrad's and back."""

    def want(self, targets: Iterable[Any]) -> None:
        """Make the requested leaves the ends for their tensors; call this before `enter`."""
        for target in targets:
            if type(target) is WantedLeaf:
                target.forget()
                self.leaves[id(target.value)] = target
                self.values[target] = target.value

    @classmethod
    def of_both(cls, nodes: Iterable[Any], targets: Iterable[Any] = ()) -> "Walk":
        """Walk both graphs from telegrad's nodes, through all entries behind them."""
        walk = cls()
        walk.want(targets)
        seen: set[Any] = set()
        stack = list(nodes)[::-1]
        # An entry that has a tensor is part of telegrad's graph: a group of its own.
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
        """Walk PyTorch's graph from an entry that has not been visited."""
        place = entry.place
        if place is not None and type(place[0]) not in ENDS:
            region = self.regions.get(group)
            if region is None:
                region = self.regions[group] = Region(next_key())
            region.lead_in(place)
            self._follow(place[0], region)
            self.ways[entry] = (region,)
            return
        end = self._leaf(entry.leaf, entry) if place is None else self._end_at(place[0], entry)
        # No region leads here from the entry, so PyTorch has not run the hooks.
        end.is_shared = True
        self.ways[entry] = (end,)

    def _follow(self, start: Any, region: Region) -> None:
        """Add the nodes behind a node to the region, up to the ends of the graph."""
        following, region_of, exits = self.following, self.region_of, region.exits
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
            for place in leading:
                target = place[0]
                if type(target) in ENDS:
                    exits[place] = self._end_at(target, region)
                elif target is not None:
                    inner.append(target)
            if inner:
                stack.extend(reversed(inner))

    def _end_at(self, node: Any, source: Any) -> Leaf | Landing | Former:
        """Return the end for a PyTorch node where the graph ends; `source` leads there."""
        found = self.ends.get(node)
        if found is not None:
            self.meets = True
            found.reached_from(source)
        elif type(node) is CROSSING:
            crossing = node.crossing
            found = self.ends[node] = Landing(next_key(), node, crossing, source=id(source))
            self.behind.append(crossing.node)
            if crossing.entries:
                self.comes_back = True
        else:
            leaf = node.variable
            parameter = parameter_of(leaf)
            if parameter is None:
                found = self.ends[node] = self._leaf(leaf, source)
            else:
                found = self.ends[node] = Former(key=next_key(), leaf=self._leaf(parameter, node))
                found.reached_from(source)
        return found

    def _leaf(self, tensor: Any, source: Any) -> Leaf:
        found = self.leaves.get(id(tensor))
        if found is not None:
            self.meets = True
            found.reached_from(source)
        else:
            found = self.leaves[id(tensor)] = Leaf(tensor, source=id(source))
            self.values[found] = tensor
        return found

    def marks(self, taps: Sequence[Tap]) -> dict[Any, int]:
        """Return, for each node, the groups and taps that reach it, one bit each."""
        marks = dict.fromkeys((*self.following, *self.ends), 0)
        missing = dict.fromkeys(marks, 0)
        for leading in self.following.values():
            for node, _ in leading:
                if node is not None:
                    missing[node] += 1
        bits: dict[Any, int] = {}
        # A region stands for its group; an end, for itself.
        starts = [(entry.place, way) for entry, (way,) in self.ways.items()]
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
