"""Finding the distributed autograd of a worker, from anywhere in this folder.

``worker_autograd`` makes it; this module only knows where it is kept, so that its own parts can ask
for it.
"""

from typing import TYPE_CHECKING

from telegrad.errors import UsageError
from telegrad.rpc.worker import Worker

if TYPE_CHECKING:
    from telegrad.distributed.worker_autograd import WorkerAutograd

ATTACHED = "autograd"
"""The name under which a worker keeps it."""


def autograd_of(worker: Worker) -> "WorkerAutograd":
    """Return what `attach_autograd` attached to a worker."""
    found: WorkerAutograd | None = worker.attached.get(ATTACHED)
    if found is None:
        raise UsageError(
            f"worker {worker.name!r} was started without distributed autograd: start it with "
            "init_rpc or LocalCluster"
        )
    return found
