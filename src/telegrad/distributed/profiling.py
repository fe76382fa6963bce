"""What a worker did and when: the recording side of ``telegrad.profiler``.

Each worker has a Recording that is off until somebody starts it, here or from another worker.
Events are spans and the ends of arrows; times are the worker's own clock, which whoever collects
them aligns.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import numpy as np

from telegrad.rpc.call import Call
from telegrad.rpc.service import ServiceRequest
from telegrad.rpc.worker import Worker

__all__ = ["Event", "Recording"]

START: Final = "profiler.start"
CLOCK: Final = "profiler.clock"
COLLECT: Final = "profiler.collect"
_OWN: Final = (START, CLOCK, COLLECT)
_MOST_EVENTS: Final = 1_000_000


class Event(msgspec.Struct, array_like=True):
    """A span, or one end of an arrow (with a duration of -1 where it starts, -2 where it ends)."""

    name: str
    kind: str
    """call, message, handler, run or wait."""
    begin: float
    duration: float
    thread: int
    arrow: str = ""
    size: int = 0
    """Bytes sent, or taken by a handler."""
    received: int = 0
    detail: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Event]).decode


class Recording:
    """One worker's events; an Observer of that worker while it is on."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._now = worker.host.now
        self.events: list[Event] = []
        self._open: dict[Call, Event] = {}
        """The spans of calls that have not been answered."""
        worker.register_service(START, self._on_start, inline=True)
        worker.register_service(CLOCK, lambda r: r.reply(self._now()), inline=True)
        worker.register_service(COLLECT, self._on_collect)

    def start(self) -> None:
        """Begins anew."""
        self.events = []
        self._open = {}
        self._worker.observer = self

    def stop(self) -> list[Event]:
        """Ends, and gives what was recorded."""
        self._worker.observer = None
        events, self.events = self.events, []
        return events

    # From another worker.

    def start_at(self, worker: str) -> float:
        """Begins at another worker; by how much its clock is ahead of this one's."""
        self._worker.ask_service(worker, START)
        best: tuple[float, float] | None = None
        for _ in range(8):
            asked = self._now()
            there, _ = self._worker.ask_service(worker, CLOCK)
            took = self._now() - asked
            if best is None or took < best[0]:
                best = (took, there - asked - took / 2)
        assert best is not None
        return best[1]

    def collect_from(self, worker: str) -> list[Event]:
        """Ends at another worker, and fetches what it recorded."""
        _, (data,) = self._worker.ask_service(worker, COLLECT)
        return _decode(data.tobytes())

    def _on_start(self, request: ServiceRequest) -> None:
        self.start()
        request.reply()

    def _on_collect(self, request: ServiceRequest) -> None:
        request.reply(None, [np.frombuffer(_encode(self.stop()), np.uint8)])

    # The observer.

    def _add(self, event: Event) -> None:
        if len(self.events) < _MOST_EVENTS:
            self.events.append(event)

    def sent(self, call: Call, size: int) -> None:
        name = _name_of(call.what)
        if name in _OWN:
            return
        kind = "message" if call.is_service else "call"
        arrow = f"{self._worker.name}>{call.endpoint.peer.name}:{call.number}"
        began, thread = self._now(), threading.get_ident()
        self._add(Event(name, kind, began, -1.0, thread, arrow, size))
        to = call.endpoint.peer.name
        self._open[call] = Event(f"{name} → {to}", kind, began, 0.0, thread, "", size)

    def answered(self, call: Call, size: int) -> None:
        span = self._open.pop(call, None)
        if span is not None:
            span.duration = self._now() - span.begin
            span.received = size
            self._add(span)

    @contextmanager
    def handling(self, frm: str, number: int | None, what: Any, size: int) -> Iterator[None]:
        name = _name_of(what)
        began, thread = self._now(), threading.get_ident()
        try:
            yield
        finally:
            if name not in _OWN:
                ended = self._now()
                if number is not None:
                    arrow = f"{frm}>{self._worker.name}:{number}"
                    self._add(Event(name, "handler", began, -2.0, thread, arrow))
                self._add(Event(name, "handler", began, ended - began, thread, "", size))

    @contextmanager
    def waiting(self, call: Call) -> Iterator[None]:
        began = self._now()
        try:
            yield
        finally:
            name = _name_of(call.what)
            if name not in _OWN:
                thread = threading.get_ident()
                self._add(Event(f"wait for {name}", "wait", began, self._now() - began, thread))

    @contextmanager
    def running(self, name: str, detail: int | None = None) -> Iterator[None]:
        began = self._now()
        try:
            yield
        finally:
            thread = threading.get_ident()
            duration = self._now() - began
            self._add(Event(name, "run", began, duration, thread, detail=detail or 0))


def _name_of(what: Any) -> str:
    return str(getattr(what, "__qualname__", what))
