"""A profile of other workers: starts and stops their event logs, and aligns their clocks.

All are asked at once, so that it takes as long for many as for one. Each answers with its time,
which lies between the request and the answer by this worker's clock. So every request gives bounds
on how much the other clock is ahead.
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
    """The part of one profile that concerns other workers."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._now = worker.host.now
        self._number = worker.next_id()
        self._reached: list[str] = []
        self._bounds: dict[str, tuple[float, float]] = {}
        """By worker: at least and at most how many seconds its clock is ahead of this one's."""

    def start(self, workers: Iterable[str]) -> None:
        """Start on all workers that can be reached; if one refuses, on none."""
        # Set before anybody is asked, so that whatever was started is stopped if this fails.
        self._reached = list(workers)
        try:
            self._reached = list(self._ask(START))
            # Once more, now that every path is open: that gives closer bounds.
            self._ask(CLOCK)
        except BaseException:
            self.collect()
            raise

    def collect(self) -> dict[str, list[Event]]:
        """Stop, and return what each has recorded, with times by this worker's clock."""
        # What a lost worker has recorded is lost, too.
        found: dict[str, list[Event]] = {name: [] for name in self._reached}
        for name, events in self._ask(COLLECT).items():
            found[name] = events
            ahead, _ = self.ahead_of(name)
            for event in found[name]:
                event.begin -= ahead
        return found

    def ahead_of(self, worker: str) -> tuple[float, float]:
        """Return by how many seconds a worker's clock is ahead, and the possible error."""
        low, high = self._bounds[worker]
        return (low + high) / 2, (high - low) / 2

    def _ask(self, service: str) -> dict[str, list[Event]]:
        """Ask all; return, for those that answered, their events if COLLECT asked for these."""
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
                # The callback that notes the time may not have run yet.
                ended = came.get(name, self._now())
                try:
                    self._bounds[name] = max(low, there - ended), min(high, there - began)
                    found[name] = [] if service != COLLECT else _decode(arrays[0].tobytes())
                except (LookupError, TypeError, msgspec.MsgspecError, UnicodeDecodeError) as error:
                    raise call.malformed(error) from error
        return found

    def _note(self, came: dict[str, float], name: str, _: Any) -> None:
        came[name] = self._now()
