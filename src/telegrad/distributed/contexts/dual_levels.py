"""Dual levels across workers: the caller's levels have shadows on other workers.

A shared level has an id; messages mention it by the id and its depth. A worker that receives a
mention makes a *shadow*: a Level of its own at that depth, open as long as the original. Closing a
level closes its shadows, by notices that take the same way as the mentions. Losing the worker that
entered the level closes them, too, and a worker that loses another makes its shadows known to the
workers that entered the levels. A tensor that arrives after its level has closed has no tangent.
But a shadow closed by a loss is *orphaned*: its level may still be open, and without the tangents
that were here its derivatives would be wrong, so using it raises an error.
"""

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from telegrad.distributed.notices import forward
from telegrad.errors import LevelError, ProtocolViolation
from telegrad.rpc.calls.service import ServiceRequest
from telegrad.rpc.names import WorkerInfo, maker_of
from telegrad.rpc.wire.conversion import converter
from telegrad.rpc.worker import Worker
from telegrad.tensors.forward.levels import Level

Mention = Sequence[int]
"""A level's id and the two parts of its depth, as a message carries them."""

CLOSED: Final = "autograd.level_closed"
HELD: Final = "autograd.level_held"
_REMEMBERED: Final = 4096  # How many ids of closed levels, and of orphaned ones, are kept.
_registries: "weakref.WeakSet[LevelRegistry]" = weakref.WeakSet()
"""This process's registries, for `are_one`: a framework may have one level for the process."""


_as_id = converter(int)


class LevelRegistry:
    """The levels that one worker shares with others: its own, and its shadows of theirs."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._lock = threading.RLock()
        self._by_id: dict[int, Level] = {}
        self._ids: dict[Level, int] = {}
        self._shared_with: dict[int, dict[str, None]] = {}
        """For each level, the workers that messages mentioned it to."""
        self._closed: dict[int, None] = {}
        """The most recently closed ids: a late message must not open them again."""
        self._orphaned: dict[int | Level, str] = {}
        """Orphaned shadows, by id and by Level, each with the name of the lost worker."""
        _registries.add(self)
        worker.register_service(CLOSED, self._on_closed, inline=True)
        worker.register_service(HELD, self._on_held, inline=True)
        worker.on_worker_lost(self._on_lost)

    def __len__(self) -> int:
        return len(self._by_id)

    def share(self, level: Level, to: str) -> Mention:
        """Return a level's mention for a message to another worker."""
        if self._orphaned:
            self.check([level])
        with self._lock:
            number = self._ids.get(level)
            if number is None:
                self._enter(self._worker.next_id(), level)
                number = self._ids[level]
            self._shared_with[number][to] = None
        if not level.is_open:
            # It closed before it was watched here: do now what closing does.
            self._forget(level)
        return (number, *level.depth)

    def meet(self, mentions: Sequence[Mention]) -> list[Level | None]:
        """Return the levels that a message mentions, with new shadows as needed; None if closed."""
        with self._lock:
            return [self._meet(*mention) for mention in mentions]

    def _meet(self, number: int, time: int, process: int) -> Level | None:
        if not type(number) is type(time) is type(process) is int:
            # Refused, since `_on_lost` would fail on it later.
            raise ProtocolViolation(f"expected a level's numbers, got {(number, time, process)!r}")
        if self._orphaned:
            self.check([number])
        found = self._by_id.get(number)
        if found is None and number not in self._closed:
            self._enter(number, Level(depth=(time, process)))
            found = self._by_id[number]
        return found

    def _enter(self, number: int, level: Level) -> None:
        shared_with: dict[str, None] = {}
        if number in self._by_id or level in self._ids:
            # A finalizer that the collector has just run has entered it.
            return
        self._by_id[number] = level
        self._ids[level] = number
        self._shared_with[number] = shared_with
        level.watchers.append(self._forget)

    def _forget(self, level: Level) -> None:
        """Forget a closed level, and close its shadows on other workers."""
        with self._lock:
            number = self._ids.pop(level, None)
            if number is None:
                return
            del self._by_id[number]
            shared_with = self._shared_with.pop(number)
            self._remember_closed(number)
        for name in shared_with:
            forward(self._worker, name, CLOSED, number)

    def _remember_closed(self, number: int) -> None:
        self._closed[number] = None
        if len(self._closed) > _REMEMBERED:
            del self._closed[next(iter(self._closed))]

    def check(self, levels: Iterable[int | Level]) -> None:
        """Raise if one of these is orphaned."""
        for level in levels:
            name = self._orphaned.get(level)
            if name is not None:
                raise LevelError(
                    f"expected a dual level of a worker that was never lost here, but "
                    f"{self._worker.name!r} lost {name!r}, which entered it, and with it the "
                    "tangents of that level: leave the level, and take the derivative again"
                )

    def _orphan(self, number: int, name: str) -> None:
        with self._lock:
            level = self._by_id.get(number)
            if level is None:
                return
            # Before it closes: computing without its tangents must not go unnoticed.
            self._orphaned[number] = self._orphaned[level] = name
            while len(self._orphaned) > _REMEMBERED:
                del self._orphaned[next(iter(self._orphaned))]
        self._close(number)

    def _on_closed(self, request: ServiceRequest) -> None:
        self._close(_as_id(request.header))

    def _close(self, number: int) -> None:
        with self._lock:
            level = self._by_id.get(number)
            self._remember_closed(number)
        if level is not None:
            level.close()

    def _on_lost(self, who: WorkerInfo, error: BaseException) -> Callable[[], None]:
        entered_there = [number for number in list(self._by_id) if maker_of(number) == who.id]

        def close() -> None:
            for number in entered_there:
                self._orphan(number, who.name)
            self.verify()

        return close

    def verify(self) -> None:
        """Make all shadows known to the workers that entered their levels.

        A notice that a level closed may have been lost with the worker that was to forward it.
        """
        for number in list(self._by_id):
            origin = maker_of(number)
            if origin != self._worker.id:
                self._worker.host.start(partial(self._notify_origin, origin, number))

    def _notify_origin(self, origin: int, number: int) -> None:
        # If that worker can't be reached but may come back, the shadow stays: closed too early, it
        # would remove the tangents of values that are still to arrive.
        with suppress(Exception):
            peer = self._worker.find(origin)
            if peer.lost is None:
                self._worker.notify_service(origin, HELD, number)
            else:
                self._orphan(number, peer.info.name)

    def _on_held(self, request: ServiceRequest) -> None:
        number = _as_id(request.header)
        with self._lock:
            shared_with = self._shared_with.get(number)
            if shared_with is not None:
                shared_with[request.frm.name] = None
        if shared_with is None:
            forward(self._worker, request.frm.name, CLOSED, number)

    def facts_of(self, tangents: Any, to: str, arrays: list[Any]) -> list[Any]:
        """Describe tangents for a message to `to`; append their arrays to `arrays`."""
        facts = []
        for level in sorted(tangents, key=lambda each: each.depth):
            tangent = tangents[level]
            arrays.append(tangent.array)
            inner = self.facts_of(tangent.tangents, to, arrays) if tangent.tangents else None
            facts.append([self.share(level, to), inner])
        return facts


def are_one(level: Level, other: Level) -> bool:
    """Tell whether both are one level: the same object, or known by one id in this process."""
    if level is other:
        return True
    registries = list(_registries)
    # Each registry is asked once for `level`, which may close at any time.
    ids = {each._ids.get(level) for each in registries} - {None}
    return any(each._ids.get(other) in ids for each in registries)
