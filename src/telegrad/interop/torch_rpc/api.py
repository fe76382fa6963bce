"""Beginning and end, and meetings by calls alone: ``torch.distributed.rpc.api``.

In a meeting everyone gives an object and gets everybody's. The worker whose name sorts first leads:
the others give their objects to it, and when it has all it gives all to each. A meeting is numbered
by those who take part, so that threads may hold several.
"""

import contextlib
import threading
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from telegrad.interop.torch_rpc import constants
from telegrad.interop.torch_rpc.agent import get_rpc_timeout
from telegrad.interop.torch_rpc.calls import (
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
from telegrad.interop.torch_rpc.failures import as_torch_raises
from telegrad.interop.torch_rpc.internal import _internal_rpc_pickler
from telegrad.interop.torch_rpc.rref import RRef
from telegrad.rpc import face
from telegrad.rpc.future import Future
from telegrad.rpc.names import WorkerInfo

__all__ = [
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
"""Whether `shutdown` lets go of values that others still refer to without a word."""
_lock = threading.Lock()
_numbers: dict[str, int] = defaultdict(int)
_meetings: dict[str, "_Meeting"] = {}


@contextlib.contextmanager
def _use_rpc_pickler(rpc_pickler: Any) -> Iterator[None]:
    """Names another pickler; telegrad's calls don't ask for one."""
    global _default_pickler
    _default_pickler = rpc_pickler
    try:
        yield
    finally:
        _default_pickler = _internal_rpc_pickler


def shutdown(graceful: bool = True, timeout: float = constants.DEFAULT_SHUTDOWN_TIMEOUT) -> None:
    """Leaves the cluster; a graceful one when all have finished. A timeout of 0 means no end."""
    current()
    try:
        if graceful:
            _wait_all_workers(timeout)
            _delete_all_user_and_unforked_owner_rrefs()
    finally:
        face.shutdown(graceful, timeout or _NO_END)


def _wait_all_workers(timeout: float = constants.DEFAULT_SHUTDOWN_TIMEOUT) -> None:
    _all_gather(None, timeout=timeout)


def _delete_all_user_and_unforked_owner_rrefs() -> None:
    """Nothing to do: references go with their worker."""


class _Meeting:
    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.is_complete: Future[None] = Future()


def _meeting(number: str) -> _Meeting:
    with _lock:
        return _meetings.setdefault(number, _Meeting())


def _gather_to_leader(number: str, name: str, given: Any, names: list[str]) -> None:
    """The leader gets an object of one of those who meet."""
    meeting = _meeting(number)
    with _lock:
        meeting.objects[name] = given
        is_last = len(meeting.objects) == len(names)
    if is_last:
        meeting.is_complete.set_result(None)


def _broadcast_to_followers(number: str, objects: dict[str, Any]) -> None:
    """The others get what the leader has gathered."""
    meeting = _meeting(number)
    meeting.objects = objects
    meeting.is_complete.set_result(None)


def _all_gather(
    given: Any, worker_names: Any = None, timeout: float = constants.UNSET_RPC_TIMEOUT
) -> dict[str, Any]:
    """Everybody's object, by name; returns when all have come."""
    agent = _get_current_rpc_agent()
    me = agent.get_worker_info().name
    names = sorted(worker_names or (info.name for info in agent.get_worker_infos()))
    leader = names[0]
    joined = ",".join(names)
    with _lock:
        number = f"{joined}#{_numbers[joined]}"
        _numbers[joined] += 1
    seconds = get_rpc_timeout() if timeout == constants.UNSET_RPC_TIMEOUT else timeout
    patience = None if timeout in (constants.UNSET_RPC_TIMEOUT, 0) else timeout
    if me == leader:
        _gather_to_leader(number, me, given, names)
    else:
        rpc_sync(leader, _gather_to_leader, (number, me, given, names), timeout=seconds)
    meeting = _meeting(number)
    with as_torch_raises():
        meeting.is_complete.wait(patience)
    if me == leader:
        _tell(number, names[1:], meeting.objects, seconds)
    with _lock:
        _meetings.pop(number, None)
    return meeting.objects


def _tell(number: str, followers: list[str], objects: dict[str, Any], seconds: float) -> None:
    calls = {
        name: rpc_async(name, _broadcast_to_followers, (number, objects), None, seconds)
        for name in followers
    }
    late: list[str] = []
    first: Exception | None = None
    for name, call in calls.items():
        try:
            call.wait()
        except RuntimeError as error:
            late.append(name)
            first = first or error
    if first is not None:
        raise RuntimeError(
            f"Followers {late} timed out in _all_gather after {seconds:.2f} seconds. The first "
            f"exception is {first}"
        ) from first


def _barrier(worker_names: Any) -> None:
    """Returns when all of those workers have come here."""
    _all_gather(None, worker_names)
