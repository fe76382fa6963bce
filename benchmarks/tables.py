"""What a benchmark reports: rows of minima and medians, ratios (of minima, where
nothing else is said), and its goals.

A table prints its rows as they come and is saved as Markdown and as JSON with the commit.
"""

import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.goals import Goal
from benchmarks.measuring import Samples, Work, sample_in_turns

__all__ = ["RESULTS", "Row", "Table"]

RESULTS = Path(__file__).parent.parent / "build" / "benchmarks"
_SCALES = {"µs": 1e6}
_LIBRARIES = ("numpy", "torch", "autograd", "jax")


@dataclass
class Row:
    """One piece of work, `units` times: the figures of each side."""

    work: str
    minima: dict[str, float]
    medians: dict[str, float]
    units: int = 1
    goals: dict[str, float] = field(default_factory=dict)
    """The goal for a ratio, by its title."""
    by: str = "minima"
    """Which figures the ratios are of."""


@dataclass
class Table:
    """Rows with a column for each of our sides, then for each peer, then for each ratio."""

    name: str
    ours: tuple[str, ...] = ("telegrad",)
    peers: tuple[str, ...] = ("PyTorch",)
    unit: str = "µs"
    rows: list[Row] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    load: float = field(default_factory=lambda: os.getloadavg()[0])
    """How many processes wanted a processor in the minute before: what else the machine does."""

    @property
    def sides(self) -> tuple[str, ...]:
        """All columns of figures."""
        return (*self.ours, *self.peers)

    @property
    def ratios(self) -> dict[str, tuple[str, str]]:
        """The peer and our side of each ratio, by its title."""
        return {f"{peer} / {ours}": (peer, ours) for ours in self.ours for peer in self.peers}

    def measure(
        self,
        work: str,
        sides: Mapping[str, Work],
        *,
        rounds: int,
        repeat: int = 1,
        goal: Mapping[str, float] | float | None = None,
    ) -> Row:
        """Measures the sides in turns and adds their row."""
        return self.add(work, sample_in_turns(sides, rounds, repeat), goal=goal)

    def add(
        self,
        work: str,
        samples: Samples,
        *,
        units: int = 1,
        goal: Mapping[str, float] | float | None = None,
        by: str = "minima",
    ) -> Row:
        """Adds a row of figures; a `goal` that is one number is one for the first ratio."""
        if isinstance(goal, (int, float)):
            goal = {next(iter(self.ratios)): goal}
        row = Row(
            work,
            {side: min(found) for side, found in samples.items()},
            {side: statistics.median(found) for side, found in samples.items()},
            units,
            dict(goal or {}),
            by,
        )
        self.rows.append(row)
        for title, wanted in row.goals.items():
            reached = self._ratio(row, title, row.by)
            if reached is not None:
                medians = self._ratio(row, title, "medians")
                self.goals.append(Goal(f"{work}: {title}", wanted, reached, medians=medians))
        print(self._line(row), flush=True)
        return row

    def _ratio(self, row: Row, title: str, by: str) -> float | None:
        """How many times as long the peer takes."""
        peer, ours = self.ratios[title]
        figures = row.medians if by == "medians" else row.minima
        if peer not in figures or ours not in figures:
            return None
        return figures[peer] / figures[ours]

    def header(self) -> str:
        """The first two lines of the table, as Markdown."""
        figures = [f"{side}, {self.unit}" for side in self.sides]
        columns = ["work", *figures, *self.ratios, "goal"]
        return f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"

    def _line(self, row: Row) -> str:
        """One line: minimum (median) of each side for one unit, the ratios, the goals."""
        cells = [row.work]
        for side in self.sides:
            if side in row.minima:
                minimum = self._shown(row.minima[side] / row.units)
                median = self._shown(row.medians[side] / row.units)
                cells.append(f"{_plain(minimum)} ({_plain(median)})")
            else:
                cells.append("–")
        for title in self.ratios:
            ratio = self._ratio(row, title, row.by)
            cells.append("–" if ratio is None else f"{ratio:.2f}×")
        goals = (f"{row.goals[title]:g}×" for title in self.ratios if title in row.goals)
        return f"| {' | '.join([*cells, ' / '.join(goals)])} |"

    def _shown(self, figure: float) -> float:
        """A figure in the unit of the table; seconds of a call may be shown as calls a second."""
        return 1 / figure if self.unit == "/s" else figure * _SCALES.get(self.unit, 1.0)

    def save(self, folder: Path) -> Path:
        """Writes the table, and the figures with the commit and the machine; gives their path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        content = {
            "benchmark": self.name,
            "commit": _commit(),
            "python": platform.python_version(),
            "libraries": {name: _version(name) for name in _LIBRARIES},
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "load before": round(self.load, 2),
            "unit": "seconds, of all units of a row together"
            if self.unit in ("µs", "s", "/s")
            else self.unit,
            "rows": [asdict(row) for row in self.rows],
            "goals": [{**asdict(goal), "met": goal.met} for goal in self.goals],
        }
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        lines = [self.header(), *(self._line(row) for row in self.rows)]
        path.with_suffix(".md").write_text("\n".join(lines) + "\n")
        return path


def _version(name: str) -> str | None:
    """The version of a library; None where it is not installed, since no row needs all."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _plain(value: float) -> str:
    """Four digits that mean something, and no exponent."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def _commit() -> str:
    """The commit that is measured, or "unknown" outside of a checkout and without git."""
    command = ["git", "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent)
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() or "unknown"
