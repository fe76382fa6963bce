"""Waiting until a descriptor is ready, no longer than until a deadline."""

import math
import select
import time

__all__ = ["is_ready"]


def is_ready(fd: int, deadline: float, *, for_write: bool) -> bool:
    """Wait until the descriptor can be written to, or read; say whether that was so in time."""
    timeout = None if deadline == math.inf else max(0.0, deadline - time.monotonic())
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(fd, select.POLLOUT if for_write else select.POLLIN)
        # Rounded up: a poll of 0 ms in the last millisecond would spin.
        return bool(poll.poll(None if timeout is None else math.ceil(timeout * 1000)))
    wanted: tuple[list[int], list[int]] = ([], [fd]) if for_write else ([fd], [])
    return any(select.select(*wanted, [], timeout))
