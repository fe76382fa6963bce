"""The event log of a worker: what it did and when, for ``telegrad.profiler``.

Each worker has an EventLog, which is off until it is started, here or by another worker
(``remote_profile``), with whose loss it ends. Events are spans; their times are by the worker's own
clock, and are aligned where they are collected. The span of a call and that of its handler have the
same arrow.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

import msgspec
import numpy as np

from telegrad.errors import Refused, UsageError
from telegrad.rpc.calls.call import Call
from telegrad.rpc.calls.service import ServiceRequest
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.worker import Worker

START: Final = "profiler.start"
CLOCK: Final = "profiler.clock"
COLLECT: Final = "profiler.collect"
_OWN: Final = (START, CLOCK, COLLECT)
_MOST_EVENTS: Final = 1_000_000


class Event(msgspec.Struct, array_like=True):
    """A span of time on one worker, in seconds."""

    name: str
    kind: str
    """call, message, handler, run or wait."""
    begin: float
    duration: float
    thread: int
    arrow: str = ""
    """Joins a call or a message with its handler: only these two have it."""
    size: int = 0
    """Bytes that a call sent, or that a handler took."""
    received: int = 0
    """Bytes of a call's answer."""
    detail: int = 0
    """For a whole pass, the id of its context."""


_encode = msgspec.msgpack.Encoder().encode


class EventLog:
    """One worker's events; an Observer of that worker while it is on."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._now = worker.host.now
        self.events: list[Event] = []
        self._open: dict[Call, Event] = {}
        """The spans of unanswered calls."""
        self._serving: dict[int, Event] = {}
        """The spans of running handlers, by the identity of the span."""
        self._ending = threading.Lock()
        self._started_by: tuple[int, int] | None = None
        """The id of the worker that profiles this one, and its number for the profile."""
        worker.register_service(START, self._on_start, inline=True)
        worker.register_service(CLOCK, self._on_clock, inline=True)
        worker.register_service(COLLECT, self._on_collect)
        worker.on_worker_lost(self._on_lost)

    def check_off(self) -> None:
        """Raise if this worker is being profiled already."""
        if self._worker.observer is not None:
            raise UsageError(
                f"expected no profile to be on, got one that is on at {self._worker.name!r}; leave "
                "it before starting another"
            )

    def start(self, by: tuple[int, int] | None = None) -> None:
        """Start recording, for this worker or for another, given its id and number."""
        self.check_off()
        self.events = []
        self._open = {}
        self._serving = {}
        self._started_by = by
        self._worker.observer = self

    def stop(self) -> list[Event]:
        """Stop recording; return the events."""
        if self._worker.observer is self:
            self._worker.observer = None
        self._started_by = None
        self._open = {}
        # Handlers may still be running: a call that failed may have left others at work, and a
        # service may answer before it ends.
        with self._ending:
            for number in list(self._serving):
                self._served(number)
            events, self.events = self.events, []
        return events

    # From another worker.

    def _on_start(self, request: ServiceRequest) -> None:
        options, name = self._worker.options, request.frm.name
        if options.strict and name not in options.profiled_by:
            # A profile reveals everybody's calls, and prevents any other.
            raise Refused(
                f"worker {self._worker.name!r} is strict and does not let {name!r} profile it: "
                f"give it rpc.Options(strict=True, profiled_by=[{name!r}])"
            )
        self.start((request.frm.id, request.header))
        request.reply(self._now())

    def _on_clock(self, request: ServiceRequest) -> None:
        request.reply(self._now())

    def _on_collect(self, request: ServiceRequest) -> None:
        now = self._now()
        # A worker that was refused must not end another's profile.
        is_own = self._started_by == (request.frm.id, request.header)
        events = self.stop() if is_own else []
        request.reply(now, [np.frombuffer(_encode(events), np.uint8)])

    def _on_lost(self, who: WorkerInfo, error: BaseException) -> Callable[[], object] | None:
        started_by = self._started_by
        if started_by is None or started_by[0] != who.id:
            return None
        return lambda: self.stop() if self._started_by == started_by else None

    # The observer.

    def _add(self, event: Event) -> None:
        if len(self.events) < _MOST_EVENTS:
            self.events.append(event)

    def sent(self, call: Call, size: int) -> None:
        name = _name_of(call.what)
        if name in _OWN:
            return
        to = call.endpoint.peer.name
        arrow = f"{self._worker.name}>{to}:{call.number}"
        kind = "message" if call.is_service else "call"
        began, thread = self._now(), threading.get_ident()
        self._open[call] = Event(f"{name} → {to}", kind, began, 0.0, thread, arrow, size)

    def answered(self, call: Call, size: int) -> None:
        span = self._open.pop(call, None)
        if span is not None:
            span.duration = self._now() - span.begin
            span.received = size
            self._add(span)

    @contextmanager
    def handling(self, frm: str, number: int | None, what: Any, size: int) -> Iterator[None]:
        name = _name_of(what)
        if name in _OWN:
            yield
            return
        arrow = "" if number is None else f"{frm}>{self._worker.name}:{number}"
        span = Event(name, "handler", self._now(), 0.0, threading.get_ident(), arrow, size)
        self._serving[id(span)] = span
        try:
            yield
        finally:
            with self._ending:
                self._served(id(span))

    def _served(self, number: int) -> None:
        span = self._serving.pop(number, None)
        if span is not None:
            span.duration = self._now() - span.begin
            self._add(span)

    def waiting(self, call: Call) -> AbstractContextManager[None]:
        name = _name_of(call.what)
        return nullcontext() if name in _OWN else self._span(f"wait for {name}", "wait", 0)

    def running(self, name: str, detail: int | None = None) -> AbstractContextManager[None]:
        return self._span(name, "run", detail or 0)

    @contextmanager
    def _span(self, name: str, kind: str, detail: int) -> Iterator[None]:
        began, thread = self._now(), threading.get_ident()
        try:
            yield
        finally:
            self._add(Event(name, kind, began, self._now() - began, thread, detail=detail))


def _name_of(what: Any) -> str:
    return str(getattr(what, "__qualname__", what))
