"""The events of many workers as one trace in Chrome's format, which Perfetto opens.

Spans on one row of that format must nest. The spans of a thread do, but calls under way don't,
since a thread may have started many: they get rows of their own, as few as possible.

Perfetto takes process 0 and thread 0 for idle ones, a thread with the number of its process for the
main one, and the name of an arrow for a hexadecimal number. So all of these are numbers from 1, and
no two rows have the same.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from telegrad.distributed.tools.event_log import Event

_CALLS: Final = ("call", "message")
_FIRST_THREAD: Final = 100_000
"""The first row of a thread; those of calls come before."""
_ROWS: Final = 1_000_000
"""More rows than a worker has."""


def chrome_trace(by_worker: Mapping[str, Sequence[Event]]) -> list[dict[str, Any]]:
    """Return the trace's events, with times in microseconds from the first event."""
    everything = [event for events in by_worker.values() for event in events]
    zero = min((event.begin for event in everything), default=0.0)
    sent = [event.arrow for event in everything if event.arrow and event.kind in _CALLS]
    served = {event.arrow for event in everything if event.arrow and event.kind == "handler"}
    arrows = {arrow: number for number, arrow in enumerate(sent, 1) if arrow in served}
    written: list[dict[str, Any]] = []
    for process, (worker, events) in enumerate(by_worker.items(), 1):
        written.append(_label("process_name", process, 0, f"worker {worker}"))
        rows = _rows(events)
        for row in sorted(set(rows)):
            written.append(_label("thread_name", process, row, _row_name(row)))
        for event, row in zip(events, rows):
            span = _span(event, process, row, zero)
            written.append(span)
            if event.arrow in arrows:
                written.append(_end_of_arrow(event, span, arrows[event.arrow]))
    return written


def _rows(events: Sequence[Event]) -> list[int]:
    """Return the row of each event: its thread's or, for a call, the first that is free."""
    threads: dict[int, int] = {}
    rows = [0] * len(events)
    free_from: list[float] = []
    for i in sorted(range(len(events)), key=lambda i: events[i].begin):
        event = events[i]
        if event.kind not in _CALLS:
            rows[i] = threads.setdefault(event.thread, _FIRST_THREAD + len(threads))
            continue
        found = (row for row, end in enumerate(free_from) if end <= event.begin)
        rows[i] = next(found, len(free_from))
        free_from[rows[i] : rows[i] + 1] = [event.begin + event.duration]
    return rows


def _row_name(row: int) -> str:
    if row < _FIRST_THREAD:
        return f"calls under way {row + 1}"
    return f"thread {row - _FIRST_THREAD + 1}"


def _label(what: str, process: int, row: int, name: str) -> dict[str, Any]:
    place = {"pid": process, "tid": _ROWS * process + row}
    return {"ph": "M", "name": what, **place, "args": {"name": name}}


def _span(event: Event, process: int, row: int, zero: float) -> dict[str, Any]:
    args: dict[str, Any] = {}
    if event.size:
        args["bytes"] = event.size
    if event.received:
        args["bytes of the answer"] = event.received
    if event.detail:
        args["context_id"] = str(event.detail)  # As text: it has more bits than a double.
    return {
        "ph": "X",
        "name": event.name,
        "cat": event.kind,
        "ts": (event.begin - zero) * 1e6,
        "dur": event.duration * 1e6,
        "pid": process,
        "tid": _ROWS * process + row,
        "args": args,
    }


def _end_of_arrow(event: Event, span: Mapping[str, Any], number: int) -> dict[str, Any]:
    place = {name: span[name] for name in ("ts", "pid", "tid")}
    end = {"ph": "s"} if event.kind in _CALLS else {"ph": "f", "bp": "e"}
    return {**end, "name": "message", "cat": "message", "id": number, **place}
