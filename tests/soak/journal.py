"""What a campaign did, as JSON lines, and what the lines add up to."""

import collections
import json
import threading
import time
from pathlib import Path

__all__ = ["VIOLATIONS", "Journal", "read_journal", "tally"]

VIOLATIONS = ("wrong", "untyped", "hang", "half", "leak", "crash", "unhandled", "gone")
"""Events that must not occur: a wrong result, an error that is none of telegrad's, something that
did not end in its time, a pass of which some have the gradients and others do not, something left
behind at rest, a process that ended by itself, an exception that no thread caught, a worker that
does not come back."""


class Journal:
    """A file that several threads and, one after the other, several processes append to."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._file = path.open("a")
        self.violations = 0

    def write(self, event: str, **fields: object) -> None:
        """Append a line; one that must not occur is shown at once, too."""
        line = json.dumps({"at": round(time.time(), 3), "event": event, **fields})
        with self._lock:
            self._file.write(line + "\n")
            self._file.flush()
            if event in VIOLATIONS:
                self.violations += 1
                print(f"VIOLATION {line[:1000]}", flush=True)

    def close(self) -> None:
        self._file.close()


def read_journal(path: Path) -> list[dict]:
    with path.open() as file:
        return [json.loads(line) for line in file]


def tally(lines: list[dict]) -> dict[str, dict[str, int]]:
    """Count operations by kind, their outcomes, faults, checks and violations."""
    counts: dict[str, collections.Counter[str]] = {
        name: collections.Counter()
        for name in ("operations", "outcomes", "faults", "checks", "violations")
    }
    for line in lines:
        event = line["event"]
        if event == "operation":
            counts["operations"][line["kind"]] += 1
            counts["outcomes"][line["outcome"]] += 1
        elif event == "fault":
            counts["faults"][line["kind"]] += 1
        elif event == "check":
            counts["checks"][line["transport"]] += 1
        elif event in VIOLATIONS:
            counts["violations"][event] += 1
    return {name: dict(sorted(counter.items())) for name, counter in counts.items()}
