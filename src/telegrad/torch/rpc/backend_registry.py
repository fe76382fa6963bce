"""Which backends there are: one, telegrad, under the name that programs ask for."""

import enum
from typing import Any

from telegrad.torch.rpc import constants
from telegrad.torch.rpc.options import RpcBackendOptions, TensorPipeRpcBackendOptions


class BackendType(enum.Enum):
    """The backends that ``init_rpc`` knows."""

    TENSORPIPE = "TENSORPIPE"

    def __repr__(self) -> str:
        return f"BackendType.{self.name}"


def backend_registered(backend_name: str) -> bool:
    """Tell whether there is a backend of that name."""
    return backend_name in BackendType.__members__


def construct_rpc_backend_options(
    backend: BackendType,
    rpc_timeout: float = constants.DEFAULT_RPC_TIMEOUT_SEC,
    init_method: str = constants.DEFAULT_INIT_METHOD,
    **kwargs: Any,
) -> RpcBackendOptions:
    """Return options for a backend.

    Arguments:
        backend: The backend; there is one.
        rpc_timeout: The seconds after which a call fails.
        init_method: Where the workers meet, a URL.
        kwargs: What ``TensorPipeRpcBackendOptions`` takes besides.
    """
    return TensorPipeRpcBackendOptions(rpc_timeout=rpc_timeout, init_method=init_method, **kwargs)
