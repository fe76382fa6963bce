"""Regions: the pieces of PyTorch's graph that run as one node of telegrad's engine.

A region runs once, as one call of PyTorch's engine from the edges into it to the edges out of it,
so broadcasting, inner hooks, freeing and streams are PyTorch's own. The edges out of it lead to
other regions or to ends (``ends.py``). ``cut.py`` makes regions.

Note EXITS. At each exit of a region PyTorch captures the sum of all cotangents that reach that node
in its pass, also those that go over another exit, and applies the hooks of its tensor to that sum.
This is right if no other region leads to the exit; and also if others do, but the exit is a leaf
without hooks and this region leads to ends alone. Otherwise the sum would count twice what goes
over another region, or the hooks would be applied to parts. Then the cotangent on each edge out of
the region is *taken* where it leaves its own node, by a hook, which puts zeros in its place; the
capture only makes PyTorch visit the exit. (The same holds where PyTorch would go on over a node
outside to another exit of the region.) So a tensor's hooks, ``retain_grad`` among them, may also be
called with zeros, which change no sum; what they return for those is dropped. They are applied to
the whole cotangent where its region begins, or at its end.
"""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Sequence
from itertools import compress, starmap
from sys import getrefcount
from typing import Any, ClassVar, Final

import msgspec
import torch
from torch.autograd.graph import GradientEdge

from telegrad.errors import GraphFreedError, SavedValueChanged
from telegrad.graph import Bundle, Cotangent, Node
from telegrad.interop.torch.graph.ends import Slot, Tap, TorchEdge, over
from telegrad.interop.torch.graph.exit_capture import ExitCapture
from telegrad.interop.torch.graph.pytorch_engine import run_backward
from telegrad.tensors.recording.hooked import Hooked
from telegrad.tensors.recording.modes import MODE, PLAIN, QUIET, Recording


class Region(msgspec.Struct, Hooked, eq=False):
    """PyTorch nodes that are reached by the same groups of entries.

    Its cotangent is a Bundle if several edges lead into it, otherwise a torch tensor.
    """

    key: int
    keep_graph: bool = False
    places: dict[TorchEdge, int] = {}
    """The edges into it, with their indices in the Bundle."""
    exits: dict[TorchEdge, Any] = {}
    """For each place outside that one of its edges leads to, the region or end there."""
    edges: tuple[Node, ...] = ()
    """For the engine: those regions and ends; for a landing of its own, telegrad's node behind."""
    slots: list[Slot] = []
    """For each exit, the engine's edge and the exit's index in that edge's cotangent."""
    taps: list[Tap] = []
    """The taps beside edges into it."""
    taken: dict[TorchEdge, list[tuple[Any, int]]] = {}
    """The exits whose cotangents are taken by hooks (note EXITS), each with the inner nodes and
    edge indices that lead there."""
    goes_on: bool = False
    """Whether PyTorch also runs nodes outside of it, which must keep their saved values."""

    hooks: ClassVar[None] = None
    freed: ClassVar[bool] = False
    is_shared: ClassVar[bool] = True
    """True, as for an end that several regions lead to: cotangents for it are taken."""

    def name(self) -> str:
        return "TorchRegionBackward"

    @property
    def is_apart(self) -> bool:
        """Whether PyTorch runs only the region's own nodes, without hooks of telegrad's."""
        # If `goes_on`, all its exits are taken.
        return not (self.taken or self.taps)

    def lead_in(self, place: TorchEdge) -> None:
        """Note an edge into the region."""
        self.places.setdefault(place, len(self.places))

    def slot(self, place: TorchEdge) -> Slot:
        """Return the slot for the cotangent of a region that leads in at this place."""
        return self, self.places[place], len(self.places)

    def finish(self, keep_graph: bool) -> None:
        """Set `slots` and `edges`, once all edges in and out are known."""
        self.keep_graph = keep_graph
        edges: dict[Any, None] = {}
        for place, goal in self.exits.items():
            slot = goal.slot(place)
            self.slots.append(slot)
            edges[slot[0]] = None
        self.edges = (*edges, *self.taps)

    def find_taken(self) -> None:
        """Find the exits whose cotangents are taken; ``cut.py`` adds the inner edges."""
        is_left = self.goes_on or any(type(goal) is Region for goal in self.exits.values())
        for place, goal in self.exits.items():
            if goal.is_shared and (is_left or goal.has_hooks):
                self.taken[place] = []

    def leave_out(self, skipped: Container[Any]) -> None:
        """Drop the exits to edges in `skipped`, whose gradients are not wanted."""
        kept = [edge not in skipped for edge, _, _ in self.slots]
        # Without any exit PyTorch would run all nodes; and a tap needs its node to run.
        if all(kept) or not any(kept) or self.taps:
            return
        self.exits = dict(compress(self.exits.items(), kept))
        self.slots = list(compress(self.slots, kept))
        self.taken = {place: self.taken[place] for place in self.taken if place in self.exits}
        self.edges = tuple(edge for edge in self.edges if edge not in skipped)

    def pull(self, cotangent: Cotangent) -> Sequence[Cotangent | None]:
        # PyTorch's grad mode decides what is recorded: its engine turns it off; its checkpoints
        # turn it on to recompute, and telegrad must then record the calls in them.
        if MODE.get() is not QUIET:
            with Recording(True):
                return self._run(cotangent, False)
        MODE.set(PLAIN)
        try:
            return self._run(cotangent, False)
        finally:
            MODE.set(QUIET)

    def pull_recorded(self, cotangent: Cotangent) -> Sequence[Cotangent | None]:
        with torch.enable_grad():
            return self._run(cotangent, True)

    def _run(self, cotangent: Any, recorded: bool) -> list[Any]:
        if not self.taken and not self.taps:
            captured, given = self._captured(cotangent, self.exits, recorded)
            return self._contributions(captured, given, recorded)
        taking = ExitCapture(self.places, self.taken, [tap.place for tap in self.taps])
        with taking:
            captured, given = self._captured(cotangent, self.exits, recorded)
        captured = [
            taking.taken.pop(place, None) if place in self.taken else result
            for place, result in zip(self.exits, captured)
        ]
        tapped = [taking.tapped.get(tap.place) for tap in self.taps]
        return [
            *self._contributions(captured, given, recorded),
            *(g if g is None or recorded else g.clone() for g in tapped),
        ]

    def _captured(
        self, cotangent: Any, exits: Collection[TorchEdge], recorded: bool
    ) -> tuple[Sequence[Any], tuple[torch.Tensor, ...]]:
        """Run PyTorch's engine; return what it captured at each exit, and the cotangents given."""
        places, given = tuple(self.places), (cotangent,)
        if len(places) > 1:
            places, given = zip(*[(p, g) for p, g in zip(places, cotangent) if g is not None])
        try:
            # Positional, which is faster; the last two are allow_unreachable and accumulate_grad.
            # Without exits PyTorch captures nothing, and there are no leaves to accumulate to.
            captured: Sequence[Any] | None = run_backward(
                tuple(starmap(GradientEdge, places)),
                given,
                self.keep_graph or self.goes_on or recorded,
                recorded,
                tuple(starmap(GradientEdge, exits)),
                True,
                not exits,
            )
        except RuntimeError as error:
            raise _explained(error) from error
        return captured or (), given

    def _contributions(
        self, captured: Sequence[Any], given: tuple[Any, ...], recorded: bool
    ) -> list[Any]:
        """Return the cotangent of each edge, given those captured at each exit."""
        at_leaves = [i for i, goal in enumerate(self.exits.values()) if goal.is_leaf]
        if at_leaves:
            own = parted([captured[i] for i in at_leaves], (*captured, *given))
            captured = [*captured]
            for i, gradient in zip(at_leaves, own):
                captured[i] = gradient
        return along(self.slots, captured, recorded)


