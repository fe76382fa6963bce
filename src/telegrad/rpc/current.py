"""Which worker is meant where none is named: the handler's, else the process's default.

For the module-level functions alone; the library itself always has a worker in hand.
"""

import threading
from typing import TYPE_CHECKING

from telegrad.errors import NotInitialized
from telegrad.rpc.request import current_request

if TYPE_CHECKING:
    from telegrad.rpc.worker import Worker

__all__ = ["current_worker", "default_worker", "set_default_worker"]

_lock = threading.Lock()
_default: "Worker | None" = None


def current_worker() -> "Worker":
    """Return the worker on which the current handler runs, or the process's default."""
    request = current_request.get()
    if request is not None:
        return request.worker
    worker = _default
    if worker is None or worker.closed:
        raise NotInitialized(
            "this process has no worker: call init_rpc first, or use telegrad.distributed."
            "LocalCluster (after shutdown a worker can be started again)"
        )
    return worker


def default_worker() -> "Worker | None":
    """Return the process's default worker, if there is one."""
    return _default


def set_default_worker(worker: "Worker | None") -> "Worker | None":
    """Make the worker the process's default and return the one that was."""
    global _default
    with _lock:
        before, _default = _default, worker
    return before
