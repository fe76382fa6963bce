"""Remote calls, with the names and the meaning of `torch.distributed.rpc`.

These functions act for the current worker: in a handler, the worker that runs it; elsewhere, the
process's own worker, made by `init_rpc` or `LocalCluster`.
"""

import typing as _typing

from telegrad.distributed.survival.resident import Resident, keep
from telegrad.distributed.worker_autograd import attach_autograd
from telegrad.rpc import api
from telegrad.rpc.api import get_worker_info, remote, rpc_async, rpc_sync, shutdown
from telegrad.rpc.calls.future import Future
from telegrad.rpc.calls.future_group import collect_all, wait_all
from telegrad.rpc.calls.incoming import async_execution
from telegrad.rpc.current import current_worker
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.options import Options
from telegrad.rpc.references.rref import RRef
from telegrad.rpc.wire.failures import RemoteFailure
from telegrad.rpc.wire.functions import expose
from telegrad.rpc.worker import Worker
from telegrad.tensors.torch_hints import advice_on_names as _advice_on_names
from telegrad.tensors.torch_hints import unexpected as _unexpected

__all__ = [
    "Future",
    "Options",
    "RRef",
    "RemoteFailure",
    "Resident",
    "Worker",
    "WorkerInfo",
    "async_execution",
    "collect_all",
    "current_worker",
    "expose",
    "get_worker_info",
    "init_rpc",
    "keep",
    "remote",
    "rpc_async",
    "rpc_sync",
    "shutdown",
    "wait_all",
]


def init_rpc(
    name: str | None = None,
    *,
    rank: int | None = None,
    world_size: int | None = None,
    options: Options | None = None,
    meeting: _typing.Any = None,
    **unknown: _typing.Never,
) -> Worker:
    """Make this process a worker of a cluster; return when all workers have joined.

    Arguments:
        name: The worker's name; by default, under a launcher, ``worker0`` and so on by rank.
        rank: The worker's rank, from 0.
        world_size: The number of workers. If neither this nor the environment gives it, the world
            is open: workers come and go, and this returns at once.
        options: The options of this worker.
        meeting: Where the workers meet: the path of a directory that all see, or a
            ``torch.distributed.Store``. A world that meets there may lose any worker, rank 0 too.

    Missing arguments are taken from torchrun, srun, mpirun, Kubernetes or ``telegrad run``, or from
    MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE, TELEGRAD_WORKER_NAME, TELEGRAD_MEETING. The key is
    that of TELEGRAD_KEY_FILE, TELEGRAD_KEY or TELEGRAD_CREDENTIALS; on one machine, by default, the
    user's own.

    Returns:
        The worker.

    Raises:
        UsageError: If something is missing, a name or rank is taken, or worlds or versions differ.
        CallTimeout: If not all workers joined within ``Options.join_timeout``.
        AuthenticationFailed: If the other workers have another key.

    Examples:
        >>> worker = rpc.init_rpc("main", rank=0, world_size=1)
        >>> rpc.rpc_sync("main", abs, (-2,))
        2
        >>> rpc.shutdown()
    """
    if unknown:
        raise _unexpected("init_rpc", unknown)
    return api.join(
        name,
        rank=rank,
        world_size=world_size,
        options=options,
        meeting=meeting,
        on_start=attach_autograd,
    ).worker


_NAMES = {
    "TensorPipeRpcBackendOptions": "write rpc.Options(...); threads grow on demand",
    "BackendType": "there is one, leave it out",
    "functions": "write rpc.async_execution",
}
"""Names of PyTorch's module that are missing here, with advice."""

if not _typing.TYPE_CHECKING:  # or a type checker would take every name for known
    __getattr__ = _advice_on_names(__name__, _NAMES)
