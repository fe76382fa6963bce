"""A replacement for ``torch.distributed.rpc.api``: calls, and shutdown."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, Final

from telegrad.rpc import api
from telegrad.rpc.names import WorkerInfo
from telegrad.torch.rpc.agent import get_rpc_timeout
from telegrad.torch.rpc.calls import (
    _get_current_rpc_agent,
    _is_current_rpc_agent_set,
    _thread_local_var,
    _wait_all,
    current,
    get_worker_info,
    remote,
    rpc_async,
    rpc_sync,
)
from telegrad.torch.rpc.constants import DEFAULT_SHUTDOWN_TIMEOUT, UNSET_RPC_TIMEOUT
from telegrad.torch.rpc.gather import all_gather as _all_gather
from telegrad.torch.rpc.internal import OTHER_PICKLERS, _internal_rpc_pickler
from telegrad.torch.rpc.rref import RRef

__all__ = [
    "DEFAULT_SHUTDOWN_TIMEOUT",
    "UNSET_RPC_TIMEOUT",
    "RRef",
    "WorkerInfo",
    "_get_current_rpc_agent",
    "_is_current_rpc_agent_set",
    "_thread_local_var",
    "_wait_all",
    "get_rpc_timeout",
    "get_worker_info",
    "remote",
    "rpc_async",
    "rpc_sync",
    "shutdown",
]

_NO_END: Final = 1e8
"""Seconds."""
_default_pickler: Any = _internal_rpc_pickler
_ignore_rref_leak = True
"""As in PyTorch: whether `shutdown` ignores values that others still refer to. It always does."""


@contextlib.contextmanager
def _use_rpc_pickler(rpc_pickler: Any) -> Iterator[None]:
    """Set another pickler, and refuse calls inside the block, since telegrad would not use it."""
    global _default_pickler
    _default_pickler = rpc_pickler
    others = [] if rpc_pickler is _internal_rpc_pickler else [rpc_pickler]
    OTHER_PICKLERS.extend(others)
    try:
        yield
    finally:
        _default_pickler = _internal_rpc_pickler
        for each in others:
            OTHER_PICKLERS.remove(each)


def _require_initialized(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with a check that ``init_rpc`` was called."""

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        current()
        return function(*args, **kwargs)

    return checked


def shutdown(graceful: bool = True, timeout: float = DEFAULT_SHUTDOWN_TIMEOUT) -> None:
    """Leave the cluster; if `graceful`, first wait until all workers have called this.

    In an open world, each waits for its own work only. `timeout` is in seconds; 0 means no limit.
    """
    current()
    try:
        if graceful and not api.is_world_open():
            _wait_all_workers(timeout)
            _delete_all_user_and_unforked_owner_rrefs()
    finally:
        api.shutdown(graceful, timeout or _NO_END)


def _wait_all_workers(timeout: float = DEFAULT_SHUTDOWN_TIMEOUT) -> None:
    _all_gather(None, timeout=timeout)


def _delete_all_user_and_unforked_owner_rrefs() -> None:
    """Do nothing: a worker's references end with it."""


def _barrier(worker_names: Any) -> None:
    """Wait until all of these workers have called this."""
    _all_gather(None, worker_names)
