"""What is said of PyTorch's tests: which pass, which don't and why; and how the page shows it."""

import tomllib
from pathlib import Path
from typing import Any

__all__ = ["BEGIN", "END", "Table", "section_of"]

BEGIN = "<!-- written by tests/torch/pytorch_own: begin -->"
END = "<!-- written by tests/torch/pytorch_own: end -->"


class Table:
    """The file differences.toml."""

    def __init__(self) -> None:
        content: dict[str, Any] = tomllib.loads(
            Path(__file__).with_name("differences.toml").read_text()
        )
        self.reasons: list[dict[str, Any]] = content["reason"]
        self.left_out: dict[str, str] = content["left_out"]
        self.differing = [test for reason in self.reasons for test in reason["tests"]]

    def check(self, tests: list[str]) -> None:
        """Raises if the file names a test that is not there, or one twice."""
        named = self.differing
        unknown = sorted(set(named) - set(tests))
        twice = sorted(test for test in set(named) if named.count(test) > 1)
        if unknown or twice:
            raise ValueError(f"differences.toml: no such tests {unknown}, named twice {twice}")

    def passing(self, tests: list[str]) -> list[str]:
        """Those that are said to pass."""
        return [test for test in tests if test not in self.differing]

    def document(self, tests: list[str]) -> str:
        """The section of the page."""
        lines = [BEGIN, "", *self._summary(tests), "", "**What differs, and why**", ""]
        lines += ["| | why | tests |", "|---|---|---|"]
        for reason in self.reasons:
            names = ", ".join(f"`{name}`" for name in reason["tests"])
            lines.append(f"| {reason['title']} | {reason['why']} | {names} |")
        lines += ["", "**What is not run**", "", "| classes | why |", "|---|---|"]
        lines += [f"| {names} | {why} |" for names, why in self.left_out.items()]
        return "\n".join([*lines, "", END])

    def _summary(self, tests: list[str]) -> list[str]:
        passing = _by_class(self.passing(tests))
        rows = ["| test class | tests | pass |", "|---|---|---|"]
        for name, found in _by_class(tests).items():
            rows.append(f"| `{name}` | {len(found)} | {len(passing.get(name, []))} |")
        return [*rows, f"| together | {len(tests)} | {len(self.passing(tests))} |"]


def _by_class(tests: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for test in tests:
        name, _, method = test.partition(".")
        found.setdefault(name, []).append(method)
    return found


def section_of(page: str) -> str:
    """What a page has between the marks."""
    return page[page.index(BEGIN) : page.index(END) + len(END)]
