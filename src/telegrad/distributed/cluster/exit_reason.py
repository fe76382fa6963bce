"""How the process of a worker ended, in words: its exit status or signal, and where it crashed."""

import contextlib
import signal
import socket
import subprocess
import time
from typing import Final

_PATIENCE: Final = 0.5  # Seconds from the end of a connection to that of its process.
_LONGEST_END: Final = 10.0  # Seconds from the end of its line to that of a process.
_LONGEST_STACK: Final = 1 << 16  # Bytes.


def exit_reason(status: int, stack: str = "") -> str:
    """Return an exit status in words; `stack` is what faulthandler wrote."""
    if status >= 0:
        said = f"its process ended with exit status {status}"
    elif status == -signal.SIGKILL:
        said = "its process was killed by SIGKILL, as the system does where memory runs out"
    else:
        said = f"its process was ended by {_signal_name(-status)}"
    return f"{said}; where it was:\n{stack.rstrip()}" if stack else said


def wait_for_reason(process: "subprocess.Popen[bytes]", line: socket.socket) -> str | None:
    """Return how a process ended, once its connections have closed; None if it still runs.

    A crash leaves its stack on the line, to which nothing else is written after the start. If that
    came, or the line has closed, the process is about to end; one that holds a device takes long.
    """
    stack, is_ending, patience = b"", False, _PATIENCE
    end = time.monotonic() + patience
    with contextlib.suppress(OSError):
        while len(stack) < _LONGEST_STACK:
            line.settimeout(max(0.0, end - time.monotonic()))
            part = line.recv(1 << 12)
            is_ending, patience = True, _LONGEST_END
            if not part:
                break
            stack += part
            end = time.monotonic() + patience
    try:
        status = process.wait(patience if is_ending else 0.0)
    except subprocess.TimeoutExpired:
        return None
    return exit_reason(status, stack.decode(errors="replace"))


def _signal_name(number: int) -> str:
    try:
        found = signal.Signals(number)
    except ValueError:
        return f"signal {number}"
    return f"{found.name} ({signal.strsignal(number)})"
