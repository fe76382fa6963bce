"""How the process of a worker ended, in words: its exit status or signal, and where it crashed."""

import contextlib
import signal
import socket
import subprocess
from typing import Final

__all__ = ["exit_reason", "wait_for_reason"]

_PATIENCE: Final = 0.5  # Seconds from the end of a connection to that of its process.
_LONGEST_STACK: Final = 1 << 16  # Bytes.


def exit_reason(status: int, stack: str = "") -> str:
    """Return what a process's exit status means; `stack` is what faulthandler wrote."""
    if status >= 0:
        said = f"its process ended with exit status {status}"
    elif status == -signal.SIGKILL:
        said = "its process was killed by SIGKILL, as the system does where memory runs out"
    else:
        said = f"its process was ended by {_signal_name(-status)}"
    return f"{said}; where it was:\n{stack.rstrip()}" if stack else said


def wait_for_reason(process: "subprocess.Popen[bytes]", line: socket.socket) -> str | None:
    """Return how a process ended whose connections have closed; None if it still runs.

    A crash leaves its stack on the line, to which nothing else is written after the start.
    """
    try:
        status = process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        return None
    stack = b""
    with contextlib.suppress(OSError):
        line.settimeout(0)
        while len(stack) < _LONGEST_STACK and (part := line.recv(1 << 12)):
            stack += part
    return exit_reason(status, stack.decode(errors="replace"))


def _signal_name(number: int) -> str:
    try:
        found = signal.Signals(number)
    except ValueError:
        return f"signal {number}"
    return f"{found.name} ({signal.strsignal(number)})"
