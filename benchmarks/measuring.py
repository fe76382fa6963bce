"""How a benchmark measures and reports: warm-up on all sides, minima and medians, ratios of minima.

The sides take turns, round by round, so that a noisy moment of the machine falls on all of them.
"""

import json
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

RESULTS = Path(__file__).parent.parent / "build" / "benchmarks"


@dataclass
class Row:
    """One piece of work: seconds for each side."""

    work: str
    minima: dict[str, float]
    medians: dict[str, float]
    goal: float | None = None
    notes: str = ""

    def ratio(self, peer: str, ours: str) -> float | None:
        """How many times as long the peer takes."""
        if peer not in self.minima or ours not in self.minima:
            return None
        return self.minima[peer] / self.minima[ours]


@dataclass
class Table:
    """The rows of one benchmark, with `ours` in the first column."""

    name: str
    sides: tuple[str, ...]
    unit: str = "µs"
    rows: list[Row] = field(default_factory=list)

    def add(
        self,
        work: str,
        sides: Mapping[str, Callable[[], object]],
        *,
        rounds: int = 20,
        repeat: int = 1,
        goal: float | None = None,
        notes: str = "",
    ) -> Row:
        """Measures the sides in turns: `rounds` times, `repeat` calls each."""
        times: dict[str, list[float]] = {side: [] for side in sides}
        for run in sides.values():
            for _ in range(3):
                run()
        for _ in range(rounds):
            for side, run in sides.items():
                begin = time.perf_counter()
                for _ in range(repeat):
                    run()
                times[side].append((time.perf_counter() - begin) / repeat)
        minima = {side: min(found) for side, found in times.items()}
        medians = {side: statistics.median(found) for side, found in times.items()}
        return self.add_figures(work, minima, medians, goal=goal, notes=notes)

    def add_figures(
        self,
        work: str,
        minima: dict[str, float],
        medians: dict[str, float],
        *,
        goal: float | None = None,
        notes: str = "",
    ) -> Row:
        """Adds a row that was measured elsewhere."""
        row = Row(work, minima, medians, goal, notes)
        self.rows.append(row)
        print(self.line(row), flush=True)
        return row

    def header(self) -> str:
        """The first two lines of the table, as Markdown."""
        peers = self.sides[1:]
        columns = [
            "work",
            *(f"{side}, {self.unit}" for side in self.sides),
            *(f"{p} / {self.sides[0]}" for p in peers),
            "goal",
        ]
        return f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"

    def line(self, row: Row) -> str:
        """One line of the table: minimum (median) for each side, then the ratios of minima."""
        scale = {"µs": 1e6, "ms": 1e3, "s": 1.0, "MB": 1.0, "GB/s": 1.0}[self.unit]
        cells = [row.work]
        for side in self.sides:
            if side in row.minima:
                cells.append(f"{row.minima[side] * scale:.4g} ({row.medians[side] * scale:.4g})")
            else:
                cells.append("–")
        for peer in self.sides[1:]:
            ratio = row.ratio(peer, self.sides[0])
            cells.append("–" if ratio is None else f"{ratio:.2f}×")
        cells.append("" if row.goal is None else f"{row.goal:g}×")
        return f"| {' | '.join(cells)} |"

    def save(self) -> Path:
        """Writes the table, and the figures with the commit and the machine; gives their path."""
        RESULTS.mkdir(parents=True, exist_ok=True)
        path = RESULTS / f"{self.name}.json"
        content = {
            "benchmark": self.name,
            "commit": commit(),
            "python": platform.python_version(),
            "machine": platform.machine(),
            "unit": "seconds" if self.unit in ("µs", "ms", "s") else self.unit,
            "rows": [asdict(row) for row in self.rows],
        }
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        lines = [self.header(), *(self.line(row) for row in self.rows)]
        path.with_suffix(".md").write_text("\n".join(lines) + "\n")
        return path


def commit() -> str:
    """The commit that is measured, or "unknown" outside of a checkout."""
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent)
    return done.stdout.strip() or "unknown"
