"""What a call or a step costs in bytecodes, by function, on the trainer and on its server.

    python -m benchmarks.bytecodes [telegrad | telegrad-torch] [no-op | add | step] [rows]

The work is that of `load`, with one trainer. Seconds vary on a busy machine; these counts hardly do
(a wait that took longer runs a few more), so they tell what a change won, and where to look next.
They are of Python's functions alone: what NumPy, PyTorch and the system do costs no bytecode.
"""

import argparse
import collections
import gc
import sys
import threading
from types import CodeType, FrameType
from typing import Any

from benchmarks.libraries import SIDES, cluster, library
from benchmarks.load_work import SERVER, work_of

__all__ = ["count_at_trainer"]

TRAINER = "trainer"
_WARM, _FIRST, _COUNTED = 300, 10, 50
"""How often the work runs before it is traced, before it is counted, and counted."""
_THREADS = 20
"""How often tracing is begun on the server: after slow calls a few have threads of their own."""

Row = tuple[str, float, float]
"""A function, and how many bytecodes it ran and how often it was called, a call or step."""

_bytecodes: collections.Counter[CodeType] = collections.Counter()
_calls: collections.Counter[CodeType] = collections.Counter()


def _count(frame: FrameType, event: str, _: Any) -> Any:
    if event == "call":
        _calls[frame.f_code] += 1
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
    elif event == "opcode":
        _bytecodes[frame.f_code] += 1
    return _count


def begin() -> None:
    """Trace this thread, what it is in the midst of, and all threads that start."""
    from telegrad.rpc.driver import lead, served_link

    # Traced, every request takes long; but one thread is to lead on, as it does without.
    served_link._SLOW = float("inf")  # type: ignore[misc]
    lead.Lead.take = lambda *_: None  # type: ignore[method-assign,assignment]
    gc.disable()
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        frame.f_trace, frame.f_trace_opcodes, frame.f_trace_lines = _count, True, False
        frame = frame.f_back
    sys.settrace(_count)
    threading.settrace(_count)


def reset() -> None:
    """Count from here."""
    _bytecodes.clear()
    _calls.clear()


def end() -> list[Row]:
    """Trace no more; return what was counted, the dearest first."""
    sys.settrace(None)
    threading.settrace(None)  # type: ignore[arg-type]
    gc.enable()
    found = _bytecodes.most_common()
    return [(_named(code), n / _COUNTED, _calls[code] / _COUNTED) for code, n in found]


def _named(code: CodeType) -> str:
    path = code.co_filename.rpartition("site-packages/")[2].rpartition("telegrad/")[2]
    return f"{path}:{getattr(code, 'co_qualname', code.co_name)}"


def count_at_trainer(key: str, what: str) -> dict[str, list[Row]]:
    """What one side's work costs, by where it runs; called on the trainer."""
    call, run = library(key).rpc.rpc_sync, work_of(key, what)

    def repeat(times: int) -> None:
        for _ in range(times):
            run()

    repeat(_WARM)
    for _ in range(_THREADS):
        call(SERVER, begin)
    repeat(_FIRST)
    call(SERVER, reset)
    repeat(_COUNTED)
    there = call(SERVER, end)
    begin()
    repeat(_FIRST)
    reset()
    repeat(_COUNTED)
    return {TRAINER: end(), SERVER: there}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bytecodes", description=__doc__)
    keys = [side.library for side in SIDES.values() if side.spins and side.library != "torch"]
    parser.add_argument("library", nargs="?", choices=keys, default=keys[0])
    parser.add_argument("work", nargs="?", choices=("no-op", "add", "step"), default="step")
    parser.add_argument("rows", nargs="?", type=int, default=20)
    given = parser.parse_args()
    side = next(side for side in SIDES.values() if side.library == given.library)
    with cluster(side, [SERVER, TRAINER]):
        counted = library(given.library).rpc.rpc_sync(
            TRAINER, count_at_trainer, (given.library, given.work)
        )
    for where, rows in counted.items():
        bytecodes, calls = sum(row[1] for row in rows), sum(row[2] for row in rows)
        print(f"\n| {given.work}, {where}: {bytecodes:.0f} bytecodes, {calls:.1f} functions | | |")
        print("|---|---|---|")
        for name, ran, called in rows[: given.rows]:
            print(f"| {name} | {ran:.0f} | {called:.2f} |")


if __name__ == "__main__":
    # Under its own name, not as __main__: the workers call its functions by name.
    from benchmarks import bytecodes

    bytecodes.main()
