"""Settings of a worker's process: it ends with its parent, and threads switch often."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import Final

_PR_SET_PDEATHSIG: Final = 1  # From <sys/prctl.h>.
_SWITCH_INTERVAL: Final = 0.0005  # Seconds; Python's default is ten times as long.


def ends_with(parent: int) -> Callable[[], None] | None:
    """Return a function that has the kernel end the calling process with `parent`, if it can.

    The function may run between a fork and an exec: it only calls the system.
    """
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return ask


def switch_often() -> None:
    """Let requests interrupt a busy thread of the user's sooner than Python does by default."""
    sys.setswitchinterval(_SWITCH_INTERVAL)
