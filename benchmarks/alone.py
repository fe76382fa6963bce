"""One side alone on the machine: measured in a process of its own, with the workers it starts.

PyTorch's workers poll for messages without pause, also when idle (they give way to others, but take
all that is left of a processor), and ours look for answers before they sleep: whatever else runs
would show in the figures. So sides with processes take turns, nothing of one is alive while another
is measured, and there are no more workers than the work needs.
"""

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from benchmarks.measuring import Samples

__all__ = ["alone", "in_turns", "watched"]

Item = TypeVar("Item")
_MOST_SECONDS = 300.0


def alone(function: Callable[..., Samples], *arguments: Any, **environment: str) -> Samples:
    """What a module's function gives for arguments that JSON can carry, from a fresh process.

    It has the environment of this one, and what is given by name.
    """
    call = json.dumps([function.__module__, function.__name__, arguments])
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.alone", call]
    done = subprocess.run(
        command,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=_MOST_SECONDS,
        env={**os.environ, **environment},
    )
    found: Samples = json.loads(done.stdout.splitlines()[-1])
    return found


def in_turns(
    what: str, turns: Sequence[Sequence[str]], measured: Callable[[str], Samples]
) -> dict[str, Samples]:
    """The figures of each side by work; `measured` gives those of one turn of one side."""
    found: dict[str, Samples] = {}
    for number, sides in enumerate(turns, 1):
        for side in sides if number % 2 else reversed(sides):
            label = f"{what}, turn {number} of {len(turns)}, {side}"
            print(f"{label} …", file=sys.stderr, flush=True)
            began = time.perf_counter()
            mine = found.setdefault(side, {})
            for work, seconds in measured(side).items():
                mine.setdefault(work, []).extend(seconds)
            print(f"{label}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return found


def watched(items: Iterable[tuple[str, Item]]) -> Iterator[tuple[str, Item]]:
    """The same named items; on a terminal, the one that is measured now is shown."""
    shows = sys.stderr.isatty()
    for name, item in items:
        if shows:
            print(f"\r\x1b[K  {name}", end="", file=sys.stderr, flush=True)
        yield name, item
    if shows:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def main() -> None:
    """The fresh process: calls the function, prints what it gives."""
    module, name, arguments = json.loads(sys.argv[1])
    found = getattr(importlib.import_module(module), name)(*arguments)
    print(f"\n{json.dumps(found)}", flush=True)


if __name__ == "__main__":
    main()
