"""The current worker behind the interface of PyTorch's RPC agent."""

from dataclasses import replace
from typing import Any

from telegrad.errors import NotInitialized
from telegrad.rpc import api
from telegrad.rpc.current import current_worker
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.worker import Worker
from telegrad.torch.rpc import constants
from telegrad.torch.rpc.failures import as_torch_raises
from telegrad.torch.rpc.options import TensorPipeRpcBackendOptions


class RpcAgent:
    """One worker's agent; each request for the agent makes a new object."""

    def __init__(self, worker: Worker, options: TensorPipeRpcBackendOptions) -> None:
        self._worker = worker
        self._options = options

    @property
    def is_static_group(self) -> bool:
        """Tell whether the cluster's size was fixed when it began."""
        return not api.is_world_open()

    def get_worker_info(self, who: str | int | WorkerInfo | None = None) -> WorkerInfo:
        """Return the WorkerInfo of a worker; without an argument, of this one."""
        if who is None:
            return self._worker.info
        with as_torch_raises():
            return self._worker.find(who).info

    def get_worker_infos(self) -> list[WorkerInfo]:
        """Return the WorkerInfo of every worker."""
        return [peer.info for peer in self._worker.peers.all()]

    def get_debug_info(self) -> dict[str, str]:
        """Return counts of the worker's calls and threads, as text."""
        paths = self._worker.peers.endpoints()
        serving = sum(len(path.serving) for path in paths)
        return {
            "agent.num_pending_requests": str(serving),
            "agent.num_idle_threads": "0",
            "agent.thread_pool_size": str(self._options.num_worker_threads),
            "agent.client_active_calls": str(sum(len(path.calls) for path in paths)),
            "agent.server_active_calls": str(serving),
        }

    def _get_backend_options(self) -> TensorPipeRpcBackendOptions:
        return self._options

    def _get_device_map(self, to: WorkerInfo) -> dict[Any, Any]:
        return self._options.device_maps.get(to.name, {})


class TensorPipeAgent(RpcAgent):
    """The agent of the only backend."""


def get_rpc_timeout() -> float:
    """Return the default timeout of calls, in seconds."""
    try:
        return current_worker().options.rpc_timeout
    except NotInitialized:
        return constants.DEFAULT_RPC_TIMEOUT_SEC


def set_rpc_timeout(seconds: float) -> None:
    """Set the default timeout of later calls, in seconds."""
    with as_torch_raises():
        worker = current_worker()
        worker.options = replace(worker.options, rpc_timeout=float(seconds))


def reference_counts() -> dict[str, str]:
    """Return counts of this worker's RRefs, and of those still being made or sent, as text."""
    with as_torch_raises():
        references = current_worker().references
    sharing, counts = references.sharing(), references.counts()
    return {
        "num_owner_rrefs": str(sharing["shared"]),
        "num_forks": str(sharing["forks"]),
        "num_pending_users": str(sharing["pending"]),
        "num_pending_futures": str(counts["given"]),
    }
