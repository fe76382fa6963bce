"""The progress of a long job: a live table and a bar on a terminal, plain lines elsewhere."""

import math
import sys
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, TextIO, TypeAlias

from telegrad.cli.meter import Meter


class Step(NamedTuple):
    """The figures of one step."""

    loss: float
    accuracy: float
    """On held-out data, when last measured."""
    seconds: float
    bytes: int

    def __str__(self) -> str:
        return (
            f"loss {self.loss:.4f}  held-out {self.accuracy:.1%}  "
            f"{self.seconds * 1e3:.1f} ms a step  {self.bytes / 1024:.0f} KiB a step"
        )


class PlainProgress:
    """Prints a line now and then."""

    def __init__(self, every: float = 1.0) -> None:
        self._every = every
        self._last = -math.inf
        self._done = 0
        self._steps = 0

    def start(self, steps: int, workers: Mapping[str, str], meter: Meter) -> None:
        """Begin a job of so many steps; `workers` says what each of them has."""
        self._steps = steps
        placed = ", ".join(f"{name} ({what})" for name, what in workers.items())
        print(f"{steps} steps over {placed}", flush=True)

    def step(self, done: Step) -> None:
        """Note that one step is done."""
        self._done += 1
        now = time.monotonic()
        if now - self._last < self._every and self._done < self._steps:
            return
        self._last = now
        print(f"step {self._done:>4}/{self._steps}  {done}", flush=True)

    def stop(self) -> None:
        """End the job, successful or not."""


class LiveProgress:
    """A table of workers and a bar, drawn in place by rich."""

    def __init__(self, console: Any) -> None:
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Bar(TextColumn("{task.description}"), *columns, console=console)
        self._task: Any = None
        self._workers: Mapping[str, str] = {}
        self._meter = Meter()
        self._said = ""
        self._live = Live(console=console, refresh_per_second=8, get_renderable=self._drawn)

    def start(self, steps: int, workers: Mapping[str, str], meter: Meter) -> None:
        self._workers = workers
        self._meter = meter
        self._task = self._bar.add_task("training", total=steps)
        self._live.start()

    def step(self, done: Step) -> None:
        self._said = str(done)
        self._bar.advance(self._task)

    def stop(self) -> None:
        self._live.stop()

    def _drawn(self) -> Any:
        from rich.console import Group
        from rich.table import Table

        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("worker")
        table.add_column("has")
        for title in ("calls", "KiB to it", "KiB from it"):
            table.add_column(title, justify="right")
        for name, what in self._workers.items():
            traffic = self._meter.by_worker.get(name)
            if traffic is None:
                table.add_row(name, what)
                continue
            sizes = (f"{size / 1024:,.0f}" for size in (traffic.sent, traffic.received))
            table.add_row(name, what, f"{traffic.calls:,}", *sizes)
        return Group(table, self._said, self._bar)


Progress: TypeAlias = PlainProgress | LiveProgress
"""What a job reports to."""


def progress_for(stream: TextIO | None = None) -> Progress:
    """Return a live display where there is a terminal and rich is installed, else plain lines."""
    target = stream or sys.stdout
    if not target.isatty():
        return PlainProgress()
    try:
        from rich.console import Console
    except ImportError:
        return PlainProgress()
    return LiveProgress(Console(file=target))