def along(slots: Iterable[Slot], results: Iterable[Any], recorded: bool) -> list[Any]:
    """Return the cotangent of each of a region's edges, given those of its slots."""
    found: dict[Any, Any] = {}
    bundled: list[Any] = []
    for (edge, index, size), result in zip(slots, results):
        if result is not None and edge.is_boundary:
            # A region leads directly to a boundary only for a received value: ``Landing.slot``.
            result = over(result, recorded, True)
        if size == 1:
            found[edge] = result
            continue
        if edge not in found:
            found[edge] = [None] * size
            bundled.append(edge)
        found[edge][index] = result
    for edge in bundled:
        parts = found[edge]
        found[edge] = None if all(part is None for part in parts) else Bundle(parts)
    return [*found.values()]


def parted(gradients: list[Any], everything: tuple[Any, ...]) -> list[Any]:
    """Return gradients of leaves, copied where they are not a leaf's alone.

    Another tensor in `everything` may share the memory; or others hold the gradient: a hook that
    kept it, or a hook or a function that returned a tensor of the program's own.
    """
    counts = [*map(getrefcount, gradients)]
    if max(counts) <= _ALONE and len({*map(_memory, everything)}) == len(everything):
        return gradients
    uses = Counter(map(_memory, everything))
    del uses[None]
    return [
        each if each is None or (count <= _ALONE and uses[_memory(each)] < 2) else each.clone()
        for each, count in zip(gradients, counts)
    ]


def _count_alone(captured: tuple[Any, ...]) -> int:
    gradients, everything = [*captured], (*captured,)
    return getrefcount(gradients[0]) if everything else 0


_ALONE: Final = _count_alone((object(),))
"""References to a captured gradient in ``parted``, if only its callers hold it: note COUNTS in
``engine/local.py``."""


def _memory(tensor: torch.Tensor | None) -> int | None:
    """Return the address of a tensor's data; None if it has none."""
    try:
        return tensor.untyped_storage().data_ptr()  # type: ignore[union-attr]
    except (AttributeError, RuntimeError):
        # It is None, not dense, or lazily zero.
        return _memory(tensor._values()) if tensor is not None and tensor.is_sparse else None


def _explained(error: RuntimeError) -> Exception:
    if "modified by an inplace operation" in str(error):
        return SavedValueChanged(
            "expected values that PyTorch saved for the backward pass to be as they were, but one "
            "was changed in place, perhaps by an optimiser's step between the forward and the "
            "backward pass; step when every pass that used the parameter has ended, or compute "
            f"with a copy of it, parameter.clone() ({error})"
        )
    if "second time" not in str(error):
        return error
    return GraphFreedError(
        "expected a PyTorch graph that still has its saved values, but they were freed by an "
        f"earlier pass; pass retain_graph=True to that earlier call ({error})"
    )
