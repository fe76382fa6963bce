"""Show remote calls in PyTorch's profiles.

Only PyTorch's first profiler, ``torch.autograd.profiler_legacy``, shows PyTorch's own remote calls,
so telegrad supports that one. It records one thread, in C++, where Python can't add records; but
when a profile ends, Python makes events of the records. `install` replaces that step: each profile
gets a `Recording`, which adds the calls made on its thread (`CallSpan`) and the events that their
handlers recorded.

A waiting thread may run handlers: its profile is suspended meanwhile (`resting`, entered by
``modes``), and a handler can be recorded for its caller on whichever thread it runs (`record`).

This module knows nothing of RPC: ``telegrad/torch/rpc/profile`` starts spans and sends events.
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
"""A handler's recording: its start by its worker's clock, and events relative to that, in µs."""

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
    """The recording of the profile that is on in this thread; see `current`."""


THREAD: Final = _Thread()


def current() -> "Recording | None":
    """Return the recording of this thread's profile; drop one whose profile ended abnormally."""
    if THREAD.recording is not None and not is_any_on():
        THREAD.recording = None
    return THREAD.recording


def _now() -> float:
    """Return the time in µs by the clock of PyTorch's records."""
    return time.time_ns() / 1e3


class CallSpan:
    """A remote call as a profiler event, which begins now, with its handler's events."""

    def __init__(self, name: str, node: int) -> None:
        self.name = name
        self.node = node
        self._begin = _now()
        self._end: float | None = None
        self._served: Served | None = None

    def stop(self, _: object = None) -> None:
        """End the span now."""
        self._end = _now()

    def add(self, served: Served | None) -> None:
        """Add the handler's recording."""
        self._served = served

    def events(self, start: float, thread: int) -> Iterator[FunctionEvent]:
        """Yield the call's event, if it has ended, and its handler's, relative to `start`."""
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
        # The clocks differ: place the handler in the middle of the call.
        return (self._begin + self._end - lasted) / 2


class Recording:
    """A profile's data so far: PyTorch's records, collected in parts, and spans of calls."""

    def __init__(self, profile: Any) -> None:
        self.options = {name: bool(getattr(profile, name)) for name in _OPTIONS}
        """The profile's options, for `record`."""
        self.spans: list[CallSpan] = []
        self._config = profile.config()
        self._by_thread: dict[int, list[Any]] = {}

    def resume(self) -> None:
        """Record on this thread."""
        _enable(self._config)
        THREAD.recording = self

    def rest(self) -> None:
        """Stop recording for now."""
        THREAD.recording = None
        self.add(_disable())

    def add(self, lists: Sequence[Sequence[Any]]) -> None:
        """Add PyTorch's records, one list per thread."""
        for records in lists:
            if records:
                self._by_thread.setdefault(records[0].thread_id(), []).extend(records)

    def begun(self) -> Any:
        """Return the record of the profile's start."""
        return next(
            record
            for records in self._by_thread.values()
            for record in records
            if record.name() == _START
        )

    def events(self) -> list[FunctionEvent]:
        """Return all events in order; call it once, since it changes those of handlers."""
        found: list[FunctionEvent] = _parse(list(self._by_thread.values()))
        if self.spans:
            begun = self.begun()
            for span in self.spans:
                found.extend(span.events(begun.start_us(), begun.thread_id()))
            found.sort(key=lambda event: (event.time_range.start, -event.time_range.end))
        return found

    def served(self, node: int) -> Served:
        """Return the recording as that of a handler on worker `node`."""
        events = self.events()
        for event in events:
            if not event.is_remote:
                event.node_id = node
        return self.begun().start_us(), events


@contextmanager
def resting() -> Iterator[None]:
    """Suspend this thread's profile, if it has one that `install` knows of."""
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
    """Call a function under PyTorch's profiler; return its result and the recording.

    The recording is None if another profiler is on: PyTorch allows one at a time.
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
    """Return the events of a profile that ends on this thread."""
    recording, THREAD.recording = THREAD.recording, None
    if recording is None:
        found: list[FunctionEvent] = _parse(lists)
        return found
    recording.add(lists)
    return recording.events()


def name_node(number: int) -> None:
    """Mark PyTorch's later events of this process with their worker's number."""
    # Some builds of PyTorch lack these bindings.
    bindings = getattr(torch._C, "_distributed_rpc", None)
    if bindings is not None:
        bindings._set_profiler_node_id(number)


def install() -> None:
    """Make this process's later profiles show remote calls."""
    _legacy.profile._start_trace = _begin_recording
    _legacy._parse_legacy_records = _parse_all
