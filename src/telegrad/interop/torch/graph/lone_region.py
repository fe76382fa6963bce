"""Regions that meet no other: they lead to messages, and to leaves that no other region reaches.

Nearly all regions are of this kind. Each finds its ends on a walk of its own, and all its leaves
take their gradients together.
"""

from operator import itemgetter
from typing import Any

import torch

from telegrad.interop.torch.bridge import Entry
from telegrad.interop.torch.graph.ends import AllLeaves, TorchEdge, slot_of
from telegrad.interop.torch.graph.region import Region, along, parted
from telegrad.interop.torch.graph.successors import parameter_of
from telegrad.interop.torch.graph.walk import ACCUMULATOR, CROSSING, ENDS

_edge_of: Any = itemgetter(0)


class LoneRegion(Region, eq=False):
    """A region that meets no other. `exits` has its exits to messages, `leaves` those to leaves."""

    leaves: dict[TorchEdge, torch.Tensor] = {}
    entry: Entry | None = None
    """A message's only entry, which then does not run as a node of its own."""

    def reach(self, place: TorchEdge | None, seen: dict[Any, Region]) -> bool:
        """Note an edge into the region and the nodes behind it; `seen` maps nodes to regions.

        Return False if another region reaches one of them, or the pass continues behind an end.
        """
        if place is None or type(start := place[0]) in ENDS:
            return False
        self.places.setdefault(place, len(self.places))
        if start in seen:
            return seen[start] is self
        # An edge may lead nowhere.
        seen[start] = seen[None] = self
        stack = [start]
        while stack:
            for place in stack.pop().next_functions:
                node = place[0]
                if node in seen:
                    if seen[node] is not self:
                        return False
                    continue
                seen[node] = self
                kind = type(node)
                if kind is ACCUMULATOR:
                    leaf = node.variable
                    # A leaf may have had two nodes, and be reached by each.
                    if id(leaf) in seen or parameter_of(leaf) is not None:
                        return False
                    self.leaves[place] = leaf
                    seen[id(leaf)] = self
                elif kind is not CROSSING:
                    stack.append(node)
                elif not (crossing := node.crossing).is_of_message:
                    return False
                else:
                    self.exits[place] = None
                    self.slots.append(slot_of(crossing))
        return True

    def end(self) -> AllLeaves | None:
        """Set `edges` once all exits are known; return the node for all leaves, if it has any."""
        edges = tuple(dict.fromkeys(map(_edge_of, self.slots))) if self.slots else ()
        if not self.leaves:
            self.edges = edges
            return None
        end = AllLeaves([*self.leaves.values()])
        self.edges = (*edges, end)
        return end

    def _run(self, cotangent: Any, recorded: bool) -> list[Any]:
        entry, slots = self.entry, self.slots
        if entry is not None:
            (cotangent,) = entry.pull_recorded(cotangent) if recorded else entry.pull(cotangent)
        captured, given = self._captured(cotangent, (*self.exits, *self.leaves), recorded)
        found = along(slots, captured, recorded) if slots else []
        if self.leaves:
            found.append(parted([*captured[len(slots) :]], (*captured, *given)))
        return found
