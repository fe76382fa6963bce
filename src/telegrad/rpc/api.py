"""The module-level functions, with PyTorch's names: each calls the current worker."""

import atexit
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar, overload

from telegrad.errors import UsageError
from telegrad.rpc.calls.future import Future
from telegrad.rpc.current import current_worker, default_worker, set_default_worker
from telegrad.rpc.membership import environment
from telegrad.rpc.membership.card import OPEN, world_of
from telegrad.rpc.membership.launch import find_launch
from telegrad.rpc.membership.membership import Membership
from telegrad.rpc.membership.place import find_meeting
from telegrad.rpc.membership.rendezvous import Meeting
from telegrad.rpc.names import UNKNOWN_ID, WorkerInfo
from telegrad.rpc.options import Options, given_options
from telegrad.rpc.references.rref import RRef
from telegrad.rpc.timeouts import seconds
from telegrad.rpc.worker import Worker

# The overloads type a call as its function's result, or as the value of the Future (returned by a
# function marked async_execution) or of the coroutine (of an async function). Type checkers can't
# check the arguments, which are in a tuple.
T = TypeVar("T")
Later = Future[T] | Coroutine[Any, Any, T]
_HOW_TO_START: Final = (
    "start the script once for each worker, as `telegrad run --workers 2 script.py` does, or use "
    "LocalCluster, which needs none of this"
)
_log: Final = logging.getLogger("telegrad.rpc")
_membership: Membership | None = None


def _integer(value: Any, argument: str) -> int | None:
    try:
        return None if value is None else int(value)
    except ValueError:
        raise UsageError(f"expected an integer for {argument}, got {value!r}") from None


def join(
    name: str | None = None,
    *,
    rank: int | None = None,
    world_size: int | None = None,
    options: Options | None = None,
    meeting: Any = None,
    on_start: Callable[[Worker], object] = lambda _: None,
) -> Membership:
    """Make this process a worker of a cluster; return its membership when all workers are there.

    Arguments left out come from the launcher (`find_launch`) and the environment. If these give no
    world_size either, the world is open: workers come and go, and this returns at once. `meeting`
    is a Meeting, or a place to meet (a directory's path, a store of PyTorch's); with it, a world
    without an explicit world_size is always open. `on_start` gets the worker before any other
    worker can call it.
    """
    global _membership
    chosen = given_options(options)
    launch = find_launch(os.environ)
    own_rank, size = _integer(rank, "rank"), _integer(world_size, "world_size")
    if launch is not None:
        own_rank = launch.rank if own_rank is None else own_rank
        size = launch.size if size is None and meeting is None else size
    if size is not None and size < 1:
        raise UsageError(f"expected a world_size of 1 or more, got {size}")
    if size is not None and own_rank is None:
        raise UsageError(
            f"init_rpc needs rank=..., or {environment.RANK} in the environment: {_HOW_TO_START}"
        )
    if own_rank is not None and not 0 <= own_rank < (size or UNKNOWN_ID):
        raise UsageError(
            f"expected a rank from 0 to {(size or UNKNOWN_ID) - 1} in {world_of(size or OPEN)}, "
            f"got {own_rank}"
        )
    name = name or os.environ.get(environment.WORKER_NAME)
    if not name and (own_rank is None or launch is None):
        given = f"a name, or {environment.WORKER_NAME} in the environment"
        raise UsageError(f"init_rpc needs {given}: {_HOW_TO_START}")
    name = name or f"worker{own_rank}"
    existing = default_worker()
    if existing is not None and not existing.closed:
        raise UsageError(
            f"this process is the worker {existing.name!r} already: call shutdown first"
        )
    if not isinstance(meeting, Meeting):
        meeting = find_meeting(
            os.environ, launch, name, is_open=size is None, place=meeting, tls=chosen.tls
        )
    found = launch.launcher if launch is not None else "no launcher"
    _log.info("%s found: %r joins %s", found, name, world_of(size or OPEN))
    membership = Membership(name, own_rank, size or OPEN, chosen, meeting, on_start)
    membership.launcher = None if launch is None else launch.launcher
    _membership = membership
    set_default_worker(membership.worker)
    atexit.register(_leave_at_exit, membership)
    return membership


def is_world_open() -> bool:
    """Say whether this process joined a world that workers come to and leave."""
    return _membership is not None and _membership.is_open


def _leave_at_exit(membership: Membership) -> None:
    if not membership.worker.closed:
        membership.end_with_process()


def _forget_in_fork() -> None:
    """Keep a forked process from leaving on its parent's behalf, now and at its own end."""
    global _membership
    _membership = None
    atexit.unregister(_leave_at_exit)


os.register_at_fork(after_in_child=_forget_in_fork)


def shutdown(graceful: bool = True, timeout: float = 60.0) -> None:
    """Leave the cluster; if `graceful`, wait until all have finished, at most `timeout` seconds.

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
        func: The function; if it can't be imported there, its code is sent.
        args: Its positional arguments.
        kwargs: Its options.
        timeout: Seconds until it fails with CallTimeout, 0 for never; ``Options.rpc_timeout`` by
            default.

    Returns:
        What the function returns there.

    Raises:
        CallTimeout: If the answer is not there in time.
        WorkerLost: If the worker is gone.
        Unserializable: If something can't be sent.
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

    The arguments are those of ``rpc_sync``.

    Returns:
        A future; its ``wait`` raises the errors that ``rpc_sync`` would.

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

    The other arguments are those of ``rpc_sync``.

    Arguments:
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
    """Return the WorkerInfo of a worker; without a name, of this one.

    Raises:
        UnknownWorker: If there is no such worker.

    Examples:
        >>> rpc.get_worker_info("trainer").id
        2
    """
    worker = current_worker()
    return worker.info if worker_name is None else worker.find(worker_name).info
