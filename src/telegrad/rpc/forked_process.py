"""The copy of a worker in a forked process; its connections belong to the parent.

If the copy went on, both processes would read the same streams and both answer. So its descriptors
are redirected as soon as the process is forked, and the process ends where the copy would continue
the worker's work.
"""

import os
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from telegrad.rpc.worker import Worker


def cut_off(worker: "Worker") -> None:
    """Disconnect a worker's copy, in a process that has just been forked."""
    worker.is_copy = True
    nowhere = os.open(os.devnull, os.O_RDWR)
    # Take no lock: the thread that holds it may not exist in this process.
    for peer in [*worker.peers.by_name.values()]:
        for endpoint in peer.connections():
            # Only endpoints over sockets have a connection.
            connection = getattr(endpoint, "connection", None)
            if connection is not None and connection.fileno() >= 0:
                # Not closed: the next file opened would get its number.
                os.dup2(nowhere, connection.fileno(), inheritable=False)
    os.close(nowhere)


def end_copy() -> NoReturn:
    """End this process, in which a forked copy of a handler has returned to the worker."""
    print(
        "telegrad: a handler forked a process and came back in it; it is no worker, and ends here. "
        "Leave it by os._exit, or start it by multiprocessing",
        file=sys.stderr,
        flush=True,
    )
    os._exit(1)
