"""The module-level functions: a thin face over the current worker, with PyTorch's names."""

import atexit
import os
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar, overload

from telegrad.errors import UsageError
from telegrad.rpc.calls.future import Future
from telegrad.rpc.current import current_worker, default_worker, set_default_worker
from telegrad.rpc.membership import environment
from telegrad.rpc.membership.membership import Membership
from telegrad.rpc.membership.rendezvous import Meeting
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.options import Options, given_options
from telegrad.rpc.references.rref import RRef
from telegrad.rpc.timeouts import seconds
from telegrad.rpc.transport import Address
from telegrad.rpc.worker import Worker

__all__ = [
    "get_worker_info",
    "init_rpc",
    "remote",
    "rpc_async",
    "rpc_sync",
    "shutdown",
]

# The overloads: a call gives what its function returns or, if that is marked async_execution, the
# value of the Future that it returns, and of an async function that of its coroutine. Type checkers
# don't see the arguments: they are in a tuple.
T = TypeVar("T")
Later = Future[T] | Coroutine[Any, Any, T]
_HOW_TO_START: Final = (
    "start the script once for each worker, as `telegrad run --workers 2 script.py` does, or use "
    "LocalCluster, which needs none of this"
)
_membership: Membership | None = None


def _setting(value: Any, name: str, argument: str) -> int:
    if value is None:
        value = os.environ.get(name)
    if value is None:
        given = f"{name} in the environment"
        if argument != name:
            given = f"{argument}=..., or {given}"
        raise UsageError(f"init_rpc needs {given}: {_HOW_TO_START}")
    try:
        return int(value)
    except ValueError:
        raise UsageError(f"expected an integer for {argument} ({name}), got {value!r}") from None


def _meeting_of_environment() -> Meeting:
    host = os.environ.get(environment.MASTER_ADDR, "127.0.0.1")
    port = _setting(None, environment.MASTER_PORT, "MASTER_PORT")
    key, credentials = environment.find_secrets(os.environ)
    scheme = "tcp" if credentials is None else "tls"
    return Meeting(Address(scheme, host=host, port=port).text, key, credentials)


def init_rpc(
    name: str | None = None,
    *,
    rank: int | None = None,
    world_size: int | None = None,
    options: Options | None = None,
    meeting: Meeting | None = None,
    on_start: Callable[[Worker], object] = lambda _: None,
) -> Worker:
    """Make this process a worker of a cluster; return when all workers are in.

    What is not given comes from the environment: MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE,
    TELEGRAD_WORKER_NAME, and the key by TELEGRAD_KEY_FILE or TELEGRAD_CREDENTIALS. `on_start` gets
    the worker before any other can call it.
    """
    global _membership
    chosen = given_options(options)
    name = name or os.environ.get(environment.WORKER_NAME)
    if not name:
        given = f"a name, or {environment.WORKER_NAME} in the environment"
        raise UsageError(f"init_rpc needs {given}: {_HOW_TO_START}")
    own_rank = _setting(rank, environment.RANK, "rank")
    size = _setting(world_size, environment.WORLD_SIZE, "world_size")
    if size < 1:
        raise UsageError(f"expected a world_size of 1 or more, got {size}")
    if not 0 <= own_rank < size:
        raise UsageError(
            f"expected a rank from 0 to {size - 1} in a world of {size}, got {own_rank}"
        )
    existing = default_worker()
    if existing is not None and not existing.closed:
        raise UsageError(
            f"this process is the worker {existing.name!r} already: call shutdown first"
        )
    meeting = meeting or _meeting_of_environment()
    membership = Membership(name, own_rank, size, chosen, meeting, on_start)
    _membership = membership
    set_default_worker(membership.worker)
    atexit.register(_leave_at_exit, membership)
    return membership.worker


def _leave_at_exit(membership: Membership) -> None:
    if not membership.worker.closed:
        membership.end_with_process()


def _forget_in_fork() -> None:
    """A forked process must not leave for the one it was forked from, nor at its own end."""
    global _membership
    _membership = None
    atexit.unregister(_leave_at_exit)


os.register_at_fork(after_in_child=_forget_in_fork)


