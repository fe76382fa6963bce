"""The registry of backends. There is one, telegrad, under the name that programs use."""

import enum
from typing import Any

from telegrad.torch.rpc import constants
from telegrad.torch.rpc.options import RpcBackendOptions, TensorPipeRpcBackendOptions


class BackendType(enum.Enum):
    """The backends that ``init_rpc`` accepts."""

    TENSORPIPE = "TENSORPIPE"

    def __repr__(self) -> str:
        return f"BackendType.{self.name}"


def backend_registered(backend_name: str) -> bool:
    """Tell whether a backend of that name exists."""
    return backend_name in BackendType.__members__


def construct_rpc_backend_options(
    backend: BackendType,
    rpc_timeout: float = constants.DEFAULT_RPC_TIMEOUT_SEC,
    init_method: str = constants.DEFAULT_INIT_METHOD,
    **kwargs: Any,
) -> RpcBackendOptions:
    """Return options for a backend.

    Arguments:
        backend: The backend; only ``BackendType.TENSORPIPE`` exists.
        rpc_timeout: The default timeout of calls, in seconds.
        init_method: The URL where the workers meet, as for ``TensorPipeRpcBackendOptions``.
        kwargs: Other arguments of ``TensorPipeRpcBackendOptions``.
    """
    return TensorPipeRpcBackendOptions(rpc_timeout=rpc_timeout, init_method=init_method, **kwargs)
