"""Gradients on the wire: what leaves for one worker, packed together.

For each message ``[message id, how many tensors it had, which have a gradient, what they carry]``,
and the raw arrays. In a recorded pass gradients are values with a history: they leave and arrive as
messages of their own, so a further pass goes back over the same wires. Their place in the program
is that of the message they answer, behind a mark that puts them after the whole forward program.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from telegrad.distributed.passes import Departure, Feed, Part
from telegrad.distributed.recording import Recorder
from telegrad.distributed.travelling import rebuilt
from telegrad.tensors import Tensor, wrap

__all__ = ["Parcels"]

_AFTER: Final = 1 << 62


class Parcels:
    """Packs and unpacks for one worker."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def pack(
        self, part: Part, to: str, group: Sequence[Departure]
    ) -> tuple[list[list[Any]], list[Any]]:
        """The entries for these departures, and their arrays."""
        entries: list[list[Any]] = []
        arrays: list[Any] = []
        for departure in group:
            places = [i for i, p in enumerate(departure.parts) if p is not None]
            present = [departure.parts[i] for i in places]
            extra = None
            if part.plan.recorded:
                path = (_AFTER, part.plan.ordinal, *departure.recv.path)
                extra = self._recorder.give(part.context, to, present, path)
            carried = []
            for value in present:
                if isinstance(value, Tensor):
                    arrays.append(value.array)
                    tangents = value.tangents
                    levels = self._recorder.levels
                    carried.append(levels.facts_of(tangents, to, arrays) if tangents else None)
                else:
                    arrays.append(np.asarray(value))
                    carried.append(None)
            facts = carried if any(fact is not None for fact in carried) else None
            size = len(departure.parts)
            entries.append([departure.recv.message_id, size, places, facts, extra])
        return entries, arrays

    def unpack(self, part: Part, entries: list[list[Any]], arrays: list[Any]) -> list[Feed]:
        """The gradients of each message."""
        feeds: list[Feed] = []
        rest = iter(arrays)
        for message_id, size, places, facts, extra in entries:
            present: list[Any] = [
                rebuilt(rest, facts[i], self._recorder.levels) if facts and facts[i] else next(rest)
                for i in range(len(places))
            ]
            if part.plan.recorded:
                present = [p if isinstance(p, Tensor) else wrap(p) for p in present]
                if extra is not None:
                    self._recorder.take(part.context, extra, present)
            parts: list[Any] = [None] * size
            for place, value in zip(places, present):
                parts[place] = value
            feeds.append((message_id, parts))
        return feeds