def shutdown(graceful: bool = True, timeout: float = 60.0) -> None:
    """Leave the cluster; a graceful one waits until all have finished, `timeout` s at most.

    Examples:
        >>> worker = rpc.init_rpc("main", rank=0, world_size=1)
        >>> rpc.shutdown()
    """
    global _membership
    timeout = min(seconds(timeout), threading.TIMEOUT_MAX)
    membership, _membership = _membership, None
    worker = default_worker()
    if membership is None:
        current_worker().close()
    else:
        try:
            if graceful and not membership.worker.closed:
                membership.leave(timeout)
        finally:
            membership.close()
            atexit.unregister(_leave_at_exit)
    if worker is not None and worker.closed:
        set_default_worker(None)


@overload
def rpc_sync(
    to: str | int | WorkerInfo,
    func: Callable[..., Later[T]],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> T: ...
@overload
def rpc_sync(
    to: str | int | WorkerInfo,
    func: Callable[..., T],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> T: ...
def rpc_sync(
    to: str | int | WorkerInfo,
    func: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> Any:
    """Run ``func(*args, **kwargs)`` on worker `to` and return its result.

    Arguments:
        to: The worker: its name, its rank or its WorkerInfo.
        func: The function; what can't be imported there is sent.
        args: Its positional arguments.
        kwargs: Its options.
        timeout: Seconds until it fails with CallTimeout, 0 for never; ``Options.rpc_timeout`` by
            default.

    Returns:
        What the function returns there.

    Raises:
        CallTimeout: If the answer is not there in time.
        WorkerLost: If the worker is gone.
        Unserializable: If something can't travel.
        Exception: What the function raises.

    Examples:
        >>> rpc.rpc_sync("ps", tg.square, (tg.tensor([1.0, 2.0]),))
        tensor([1., 4.])
    """
    return current_worker().rpc_sync(to, func, args, kwargs, timeout)


@overload
def rpc_async(
    to: str | int | WorkerInfo,
    func: Callable[..., Later[T]],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> Future[T]: ...
@overload
def rpc_async(
    to: str | int | WorkerInfo,
    func: Callable[..., T],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> Future[T]: ...
def rpc_async(
    to: str | int | WorkerInfo,
    func: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> Future[Any]:
    """Start ``func(*args, **kwargs)`` on worker `to` and return the future of its result.

    Arguments:
        to: The worker: its name, its rank or its WorkerInfo.
        func: The function; what can't be imported there is sent.
        args: Its positional arguments.
        kwargs: Its options.
        timeout: Seconds until it fails with CallTimeout, 0 for never; ``Options.rpc_timeout`` by
            default.

    Returns:
        A future; what ``rpc_sync`` would raise, its ``wait`` raises.

    Examples:
        >>> calls = [rpc.rpc_async(worker, abs, (-2,)) for worker in ("ps", "trainer")]
        >>> [call.wait() for call in calls]
        [2, 2]
    """
    return current_worker().rpc_async(to, func, args, kwargs, timeout)


@overload
def remote(
    to: str | int | WorkerInfo,
    func: Callable[..., Later[T]],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> RRef[T]: ...
@overload
def remote(
    to: str | int | WorkerInfo,
    func: Callable[..., T],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> RRef[T]: ...
def remote(
    to: str | int | WorkerInfo,
    func: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> RRef[Any]:
    """Run ``func(*args, **kwargs)`` on worker `to` and return a reference to its result.

    Arguments:
        to: The worker: its name, its rank or its WorkerInfo.
        func: The function; what can't be imported there is sent.
        args: Its positional arguments.
        kwargs: Its options.
        timeout: Seconds for `to` to take the call, not to compute the result; see ``RRef.to_here``.

    Returns:
        A reference; the result stays where it is.

    Examples:
        >>> weights = rpc.remote("ps", tg.zeros, (2, 3))
        >>> weights.owner_name(), weights.to_here().shape
        ('ps', (2, 3))
    """
    return current_worker().remote(to, func, args, kwargs, timeout)


def get_worker_info(worker_name: str | int | None = None) -> WorkerInfo:
    """Return who a worker is; without a name, who this one is.

    Raises:
        UnknownWorker: If there is no such worker.

    Examples:
        >>> rpc.get_worker_info("trainer").id
        2
    """
    worker = current_worker()
    return worker.info if worker_name is None else worker.find(worker_name).info
