"""What must be measured in a process that did nothing else: memory and import time."""

import json
import subprocess
import sys

from benchmarks.goals import Goal
from benchmarks.tables import Table

__all__ = ["import_time", "memory"]

_SIDES = ("telegrad", "PyTorch")
_MOST_IMPORT_SECONDS = 0.25

_MEMORY = """
import sys, json
def resident():
    with open("/proc/self/statm") as f: return int(f.read().split()[1]) * 4096
if sys.argv[1] == "telegrad":
    import telegrad as lib
else:
    import torch as lib
x = lib.ones(8).requires_grad_()
y = x * 1.0001 + 0.001
y.sum().backward()
y = x * 1.0001
before = resident()
for _ in range(500_000):
    y = y * 1.0001
    y = y + 0.001
grown = resident() - before
y.sum().backward()
print(json.dumps(grown / 1e6))
"""

_IMPORT = """
import json, sys, time
import numpy
begin = time.perf_counter()
if sys.argv[1] == "telegrad":
    import telegrad
else:
    import torch
print(json.dumps(time.perf_counter() - begin))
"""


def _in_process(script: str, side: str) -> float:
    command = [sys.executable, "-c", script, side]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(json.loads(done.stdout))


def import_time(rounds: int) -> Table:
    """Seconds that the import takes beyond that of NumPy, files in the system's cache."""
    table = Table("import", unit="s")
    print(f"\n{table.header()}", flush=True)
    found = {side: [_in_process(_IMPORT, side) for _ in range(rounds)] for side in _SIDES}
    row = table.add("import beyond NumPy", found)
    reached = row.minima["telegrad"]
    table.goals.append(
        Goal("import beyond NumPy", _MOST_IMPORT_SECONDS, reached, at_most=True, unit=" s")
    )
    return table


def memory() -> Table:
    """By how much the process grows."""
    table = Table("memory", unit="MB")
    print(f"\n{table.header()}", flush=True)
    found = {side: [_in_process(_MEMORY, side)] for side in _SIDES}
    table.add("resident growth of a chain of 10⁶ ops", found, goal=1.0)
    return table
