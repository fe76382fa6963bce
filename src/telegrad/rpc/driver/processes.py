"""What the kernel knows about another process on this machine."""

import os
import sys


def has_ended(pid: int) -> bool:
    """Say whether the process has certainly ended, as a zombie has; False if unknown."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        if os.readlink("/proc/self") != str(os.getpid()):
            # /proc belongs to another PID namespace, where the numbers mean other processes.
            return False
    except OSError:
        return False
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name may hold parentheses itself; the state follows the last closing one.
            return file.read(4096).rpartition(b") ")[2][:1] in (b"Z", b"X")
    except FileNotFoundError:
        return True
    except OSError:
        return False
