"""What took how long, on every worker: ``with profile() as p``.

Records calls, handlers, node runs, gradient messages and waits on all workers that the current one
knows, with their clocks aligned. ``p.export("trace.json")`` writes one file in Chrome's trace
format, which Perfetto opens; ``p.summary()`` is a table by worker. While no profile is on, nothing
is recorded and each of these points costs a comparison.
"""

from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from telegrad.distributed.equipment import autograd_of
from telegrad.distributed.profiling import Event
from telegrad.errors import UsageError
from telegrad.rpc.current import current_worker

__all__ = ["profile"]


class profile:
    """Records between entering and leaving; then has ``events``, ``export`` and ``summary``."""

    def __init__(self) -> None:
        self.events: dict[str, list[Event]] = {}
        """By worker, with times of this worker's clock."""
        self._ahead: dict[str, float] = {}
        self._begun = False

    def __enter__(self) -> "profile":
        worker = current_worker()
        if worker.observer is not None:
            raise UsageError("expected no profile to be on, got a nested one; leave the first")
        recording = autograd_of(worker).recording
        for peer in worker.peers.all():
            if peer.info.name != worker.name:
                self._ahead[peer.info.name] = recording.start_at(peer.info.name)
        recording.start()
        self._begun = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        worker = current_worker()
        recording = autograd_of(worker).recording
        self.events[worker.name] = recording.stop()
        for name, ahead in self._ahead.items():
            try:
                events = recording.collect_from(name)
            except ConnectionError:
                # Lost meanwhile, with what it recorded.
                events = []
            for event in events:
                event.begin -= ahead
            self.events[name] = events

    def export(self, path: str | Path) -> Path:
        """Writes the trace; times in it begin at zero."""
        self._check()
        starts = [event.begin for events in self.events.values() for event in events]
        zero = min(starts, default=0.0)
        written: list[dict[str, Any]] = []
        for number, (worker, events) in enumerate(self.events.items()):
            name = {"name": f"worker {worker}"}
            written.append({"ph": "M", "name": "process_name", "pid": number, "args": name})
            threads = {t: i for i, t in enumerate(dict.fromkeys(e.thread for e in events))}
            written += [_as_chrome(event, number, threads[event.thread], zero) for event in events]
        target = Path(path)
        target.write_bytes(msgspec.json.encode({"traceEvents": written}))
        return target

    def summary(self) -> str:
        """A table by worker: calls and messages sent, bytes, and where time went, in ms."""
        self._check()
        rows = [
            ("worker", "calls", "messages", "KiB sent", "served", "handlers", "nodes", "waiting")
        ]
        for worker, events in self.events.items():
            spans = [event for event in events if event.duration >= 0]
            sent = [event for event in spans if event.kind in ("call", "message")]
            rows.append(
                (
                    worker,
                    str(sum(event.kind == "call" for event in sent)),
                    str(sum(event.kind == "message" for event in sent)),
                    f"{sum(event.size for event in sent) / 1024:.1f}",
                    str(sum(event.kind == "handler" for event in spans)),
                    _milliseconds(spans, "handler"),
                    _milliseconds([e for e in spans if not e.detail], "run"),
                    _milliseconds(spans, "wait"),
                )
            )
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        return "\n".join(
            "  ".join(
                cell.ljust(w) if i == 0 else cell.rjust(w)
                for i, (cell, w) in enumerate(zip(row, widths))
            )
            for row in rows
        )

    def _check(self) -> None:
        if not self.events:
            raise UsageError("expected a profile that has ended: leave its `with` block first")


def _milliseconds(events: list[Event], kind: str) -> str:
    return f"{sum(event.duration for event in events if event.kind == kind) * 1e3:.2f}"


def _as_chrome(event: Event, process: int, thread: int, zero: float) -> dict[str, Any]:
    """One event in Chrome's format; times in microseconds."""
    written: dict[str, Any] = {
        "name": event.name,
        "cat": event.kind,
        "ts": (event.begin - zero) * 1e6,
        "pid": process,
        "tid": thread,
    }
    if event.duration == -1.0:
        return {**written, "ph": "s", "id": event.arrow, "name": "message"}
    if event.duration == -2.0:
        return {**written, "ph": "f", "bp": "e", "id": event.arrow, "name": "message"}
    args: dict[str, Any] = {}
    if event.size:
        args["bytes"] = event.size
    if event.received:
        args["bytes of the answer"] = event.received
    if event.detail:
        args["context_id"] = str(event.detail)
    return {**written, "ph": "X", "dur": event.duration * 1e6, "args": args}
