"""The codec of gradients on the wire: what leaves for one worker, packed into one frame.

For each message there is an entry ``[message id, how many tensors it had, which of them have a
gradient, their tangents, what the recorder adds, what another framework sent apart from the
frame]``; the raw arrays are sent beside the entries. Where all have one, and there is nothing but
arrays, the entry ends after the second. In a recorded pass gradients are values with a
history: they leave and arrive as messages of their own, so a further pass goes back over the same
wires. Their path is ``BACKWARD_PHASE``, the path of the pass, the path of the message they answer.

A forward-mode level may close at any time, on one worker sooner than on another, and takes its
tangents off everything. What counts is how a gradient was when it was packed: its tangents keep
their places in the message, even if their level has closed when they arrive.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

import numpy as np

from telegrad.arrays.devices import staged
from telegrad.distributed import frameworks
from telegrad.distributed.contexts.context import BACKWARD_PHASE
from telegrad.distributed.contexts.dual_levels import LevelRegistry
from telegrad.distributed.contexts.recorder import Recorder
from telegrad.distributed.contexts.tensor_kind import CarriedDual, snapshot
from telegrad.distributed.passes.local_pass import Departure, Feed, LocalPass
from telegrad.errors import ProtocolViolation
from telegrad.rpc.worker import Worker
from telegrad.tensors import Tensor, wrap

__all__ = ["GradientCodec"]


_ARRAYS: Final = {np.ndarray}


class GradientCodec:
    """The codec of one worker."""

    def __init__(self, worker: Worker, recorder: Recorder, levels: LevelRegistry) -> None:
        self._worker = worker
        self._recorder = recorder
        self._levels = levels

    def pack(
        self, local_pass: LocalPass, to: str, group: Sequence[Departure]
    ) -> tuple[list[list[Any]], list[Any]]:
        """Return the entries for these departures, and their arrays."""
        entries: list[list[Any]] = []
        arrays: list[Any] = []
        for recv, parts in group:
            entries.append([recv.message_id, len(parts)])
            arrays += parts
        if {*map(type, arrays)} == _ARRAYS and not local_pass.plan.recorded:
            return entries, arrays
        # Those of another framework that stayed its own, such as tensors of a device: all at once.
        foreign = [x for x in map(_outside, arrays) if x is not None]
        entries, arrays = [], []
        packed = iter(frameworks.pack(foreign, self._worker, to) if foreign else ())
        for recv, parts in group:
            places: list[int] = []
            values: list[Tensor] = []
            extra = facts = elsewhere = None
            for place, value in enumerate(parts):
                if value is None:
                    continue
                places.append(place)
                if _outside(value) is not None:
                    sent = next(packed)
                    if type(sent) is np.ndarray:
                        arrays.append(sent)
                    else:
                        elsewhere = elsewhere or {}
                        elsewhere[place] = sent
                    if isinstance(value, Tensor):
                        values.append(value)
                    continue
                if not isinstance(value, Tensor):
                    arrays.append(value)
                    continue
                arrays.append(value.array)
                if value.tangents:
                    value = snapshot(value)
                    facts = facts or {}
                    facts[place] = self._levels.facts_of(value.tangents, to, arrays)
                values.append(value)
            if local_pass.plan.recorded:
                path = (BACKWARD_PHASE, *local_pass.plan.path, *recv.path)
                extra = self._recorder.give(local_pass.context, to, values, path)
            entries.append([recv.message_id, len(parts), places, facts, extra, elsewhere])
        return entries, [each if type(each) is np.ndarray else staged(each) for each in arrays]

    def unpack(
        self, local_pass: LocalPass, frm: str, entries: list[list[Any]], arrays: list[Any]
    ) -> list[Feed]:
        """Return the gradients of each message."""
        feeds: list[Feed] = []
        rest = iter(arrays)
        outside = [x for entry in entries if entry[5:] and entry[5] for x in entry[5].values()]
        landed = iter(frameworks.unpack(outside, self._worker, frm) if outside else ())
        recorded = local_pass.plan.recorded
        for entry in entries:
            message_id, size, *told = entry
            if told or recorded:
                places, facts, extra, elsewhere = told
            if type(message_id) is not int:
                raise TypeError(f"expected the id of a message, got {message_id!r:.100}")
            expected = local_pass.size_of(message_id)
            if expected is None:
                # The local pass says why there is no such message; nothing comes after it.
                feeds.append((message_id, ()))
                break
            if type(size) is not int or size != expected:
                raise ProtocolViolation(
                    f"expected gradients for {expected} tensors of message {message_id}, got "
                    f"{size!r:.100}"
                )
            if not told:
                feeds.append((message_id, [next(rest) for _ in range(size)]))
                continue
            parts: list[Any] = [None] * size
            duals: dict[int, CarriedDual] = {}
            for i, place in enumerate(places):
                known = facts and facts.get(place)
                if known:
                    came = list(islice(rest, 1 + _count(known)))
                    duals[i] = CarriedDual(came, known)
                    parts[place] = duals[i].arrive(self._levels)
                elif elsewhere and place in elsewhere:
                    parts[place] = next(landed)
                else:
                    parts[place] = next(rest)
            if recorded:
                present = [p if isinstance(p, Tensor) else wrap(p) for p in parts if p is not None]
                if extra is not None:
                    self._recorder.take(local_pass.context, extra, present, duals)
                for place, value in zip(places, present):
                    parts[place] = value
            feeds.append((message_id, parts))
        return feeds


def _outside(value: Any) -> Any:
    """Return what another framework packs of a gradient: its own, or an array of a device."""
    if isinstance(value, Tensor) and not value.tangents:
        value = value.array
    if value is None or type(value) is np.ndarray or isinstance(value, Tensor):
        return None
    return value if frameworks.is_carried(value) else None


def _count(facts: list[Any]) -> int:
    """Return how many tangents a description is of."""
    return sum(1 + _count(inner or []) for _, inner in facts)
