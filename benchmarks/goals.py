"""What was wanted and what was reached: one line a goal, at the end of all benchmarks."""

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Goal", "summary"]


@dataclass(frozen=True)
class Goal:
    """A bound on a figure: at least `wanted`, or at most."""

    what: str
    wanted: float
    reached: float
    at_most: bool = False
    unit: str = "×"
    medians: float | None = None
    """The same figure of medians, where it is a ratio of minima."""

    @property
    def met(self) -> bool:
        """Whether the figure keeps the bound, without allowance for noise."""
        return self.reached <= self.wanted if self.at_most else self.reached >= self.wanted

    def line(self) -> str:
        """A line of the table, as Markdown."""
        bound = f"{'≤' if self.at_most else '≥'} {self.wanted:g}{self.unit}"
        met = "yes" if self.met else "no"
        medians = "" if self.medians is None else f"{self.medians:.2f}{self.unit}"
        return f"| {self.what} | {bound} | {self.reached:.2f}{self.unit} | {met} | {medians} |"


def summary(goals: Iterable[Goal]) -> str:
    """All goals as one table, and how many were met."""
    found = list(goals)
    lines = [
        "| work | goal | figure | met | of medians |",
        "|---|---|---|---|---|",
        *(goal.line() for goal in found),
    ]
    lines.append(f"\n{sum(goal.met for goal in found)} of {len(found)} goals met")
    return "\n".join(lines)
