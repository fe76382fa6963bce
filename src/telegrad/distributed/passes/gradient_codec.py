"""The codec of gradients on the wire: the departures for one worker, packed into one frame.

Each message has an entry ``[message id, number of its tensors, indices of those with a gradient,
their tangents, the recorder's extra, arrays that another framework sent apart from the frame]``;
the other arrays are sent beside the entries. If all tensors have gradients, and these are plain
NumPy arrays, the entry ends after the second field. In a recorded pass gradients are values with a
history: they are sent as messages of their own, so that a further pass goes back the same way.
Their path is ``BACKWARD_PHASE``, the path of the pass, the path of the message they answer.

A forward-mode level may close at any time, on one worker sooner than on another, and removes its
tangents everywhere. A gradient's state when it was packed counts: its tangents keep their places in
the message, even if their level has closed when they arrive.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count, islice
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
        entries, arrays = [], []
        firsts: list[int] = []
        for recv, parts in group:
            firsts.append(len(arrays))
            places: list[int] = []
            values: list[Tensor] = []
            extra = facts = None
            for place, value in enumerate(parts):
                if value is None:
                    continue
                places.append(place)
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
            entries.append([recv.message_id, len(parts), places, facts, extra, None])
        if any(type(each) is not np.ndarray for each in arrays):
            arrays = self._sent_apart(entries, firsts, arrays, to)
        return entries, arrays

    def _sent_apart(
        self, entries: list[list[Any]], firsts: list[int], arrays: list[Any], to: str
    ) -> list[Any]:
        """Have other frameworks send some arrays apart, such as a device's; return the others.

        The entries note what was sent apart. `firsts` has the index of each entry's first array.
        """
        places = [i for i, each in enumerate(arrays) if frameworks.is_carried(each)]
        sent = frameworks.pack([arrays[i] for i in places], self._worker, to) if places else ()
        apart = dict(zip(places, sent))
        rest: list[Any] = []
        for entry, first, end in zip(entries, firsts, [*firsts[1:], len(arrays)]):
            for i in range(first, end):
                each = apart.get(i, arrays[i])
                if type(each) is list:
                    entry[5] = entry[5] or {}
                    entry[5][i - first] = each
                else:
                    rest.append(each if type(each) is np.ndarray else staged(each))
        return rest

    def unpack(
        self, local_pass: LocalPass, frm: str, entries: list[list[Any]], arrays: list[Any]
    ) -> list[Feed]:
        """Return the gradients of each message."""
        feeds: list[Feed] = []
        parts: list[Any]
        frame = iter(arrays)
        # All of them, and first: also those behind an entry that is refused must be given back.
        landed = self._landed(entries, frm) if max(map(len, entries), default=0) > 2 else None
        recorded = local_pass.plan.recorded
        for entry in entries:
            message_id, size, *told = entry
            if told or recorded:
                places, facts, extra, apart = told
            if type(message_id) is not int:
                raise TypeError(f"expected the id of a message, got {message_id!r:.100}")
            expected = local_pass.size_of(message_id)
            if expected is None:
                # The local pass will raise the error for the missing message, so the rest is moot.
                feeds.append((message_id, ()))
                break
            if type(size) is not int or size != expected:
                raise ProtocolViolation(
                    f"expected gradients for {expected} tensors of message {message_id}, got "
                    f"{size!r:.100}"
                )
            if not told:
                parts = [*islice(frame, size)]
                if len(parts) != size:
                    raise IndexError(f"expected {size} arrays for message {message_id}, got fewer")
                feeds.append((message_id, parts))
                continue
            rest = frame if not apart else map(partial(_next, frame, landed, apart), count())
            parts = [None] * size
            duals: dict[int, CarriedDual] = {}
            for i, place in enumerate(places):
                known = facts and facts.get(place)
                if known:
                    came = list(islice(rest, 1 + _count(known)))
                    duals[i] = CarriedDual([wrap(each) for each in came], known)
                    parts[place] = duals[i].arrive(self._levels)
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

    def _landed(self, entries: list[list[Any]], frm: str) -> Iterator[Any]:
        """Return the arrays that other frameworks sent apart from the frame, in order."""
        longer = [entry[5] for entry in entries if len(entry) > 5 and entry[5]]
        outside = [facts for apart in longer for facts in apart.values()]
        return iter(frameworks.unpack(outside, self._worker, frm) if outside else ())


def _next(frame: Iterator[Any], landed: Any, apart: Any, place: int) -> Any:
    """Return an entry's array at a place: the next one sent apart, or the next of the frame."""
    return next(landed if place in apart else frame)


def _count(facts: list[Any]) -> int:
    """Return the number of tangents in a description, nested ones included."""
    return sum(1 + _count(inner or []) for _, inner in facts)
