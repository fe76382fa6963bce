"""Profiles: what took how long, on every worker, in a block ``with profile() as p``.

It records calls, handlers, node runs, gradient messages and waits on all workers that the current
one knows, with their clocks aligned. ``p.export("trace.json")`` writes one file in Chrome's trace
format, which Perfetto opens; ``p.summary()`` is a table by worker. While no profile is on, nothing
is recorded, and each of these points costs a comparison.
"""

import html
from collections import Counter
from pathlib import Path

import msgspec

from telegrad.distributed.current import autograd_of
from telegrad.distributed.tools.chrome_trace import chrome_trace
from telegrad.distributed.tools.event_log import Event
from telegrad.distributed.tools.remote_profile import RemoteProfile
from telegrad.errors import UsageError
from telegrad.pictures.table import html_table, text_table
from telegrad.rpc.current import current_worker

__all__ = ["profile"]


class profile:
    """Records inside of its block; afterwards it has ``events``, ``export`` and ``summary``.

    Examples:
        >>> from telegrad.profiler import profile
        >>> with profile() as recorded:
        ...     number = rpc.rpc_sync("ps", abs, (-2,))
        >>> recorded.export("trace.json").name, sorted(recorded.events)
        ('trace.json', ['main', 'ps', 'trainer'])
    """

    def __init__(self) -> None:
        self.events: dict[str, list[Event]] = {}
        """By worker, with times by this worker's clock."""
        self._watch: RemoteProfile | None = None

    def __enter__(self) -> "profile":
        if self._watch is not None:
            raise UsageError("expected a fresh profile, got one that was used: make another")
        worker = current_worker()
        recording = autograd_of(worker).event_log
        recording.check_off()
        # One that is lost has nothing to tell.
        others = [peer.info.name for peer in worker.peers.all() if peer.info.name != worker.name]
        watch = RemoteProfile(worker)
        watch.start(others)
        recording.start()
        self._watch = watch
        return self

    def __exit__(self, *exception: object) -> None:
        worker = current_worker()
        self.events[worker.name] = autograd_of(worker).event_log.stop()
        assert self._watch is not None, "entered before it is left"
        self.events.update(self._watch.collect())

    def export(self, path: str | Path) -> Path:
        """Write the trace, whose times begin at zero; return its path."""
        self._check()
        target = Path(path)
        target.write_bytes(msgspec.json.encode({"traceEvents": chrome_trace(self.events)}))
        return target

    def summary(self) -> str:
        """Return a table by worker: calls and messages sent, bytes, and where time went, in ms.

        Handlers include what they waited for; nodes are those that passes ran.
        """
        self._check()
        return text_table(self._rows())

    def _rows(self) -> list[tuple[str, ...]]:
        titles = ("calls", "messages", "KiB out", "KiB in", "served")
        times = ("handlers ms", "nodes ms", "waiting ms")
        rows = [_row(worker, events) for worker, events in self.events.items()]
        return [("worker", *titles, *times), *rows]

    def __repr__(self) -> str:
        if self.events:
            count = sum(map(len, self.events.values()))
            return f"<profile of {', '.join(self.events)}: {count} events>"
        return "<profile: not entered>" if self._watch is None else "<profile: recording>"

    def _repr_html_(self) -> str:
        return html_table(self._rows()) if self.events else html.escape(repr(self))

    def _check(self) -> None:
        if not self.events:
            raise UsageError("expected a profile that has ended; leave its `with` block first")


def _row(worker: str, events: list[Event]) -> tuple[str, ...]:
    kinds = Counter(event.kind for event in events)
    sent = [event for event in events if event.kind in ("call", "message")]
    served = [event for event in events if event.kind == "handler"]
    taken = sum(e.received for e in sent) + sum(e.size for e in served)
    return (
        worker,
        str(kinds["call"]),
        str(kinds["message"]),
        f"{sum(e.size for e in sent) / 1024:.1f}",
        f"{taken / 1024:.1f}",
        str(kinds["handler"]),
        _milliseconds(events, "handler"),
        # A whole pass is a run, too, around the runs of its nodes.
        _milliseconds([e for e in events if not e.detail], "run"),
        _milliseconds(events, "wait"),
    )


def _milliseconds(events: list[Event], kind: str) -> str:
    return f"{sum(event.duration for event in events if event.kind == kind) * 1e3:.2f}"
