"""What bench_rpc calls on the other process; importable there, the same for every library."""

import sys
import threading
import time
from typing import Any

from benchmarks.libraries import library

__all__ = ["add", "be_busy", "bounce", "echo", "noop", "take"]

_busy = threading.Event()


def noop() -> None:
    """Do nothing."""


def add(x: Any, y: Any) -> Any:
    """Add two arrays in Python."""
    return x + y


def echo(x: Any) -> Any:
    """Give back what came."""
    return x


def take(seconds: float) -> None:
    """Run Python for so long."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def bounce(key: str, here: str, there: str, depth: int) -> int:
    """Call back and forth, `depth` times."""
    if depth == 0:
        return 0
    return 1 + int(library(key).rpc.rpc_sync(there, bounce, (key, there, here, depth - 1)))


def be_busy(on: bool, switch_interval: float | None = None) -> None:
    """Start or stop a thread that does nothing but run Python."""

    def compute() -> None:
        while _busy.is_set():
            pass

    if not on:
        _busy.clear()
        return
    if switch_interval is not None:
        sys.setswitchinterval(switch_interval)
    _busy.set()
    threading.Thread(target=compute, daemon=True).start()
