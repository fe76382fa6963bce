"""Regions: the pieces of PyTorch's graph that run as one node of telegrad's engine.

A region runs, once, as one call of PyTorch's engine from the edges into it to the edges out of it,
so broadcasting, hooks inside, freeing and streams are PyTorch's own. What leads out of it goes to
another region or to an end (``torch_ends.py``). ``torch_cut.py`` makes them.

Note EXITS. PyTorch captures the sum of what reaches a node, also over a node that is captured
itself, and applies the hooks of its tensor. Where a region alone leads to its ends that is what is
wanted. Where several regions lead to one node, the sum would count twice what goes over another
region, and the hooks would be applied to parts. There the cotangent on each edge out of the region
is taken where it leaves its own node, by a hook, which hands zeros on in its place; the capture
only makes PyTorch go there. (The same where PyTorch would go on over a node outside to another exit
of the region.) So a tensor's hooks, ``retain_grad`` among them, may be called with zeros besides,
which change no sum; what they return for those is dropped. They are applied to the whole where its
region begins, or at its end.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch.autograd.graph import GradientEdge

from telegrad.errors import GraphFreedError, SavedValueChanged
from telegrad.graph import Bundle, Cotangent, next_key
from telegrad.interop.torch_ends import ENGINE, Landing, Place, Tap, over
from telegrad.interop.torch_taking import Taking
from telegrad.tensors.hooked import Hooked

__all__ = ["Region"]


class Region(Hooked):
    """Nodes of PyTorch's that are reached by the same entries.

    Its cotangent is a Bundle where several edges lead into it, else PyTorch's tensor.
    """

    __slots__ = (
        "edges",
        "exits",
        "goals",
        "goes_on",
        "keep_graph",
        "key",
        "places",
        "taken",
        "taps",
    )

    hooks: ClassVar[None] = None
    freed: ClassVar[bool] = False
    is_leaf: ClassVar[bool] = False
    is_boundary: ClassVar[bool] = False

    def __init__(self) -> None:
        self.key = next_key()
        self.keep_graph = False
        self.places: dict[Place, int] = {}
        """The edges into it, with their places in the Bundle."""
        self.exits: dict[Place, list[tuple[Any, int]]] = {}
        """The edges out of it: for each place outside, the nodes inside and which edge of each."""
        self.goals: dict[Any, list[Place]] = {}
        """The regions and ends that it leads to, with the places outside that belong to each."""
        self.edges: tuple[Any, ...] = ()
        """For the engine: the goals; behind a landing of its own, telegrad's node."""
        self.taps: list[Tap] = []
        """Those beside edges into it."""
        self.taken: dict[Place, list[tuple[Any, int]]] = {}
        """Those exits whose cotangents are taken by hooks; see the note EXITS."""
        self.goes_on = False
        """Whether PyTorch runs over nodes outside, which must keep their values."""

    def name(self) -> str:
        return "TorchRegionBackward"

    def slot(self, place: Place) -> int:
        """The place in the Bundle of an edge into the region."""
        return self.places.setdefault(place, len(self.places))

    def finish(self, keep_graph: bool) -> None:
        """Called when everything that leads in or out is known."""
        self.keep_graph = keep_graph
        nodes = []
        for goal, places in self.goals.items():
            if type(goal) is Region or goal.is_shared:
                self.taken.update((place, self.exits[place]) for place in places)
            is_over = type(goal) is Landing and goal.is_alone
            nodes.append(goal.crossing.node if is_over else goal)
        self.edges = (*nodes, *self.taps)

    def pull(self, cotangent: Cotangent) -> Sequence[Cotangent | None]:
        return self._run(cotangent, False)

    def pull_recorded(self, cotangent: Cotangent) -> Sequence[Cotangent | None]:
        with torch.enable_grad():
            return self._run(cotangent, True)

    def release(self) -> None:
        return

    def add_exit(self, place: Place, node: Any, which: int, goal: Any) -> None:
        """Notes an edge from a node inside to a place outside that belongs to the goal."""
        inside = self.exits.get(place)
        if inside is not None:
            inside.append((node, which))
            return
        self.exits[place] = [(node, which)]
        if goal in self.goals:
            self.goals[goal].append(place)
        else:
            self.goals[goal] = [place]

    def _run(self, cotangent: Any, recorded: bool) -> list[Any]:
        if len(self.places) == 1:
            given = dict.fromkeys(self.places, cotangent)
        else:
            given = {p: g for p, g in zip(self.places, cotangent) if g is not None}
        if not self.taken and not self.taps and not self.goes_on:
            results = self._results(given, recorded)
            return self._contributions(results, given, recorded)
        taking = Taking(self.places, self.taken, [tap.place for tap in self.taps])
        with taking:
            results = self._results(given, recorded)
        results.update((place, taking.taken.get(place)) for place in self.taken)
        found = [taking.tapped.get(tap.place) for tap in self.taps]
        return [
            *self._contributions(results, given, recorded),
            *(g if g is None or recorded else g.clone() for g in found),
        ]

    def _results(self, given: dict[Place, Any], recorded: bool) -> dict[Place, Any]:
        """What PyTorch captures at each exit."""
        try:
            captured = ENGINE.run_backward(
                tuple([GradientEdge(*place) for place in given]),
                tuple(given.values()),
                self.keep_graph or self.goes_on or recorded,
                recorded,
                tuple([GradientEdge(*place) for place in self.exits]),
                allow_unreachable=True,
                accumulate_grad=False,
            )
        except RuntimeError as error:
            raise _explained(error) from error
        return dict(zip(self.exits, captured))

    def _contributions(
        self, results: dict[Place, Any], given: dict[Place, Any], recorded: bool
    ) -> list[Any]:
        found = []
        for goal, places in self.goals.items():
            if type(goal) is Region:
                found.append(_bundle(goal, places, results))
                continue
            result = results.get(places[0])
            if result is None:
                found.append(None)
            elif type(goal) is Landing:
                found.append(over(result, recorded) if goal.is_alone else result)
            else:
                is_held = not recorded and _is_held(result, places[0], results, given)
                found.append(result.clone() if is_held else result)
        return found


def _bundle(goal: Region, places: list[Place], results: dict[Place, Any]) -> Any:
    """What goes to another region."""
    if len(goal.places) == 1:
        return results.get(places[0])
    parts: list[Any] = [None] * len(goal.places)
    for place in places:
        parts[goal.places[place]] = results.get(place)
    return None if all(part is None for part in parts) else Bundle(parts)


def _is_held(
    result: torch.Tensor, place: Place, results: dict[Place, Any], given: dict[Place, Any]
) -> bool:
    """Whether something else has the memory of a gradient."""
    memory = _memory(result)
    others = [*given.values(), *(g for p, g in results.items() if p != place)]
    return memory is not None and any(g is not None and _memory(g) == memory for g in others)


def _memory(tensor: torch.Tensor) -> int | None:
    """Where a tensor's numbers are; PyTorch has zeros that are nowhere."""
    if tensor.is_sparse:
        tensor = tensor._values()
    if tensor.layout is not torch.strided or tensor._is_zerotensor():
        return None
    return tensor.untyped_storage().data_ptr()


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
