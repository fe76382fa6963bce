"""The constants of ``torch.distributed.rpc.constants``."""

from datetime import timedelta
from typing import Final

__all__: list[str] = []

DEFAULT_RPC_TIMEOUT_SEC: Final = 60.0
DEFAULT_INIT_METHOD: Final = "env://"
DEFAULT_SHUTDOWN_TIMEOUT: Final = 0.0
"""Seconds; 0 for no limit."""
DEFAULT_NUM_WORKER_THREADS: Final = 16
DEFAULT_PROCESS_GROUP_TIMEOUT: Final = timedelta(milliseconds=2**31 - 1)
UNSET_RPC_TIMEOUT: Final = -1.0
"""A call with this timeout has the worker's default timeout."""
