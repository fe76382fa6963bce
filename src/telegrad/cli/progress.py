"""Progress of a long job: a live table and a bar on a terminal, plain lines elsewhere."""

import sys
import time
from typing import Any, Protocol

__all__ = ["PlainProgress", "Progress", "progress_for"]


class Progress(Protocol):
    """What a job reports."""

    def start(self, steps: int, workers: list[str]) -> None:
        """The job begins: how many steps, over which workers."""

    def step(self, *, loss: float, accuracy: float, seconds: float, bytes: int) -> None:
        """One step is done."""

    def stop(self) -> None:
        """The job has ended."""


class PlainProgress:
    """A line now and then."""

    def __init__(self, every: float = 1.0) -> None:
        self._every = every
        self._last = 0.0
        self._done = 0
        self._steps = 0

    def start(self, steps: int, workers: list[str]) -> None:
        self._steps = steps
        print(f"{steps} steps over the workers {', '.join(workers)}", flush=True)

    def step(self, *, loss: float, accuracy: float, seconds: float, bytes: int) -> None:
        self._done += 1
        now = time.monotonic()
        if now - self._last < self._every and self._done < self._steps:
            return
        self._last = now
        print(
            f"step {self._done:>4}/{self._steps}  loss {loss:.4f}  held-out {accuracy:.1%}  "
            f"{seconds * 1e3:.1f} ms a step  {bytes / 1024:.0f} KiB a step",
            flush=True,
        )

    def stop(self) -> None:
        return


class LiveProgress:
    """A table of workers and a bar, drawn in place by rich."""

    def __init__(self, live: Any, table: Any, bar: Any) -> None:
        self._live = live
        self._table = table
        self._bar = bar
        self._task: Any = None
        self._workers: list[str] = []

    def start(self, steps: int, workers: list[str]) -> None:
        self._workers = workers
        self._task = self._bar.add_task("training", total=steps)
        self._live.start()

    def step(self, *, loss: float, accuracy: float, seconds: float, bytes: int) -> None:
        self._bar.advance(self._task)
        rows = [
            ("workers", ", ".join(self._workers)),
            ("loss", f"{loss:.4f}"),
            ("held-out digits", f"{accuracy:.1%}"),
            ("a step takes", f"{seconds * 1e3:.1f} ms"),
            ("a step sends", f"{bytes / 1024:.0f} KiB"),
        ]
        self._live.update(self._table(rows, self._bar))

    def stop(self) -> None:
        self._live.stop()


def progress_for() -> Progress:
    """A live display where there is a terminal and rich is installed, else plain lines."""
    if not sys.stdout.isatty():
        return PlainProgress()
    try:
        from rich.console import Group
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar
        from rich.table import Table
    except ImportError:
        return PlainProgress()

    def table(rows: list[tuple[str, str]], bar: Any) -> Any:
        drawn = Table(show_header=False, box=None, padding=(0, 2))
        for name, value in rows:
            drawn.add_row(f"[dim]{name}[/dim]", value)
        return Group(drawn, bar)

    bar = Bar(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    )
    return LiveProgress(Live(table([], bar), refresh_per_second=8), table, bar)
