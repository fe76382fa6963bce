"""Make this process a worker: ``init_rpc`` as PyTorch's programs call it."""

from typing import Any, Final

# Imported now, not with the first tensor: PyTorch is loaded already.
import telegrad.interop.torch.framework  # noqa: F401
from telegrad.distributed.worker_autograd import attach_autograd
from telegrad.interop.torch.profile import name_node
from telegrad.rpc import api
from telegrad.rpc.membership.roster import WorldMismatch
from telegrad.rpc.options import Options
from telegrad.rpc.worker import Worker
from telegrad.torch import autograd
from telegrad.torch.rpc.agent import reference_counts
from telegrad.torch.rpc.backend_registry import BackendType
from telegrad.torch.rpc.calls import (
    _get_current_rpc_agent,
    _is_current_rpc_agent_set,
    options_of_worker,
)
from telegrad.torch.rpc.failures import as_torch_raises
from telegrad.torch.rpc.options import RpcBackendOptions, TensorPipeRpcBackendOptions
from telegrad.torch.rpc.rendezvous import find_place
from telegrad.torch.rpc.rref import RRef

_MIXED: Final = (
    "RPC group mixes statically and dynamically initialized members which is not supported."
)


def is_available() -> bool:
    """Return True: RPC is always available."""
    return True


def init_rpc(
    name: str,
    backend: BackendType | None = None,
    rank: int = -1,
    world_size: int | None = None,
    rpc_backend_options: RpcBackendOptions | None = None,
) -> None:
    """Make this process a worker of a cluster; return when all workers have joined.

    Arguments:
        name: This worker's name.
        backend: The backend; only ``BackendType.TENSORPIPE`` exists.
        rank: This worker's number, from 0; -1 to take it from the options' URL, or from RANK.
        world_size: The number of workers; None to take it from the URL, or from WORLD_SIZE. If
            neither has it, the world is open, and this returns at once.
        rpc_backend_options: The worker's options, such as the URL where the workers meet.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If the URL is not valid, or the rank is not given anywhere.
        RuntimeError: If this process already is a worker, or the workers fail to meet.
    """
    options = _checked(backend, rpc_backend_options)
    if _is_current_rpc_agent_set():
        raise RuntimeError("RPC is already initialized")
    with as_torch_raises():
        try:
            place = find_place(options.init_method, rank, world_size, name)
            worker = api.join(
                name,
                rank=place.rank,
                world_size=place.world_size,
                options=_own(options),
                meeting=place.meeting,
                on_start=_begin,
            ).worker
        except WorldMismatch as error:
            raise RuntimeError(f"{_MIXED} {error}") from error
    options_of_worker[worker] = options


def _own(options: TensorPipeRpcBackendOptions) -> Options:
    """Return the options that telegrad uses."""
    maps = {
        to: {str(here): str(there) for here, there in device_map.items()}
        for to, device_map in options.device_maps.items()
    }
    return Options(rpc_timeout=options.rpc_timeout, device_maps=maps)


def _begin(worker: Worker) -> None:
    attach_autograd(worker)
    worker.references.handle_type = RRef
    # Profiles of this process show the worker's number.
    name_node(worker.id)


def _checked(backend: Any, options: Any) -> TensorPipeRpcBackendOptions:
    if backend is not None and not isinstance(backend, BackendType):
        raise TypeError("Argument backend must be a member of BackendType")
    if options is None:
        return TensorPipeRpcBackendOptions()
    if not isinstance(options, RpcBackendOptions):
        raise TypeError("Argument rpc_backend_options must be an instance of RpcBackendOptions")
    if isinstance(options, TensorPipeRpcBackendOptions):
        return options
    if backend is None:
        raise TypeError(f"Could not infer backend for options {options}")
    raise TypeError("`rpc_backend_options` must be a `TensorPipeRpcBackendOptions`")


def _get_debug_info() -> dict[str, str | int]:
    """Return counts about RRefs, calls and distributed autograd."""
    return {
        **reference_counts(),
        **_get_current_rpc_agent().get_debug_info(),
        **autograd._get_debug_info(),
    }
