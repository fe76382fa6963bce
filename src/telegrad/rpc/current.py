"""The current worker, of functions that name none: the handler's worker, else the default.

Only module-level functions use it; inside the library, objects know their worker.
"""

import os
import threading
from typing import TYPE_CHECKING

from telegrad.errors import NotInitialized, UsageError
from telegrad.rpc.calls.request import current_request
from telegrad.rpc.forked_process import cut_off

if TYPE_CHECKING:
    from telegrad.rpc.worker import Worker

_lock = threading.Lock()
_default: "Worker | None" = None
_is_forked = False


def current_worker() -> "Worker":
    """Return the worker on which the current handler runs, or the process's default.

    Raises:
        NotInitialized: If this process has no worker.

    Examples:
        >>> rpc.current_worker().name
        'main'
    """
    request = current_request.get()
    if request is not None:
        return request.worker
    worker = _default
    if worker is None or worker.closed:
        if _is_forked:
            raise NotInitialized(
                "this process was forked from one with a worker, whose connections are that one's "
                "alone: call init_rpc here as well, or start the process by spawn and give it work "
                "that makes no remote calls"
            )
        raise NotInitialized(
            "this process has no worker: call init_rpc first, or use `with telegrad.distributed."
            "LocalCluster([...]):` (after shutdown a worker can be started again)"
        )
    return worker


def check_not_serving() -> None:
    """Raise UsageError if a handler runs on this thread: its calls are its worker's."""
    request = current_request.get()
    if request is not None:
        raise UsageError(
            "expected no cluster to be started in a function that another worker calls, since the "
            f"calls it makes are those of {request.worker.name!r}: start it in your program, and "
            "if this is a module that the worker imports, under `if __name__ == '__main__':`"
        )


def default_worker() -> "Worker | None":
    """Return the process's default worker, if there is one."""
    return _default


def set_default_worker(worker: "Worker | None") -> "Worker | None":
    """Make the worker the process's default; return the previous default."""
    global _default
    with _lock:
        before, _default = _default, worker
    return before


def _forget_in_fork() -> None:
    """Keep a forked process from writing to the sockets of its parent."""
    global _default, _is_forked
    request = current_request.get()
    for worker in (_default, None if request is None else request.worker):
        if worker is not None and not worker.is_copy:
            _is_forked = True
            cut_off(worker)
    _default = None
    current_request.set(None)


os.register_at_fork(after_in_child=_forget_in_fork)
