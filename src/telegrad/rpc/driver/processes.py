"""What the kernel knows of another process on this machine."""

import os
import sys


def has_ended(pid: int) -> bool:
    """Say whether the process is certainly gone; a zombie is. False where it can't be known."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        if os.readlink("/proc/self") != str(os.getpid()):
            # /proc is that of another PID namespace, whose numbers mean others.
            return False
    except OSError:
        return False
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name, in parentheses, may hold anything; the state follows the last of them.
            return file.read(4096).rpartition(b") ")[2][:1] in (b"Z", b"X")
    except FileNotFoundError:
        return True
    except OSError:
        return False
