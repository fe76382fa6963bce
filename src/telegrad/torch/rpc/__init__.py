"""A replacement for ``torch.distributed.rpc``: the same names, running telegrad's workers.

A program writes ``import telegrad.torch.rpc as rpc`` in place of ``import torch.distributed.rpc as
rpc``. `docs/coming-from-torch.md` lists the results of PyTorch's own tests. This package imports
PyTorch; no lower layer does.
"""

from telegrad.torch.rpc import api, backend_registry, constants, functions, internal
from telegrad.torch.rpc.agent import RpcAgent, TensorPipeAgent, get_rpc_timeout
from telegrad.torch.rpc.agent import reference_counts as _rref_context_get_debug_info
from telegrad.torch.rpc.agent import set_rpc_timeout as _set_rpc_timeout
from telegrad.torch.rpc.api import (
    RRef,
    WorkerInfo,
    _get_current_rpc_agent,
    _is_current_rpc_agent_set,
    _wait_all,
    get_worker_info,
    remote,
    rpc_async,
    rpc_sync,
    shutdown,
)
from telegrad.torch.rpc.backend_registry import (
    BackendType,
    backend_registered,
    construct_rpc_backend_options,
)
from telegrad.torch.rpc.init import _get_debug_info, init_rpc, is_available
from telegrad.torch.rpc.options import RpcBackendOptions, TensorPipeRpcBackendOptions
from telegrad.torch.rpc.profile.server_profile import _server_process_global_profile

__all__ = [
    "BackendType",
    "PyRRef",
    "RRef",
    "RpcAgent",
    "RpcBackendOptions",
    "TensorPipeAgent",
    "TensorPipeRpcBackendOptions",
    "WorkerInfo",
    "_get_current_rpc_agent",
    "_get_debug_info",
    "_is_current_rpc_agent_set",
    "_rref_context_get_debug_info",
    "_server_process_global_profile",
    "_set_rpc_timeout",
    "_wait_all",
    "api",
    "backend_registered",
    "backend_registry",
    "constants",
    "construct_rpc_backend_options",
    "functions",
    "get_rpc_timeout",
    "get_worker_info",
    "init_rpc",
    "internal",
    "is_available",
    "remote",
    "rpc_async",
    "rpc_sync",
    "shutdown",
]

PyRRef = RRef
_UNSET_RPC_TIMEOUT = constants.UNSET_RPC_TIMEOUT
_DEFAULT_RPC_TIMEOUT_SEC = constants.DEFAULT_RPC_TIMEOUT_SEC
_DEFAULT_INIT_METHOD = constants.DEFAULT_INIT_METHOD
_DEFAULT_NUM_WORKER_THREADS = constants.DEFAULT_NUM_WORKER_THREADS
