"""What PyTorch's profiler records on a thread, and the remote calls among it.

PyTorch's own remote calls are seen by its first profiler alone,
``torch.autograd.profiler_legacy``; so are these. Its records are made in C++, of one thread, and
can't be made from Python; but the events that a profile shows are made of them in Python, when it
ends. `install` has that done here: a `Recording` goes with each profile, and adds the calls that
were made on its thread (`CallSpan`) with what came back for them.

A thread that waits may serve others: what it records rests for so long (`resting`, entered by
``modes``), and a handler can be recorded for its caller on whichever thread it runs (`record`).

May not know calls: how a span begins, and how events travel, is their affair.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch.autograd import profiler_legacy
from torch.autograd.profiler_util import FunctionEvent

Served = tuple[float, list[FunctionEvent]]
"""What a handler recorded: when that began, by its worker's clock, and events since then (µs)."""

_legacy: Any = profiler_legacy
_Event: Any = FunctionEvent
_enable: Any = torch._C._autograd._enable_profiler_legacy
_disable: Any = torch._C._autograd._disable_profiler_legacy
_parse: Any = _legacy._parse_legacy_records
_start_trace: Any = _legacy.profile._start_trace
is_any_on: Callable[[], bool] = torch._C._autograd._profiler_enabled
"""Tells whether any profiler of PyTorch's is on in this thread."""
_OPTIONS: Final = (
    "record_shapes",
    "with_flops",
    "profile_memory",
    "with_stack",
    "with_modules",
    "use_cuda",
)
_START: Final = "__start_profile"
_REMOTE: Final = "#remote_op: "


class _Thread(threading.local):
    recording: "Recording | None" = None
    """That of the profile which is on here; see `current`."""


THREAD: Final = _Thread()


def current() -> "Recording | None":
    """Return the recording of the profile that is on here, and not only was not left in order."""
    if THREAD.recording is not None and not is_any_on():
        THREAD.recording = None
    return THREAD.recording


def _now() -> float:
    """Return the time by the clock of PyTorch's records."""
    return time.time_ns() / 1e3


class CallSpan:
    """A remote call as an event: from now until it is settled, with what was recorded for it."""

    def __init__(self, name: str, node: int) -> None:
        self.name = name
        self.node = node
        self._begin = _now()
        self._end: float | None = None
        self._served: Served | None = None

    def stop(self, _: object = None) -> None:
        """End it, now."""
        self._end = _now()

    def add(self, served: Served | None) -> None:
        """Add what its handler recorded."""
        self._served = served

    def events(self, start: float, thread: int) -> Iterator[FunctionEvent]:
        """Yield it, if it has ended, and what was recorded for it, on a profile's own scale."""
        if self._end is None:
            return
        yield _Event(
            id=0,
            node_id=self.node,
            name=self.name,
            trace_name=self.name,
            thread=thread,
            start_us=self._begin - start,
            end_us=self._end - start,
            input_shapes=[],
            stack=[],
            is_async=True,
            is_legacy=True,
        )
        if self._served is None:
            return
        began, events = self._served
        shift = self._place(began, events) - start
        for event in events:
            event.name = event.trace_name = f"{self.name}{_REMOTE}{event.name}"
            event.is_remote = True
            event.time_range.start += shift
            event.time_range.end += shift
            yield event

    def _place(self, began: float, events: Sequence[FunctionEvent]) -> float:
        """Return when a handler began, by this worker's clock."""
        assert self._end is not None, "it has ended"
        lasted = max((event.time_range.end for event in events), default=0.0)
        if self._begin <= began and began + lasted <= self._end:
            return began
        # The other clock differs: as much of the call was before it as after it.
        return (self._begin + self._end - lasted) / 2


class Recording:
    """What a profile has recorded so far: PyTorch's records, in parts, and calls."""

    def __init__(self, profile: Any) -> None:
        self.options = {name: bool(getattr(profile, name)) for name in _OPTIONS}
        """What the profile was made with, for `record`."""
        self.spans: list[CallSpan] = []
        self._config = profile.config()
        self._by_thread: dict[int, list[Any]] = {}

    def resume(self) -> None:
        """Record on this thread."""
        _enable(self._config)
        THREAD.recording = self

    def rest(self) -> None:
        """Record no more for now."""
        THREAD.recording = None
        self.add(_disable())

    def add(self, lists: Sequence[Sequence[Any]]) -> None:
        """Add records of PyTorch's, a list of each thread."""
        for records in lists:
            if records:
                self._by_thread.setdefault(records[0].thread_id(), []).extend(records)

    def begun(self) -> Any:
        """Return the record of its beginning."""
        return next(
            record
            for records in self._by_thread.values()
            for record in records
            if record.name() == _START
        )

    def events(self) -> list[FunctionEvent]:
        """Return what was recorded, in order; asked for once."""
        found: list[FunctionEvent] = _parse(list(self._by_thread.values()))
        if self.spans:
            begun = self.begun()
            for span in self.spans:
                found.extend(span.events(begun.start_us(), begun.thread_id()))
            found.sort(key=lambda event: (event.time_range.start, -event.time_range.end))
        return found

    def served(self, node: int) -> Served:
        """Return what a handler of worker `node` recorded."""
        events = self.events()
        for event in events:
            if not event.is_remote:
                event.node_id = node
        return self.begun().start_us(), events


@contextmanager
def resting() -> Iterator[None]:
    """Have this thread's profile rest, if one is on that can."""
    recording = current()
    if recording is None:
        yield
        return
    recording.rest()
    try:
        yield
    finally:
        recording.resume()


def record(
    options: Mapping[str, bool], function: Callable[..., Any], args: Any, kwargs: Any
) -> tuple[Any, Recording | None]:
    """Return a function's result, and what it does on this thread as PyTorch's profiler sees it.

    None where another profiler is on, which sees it: PyTorch allows one at a time.
    """
    if is_any_on():
        return function(*args, **kwargs), None
    can_use_cuda = options["use_cuda"] and torch.cuda.is_available()
    recording = Recording(_legacy.profile(**{**options, "use_cuda": can_use_cuda}))
    recording.resume()
    try:
        return function(*args, **kwargs), recording
    finally:
        recording.rest()


def _begin_recording(profile: Any) -> None:
    _start_trace(profile)
    THREAD.recording = Recording(profile)


def _parse_all(lists: Sequence[Sequence[Any]]) -> list[FunctionEvent]:
    """Return what a profile shows that ends on this thread."""
    recording, THREAD.recording = THREAD.recording, None
    if recording is None:
        found: list[FunctionEvent] = _parse(lists)
        return found
    recording.add(lists)
    return recording.events()


def name_node(number: int) -> None:
    """Give PyTorch's events of this process their worker's number, from now on."""
    # Some builds of PyTorch are without it.
    bindings = getattr(torch._C, "_distributed_rpc", None)
    if bindings is not None:
        bindings._set_profiler_node_id(number)


def install() -> None:
    """Have profiles of this process, from now on, show remote calls."""
    _legacy.profile._start_trace = _begin_recording
    _legacy._parse_legacy_records = _parse_all
