"""Find the distributed autograd of a worker, from anywhere in this folder.

``worker_autograd`` makes it and imports its parts; this module lets those parts find it without an
import cycle.
"""

from typing import TYPE_CHECKING

from telegrad.errors import UsageError
from telegrad.rpc.worker import Worker

if TYPE_CHECKING:
    from telegrad.distributed.worker_autograd import WorkerAutograd

ATTACHED = "autograd"
"""The name under which a worker keeps its distributed autograd."""


def autograd_of(worker: Worker) -> "WorkerAutograd":
    """Return the distributed autograd that `attach_autograd` attached to a worker."""
    found: WorkerAutograd | None = worker.attached.get(ATTACHED)
    if found is None:
        raise UsageError(
            f"worker {worker.name!r} was started without distributed autograd: start it with "
            "init_rpc or LocalCluster"
        )
    return found
