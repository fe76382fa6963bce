"""A worker in a process that was forked from its own: a copy, whose connections are not its own.

Both processes would read the same stream, and either answer. So the copy's descriptors are turned
into something else as soon as it is there, and it ends where it would go on with the worker's work.
"""

import os
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from telegrad.rpc.worker import Worker


def cut_off(worker: "Worker") -> None:
    """Take the connections from a worker's copy; the process has just been forked."""
    worker.is_copy = True
    nowhere = os.open(os.devnull, os.O_RDWR)
    # Without a lock: whichever thread had it did not come along.
    for peer in [*worker.peers.by_name.values()]:
        for endpoint in peer.connections():
            # Only one over a socket has it.
            connection = getattr(endpoint, "connection", None)
            if connection is not None and connection.fileno() >= 0:
                # Not closed: the next file would get the number.
                os.dup2(nowhere, connection.fileno(), inheritable=False)
    os.close(nowhere)


def end_copy() -> NoReturn:
    """End this process: a handler has forked it, and left it to the worker."""
    print(
        "telegrad: a handler forked a process and came back in it; it is no worker, and ends here. "
        "Leave it by os._exit, or start it by multiprocessing",
        file=sys.stderr,
        flush=True,
    )
    os._exit(1)
