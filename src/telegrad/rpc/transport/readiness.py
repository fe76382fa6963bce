"""Waiting until a descriptor is ready, up to a deadline."""

import math
import select
import time

from telegrad.rpc.timeouts import LONGEST_WAIT


def is_ready(fd: int, deadline: float, *, for_write: bool) -> bool:
    """Wait until the descriptor can be written to, or read; return False at the deadline."""
    poll = select.poll()
    poll.register(fd, select.POLLOUT if for_write else select.POLLIN)
    while True:
        left = min(max(0.0, deadline - time.monotonic()), LONGEST_WAIT)
        # Rounded up: a poll of 0 ms in the last millisecond would spin.
        if poll.poll(math.ceil(left * 1000)):
            return True
        if time.monotonic() >= deadline:
            return False
