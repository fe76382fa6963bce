"""A profile of other workers: begins and ends their event logs from here, and aligns their clocks.

All are asked at once, so that it takes as long for many as for one. Each answers with its time,
which lies between the request and the answer by this worker's clock: so every request bounds by how
much the other clock is ahead.
"""

import math
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from telegrad.distributed.tools.event_log import CLOCK, COLLECT, START, Event
from telegrad.rpc.calls.call import Call
from telegrad.rpc.calls.future import Quick
from telegrad.rpc.worker import Worker

_decode = msgspec.msgpack.Decoder(list[Event]).decode


class RemoteProfile:
    """What one profile has of other workers."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._now = worker.host.now
        self._number = worker.next_id()
        self._reached: list[str] = []
        self._bounds: dict[str, tuple[float, float]] = {}
        """By worker, by how many seconds its clock is ahead of this one's: at least, at most."""

    def start(self, workers: Iterable[str]) -> None:
        """Begin at those that can be reached; if one refuses, at none."""
        # Before anybody is asked: what was begun is ended, however this ends.
        self._reached = list(workers)
        try:
            self._reached = list(self._ask(START))
            # Once more, when every path is open: that says more of the clocks.
            self._ask(CLOCK)
        except BaseException:
            self.collect()
            raise

    def collect(self) -> dict[str, list[Event]]:
        """End, and return what each recorded, with times of this worker's clock."""
        # One that was lost took with it what it recorded.
        found: dict[str, list[Event]] = {name: [] for name in self._reached}
        for name, events in self._ask(COLLECT).items():
            found[name] = events
            ahead, _ = self.ahead_of(name)
            for event in found[name]:
                event.begin -= ahead
        return found

    def ahead_of(self, worker: str) -> tuple[float, float]:
        """Return by how many seconds a worker's clock is ahead, and how far off that may be."""
        low, high = self._bounds[worker]
        return (low + high) / 2, (high - low) / 2

    def _ask(self, service: str) -> dict[str, list[Event]]:
        """Ask all; return the events of those that answered, when they were asked for."""
        asked: dict[str, tuple[Call, float]] = {}
        came: dict[str, float] = {}
        for name in self._reached:
            began = self._now()
            with suppress(ConnectionError):
                call = self._worker.send_service(name, service, self._number)
                call.add_done_callback(Quick(partial(self._note, came, name)))
                asked[name] = call, began
        found = {}
        for name, (call, began) in asked.items():
            with suppress(ConnectionError):
                there, arrays = call.wait()
                low, high = self._bounds.get(name, (-math.inf, math.inf))
                # This thread may be quicker than the callback that notes the time.
                ended = came.get(name, self._now())
                try:
                    self._bounds[name] = max(low, there - ended), min(high, there - began)
                    found[name] = [] if service != COLLECT else _decode(arrays[0].tobytes())
                except (LookupError, TypeError, msgspec.MsgspecError, UnicodeDecodeError) as error:
                    raise call.malformed(error) from error
        return found

    def _note(self, came: dict[str, float], name: str, _: Any) -> None:
        came[name] = self._now()
