"""The calls of ``torch.distributed.rpc``, made by the current worker.

They have PyTorch's interface: torch futures, RuntimeErrors, and -1 for the default timeout. The
calls themselves are telegrad's.
"""

import contextlib
import math
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast
from weakref import WeakKeyDictionary

from telegrad.errors import NotInitialized, PeerError
from telegrad.interop.torch.profile import THREAD, install
from telegrad.rpc.calls.future import Future
from telegrad.rpc.current import current_worker
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.timeouts import seconds
from telegrad.rpc.worker import Worker
from telegrad.torch.rpc import constants
from telegrad.torch.rpc.agent import TensorPipeAgent
from telegrad.torch.rpc.failures import TRANSLATED, RpcMisused, as_torch_raises, raise_as_torch
from telegrad.torch.rpc.future import CallFuture, failed, install_wait_all, wait_all
from telegrad.torch.rpc.handlers import prepared
from telegrad.torch.rpc.internal import RPCExecMode
from telegrad.torch.rpc.options import TensorPipeRpcBackendOptions
from telegrad.torch.rpc.profile import profiled_calls

if TYPE_CHECKING:
    from telegrad.torch.rpc.rref import RRef

_UNSET: Final = constants.UNSET_RPC_TIMEOUT
_thread_local_var = threading.local()
options_of_worker: WeakKeyDictionary[Worker, TensorPipeRpcBackendOptions] = WeakKeyDictionary()
# Programs use these two under PyTorch's own names, so they are replaced there.
install()
install_wait_all()


def current() -> Worker:
    """Return the current worker; raise NotInitialized in PyTorch's words if there is none."""
    try:
        return current_worker()
    except NotInitialized as error:
        raise NotInitialized(
            "RPC has not been initialized. Call telegrad.torch.rpc.init_rpc first."
        ) from error


def _is_current_rpc_agent_set() -> bool:
    try:
        current_worker()
    except NotInitialized:
        return False
    return True


def _get_current_rpc_agent() -> TensorPipeAgent:
    worker = current()
    options = options_of_worker.get(worker) or TensorPipeRpcBackendOptions()
    return TensorPipeAgent(worker, options)


def _find(worker: Worker, to: Any) -> str | WorkerInfo:
    if type(to) is str and to in worker.peers.by_name:
        return to
    if isinstance(to, bool) or not isinstance(to, (str, int, WorkerInfo)):
        raise ValueError(f"Cannot get WorkerInfo from name {to}")
    with as_torch_raises():
        return worker.find(to).info


def get_worker_info(worker_name: str | int | None = None) -> WorkerInfo:
    """Return the WorkerInfo of a worker; without an argument, of this one."""
    worker = current()
    if worker_name is None:
        return worker.info
    found = _find(worker, worker_name)
    return worker.find(found).info


def rpc_sync(
    to: Any, func: Any, args: Any = None, kwargs: Any = None, timeout: float | None = _UNSET
) -> Any:
    """Run `func(*args, **kwargs)` on worker `to` and return its result.

    Arguments:
        to: The name, rank or WorkerInfo of the worker.
        func: The function to call there.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        timeout: The seconds until the call fails; -1 for the default timeout, 0 for no limit.

    Returns:
        The function's result.

    Raises:
        RuntimeError: If the worker can't be reached, is lost, or does not answer in time.
        Exception: Any exception that the function raised, with its own type.
    """
    worker = current()
    callee = _find(worker, to)
    function, args, kwargs, said = sent = prepared(func, args, kwargs)
    # None, not -1: then a call to this worker itself can run on this thread.
    timeout = None if timeout is _UNSET else timeout
    try:
        if THREAD.recording is not None:
            return profiled_calls.call(worker, callee, func, sent, timeout, RPCExecMode.SYNC).wait()
        return worker.outgoing.call(
            callee, function, args, kwargs, timeout, waits=True, said=said
        ).wait()
    except TRANSLATED as error:
        raise_as_torch(error)


def rpc_async(
    to: Any, func: Any, args: Any = None, kwargs: Any = None, timeout: float | None = _UNSET
) -> CallFuture:
    """Start `func(*args, **kwargs)` on worker `to`; return a torch future of its result.

    The arguments are those of ``rpc_sync``.

    Returns:
        The future. Waiting for it raises the errors that ``rpc_sync`` raises.
    """
    worker = current()
    callee = _find(worker, to)
    try:
        with as_torch_raises():
            function, args, kwargs, said = sent = prepared(func, args, kwargs)
            call: Future[Any]
            if THREAD.recording is not None:
                call = profiled_calls.call(worker, callee, func, sent, timeout, RPCExecMode.ASYNC)
            else:
                call = worker.outgoing.call(
                    callee, function, args, kwargs, timeout, waits=False, said=said
                )
            future = CallFuture(call)
    except PeerError as error:
        # If the worker can't be reached, the future fails; `rpc_async` itself does not raise.
        future = failed(error)
    if hasattr(_thread_local_var, "future_list"):
        _thread_local_var.future_list.append(future)
    return future


def remote(
    to: Any, func: Any, args: Any = None, kwargs: Any = None, timeout: float | None = _UNSET
) -> "RRef":
    """Start `func(*args, **kwargs)` on worker `to`; return an RRef to its result at once.

    The other arguments are those of ``rpc_sync``.

    Arguments:
        timeout: The seconds to make the value; -1 for the default timeout, 0 for no limit.

    Returns:
        The RRef. An exception of the function is raised when the value is requested.
    """
    worker = current()
    callee = _find(worker, to)
    with as_torch_raises():
        function, args, kwargs, said = sent = prepared(func, args, kwargs)
        asking = _asking_time(worker, timeout)
        recorded: Future[Any] | None = None
        if THREAD.recording is not None:
            made, recorded = profiled_calls.create(worker, callee, func, sent, asking)
        else:
            made = worker.outgoing.create(callee, function, args, kwargs, asking, said)
    # A worker made by this package's init_rpc makes RRefs of this package's type.
    reference = cast("RRef", made)
    reference._patience = timeout
    if recorded is not None:
        reference._recorded = CallFuture(recorded)
    return reference


def _asking_time(worker: Worker, timeout: float | None) -> float | None:
    """Return the timeout for the request to make a value, given the value's `timeout`.

    It is never shorter than the default timeout: a late value is still made.
    """
    if timeout is None or timeout in (0, _UNSET):
        return timeout
    return max(seconds(timeout), worker.options.rpc_timeout or math.inf)


def _refuse_script() -> NoReturn:
    raise RpcMisused(
        "expected a call of telegrad.torch.rpc in plain Python, got one in a function that "
        "torch.jit.script compiles: TorchScript knows PyTorch's own remote calls alone; leave the "
        "decorator off this function, and call scripted functions by name: "
        'rpc_async("worker", scripted_function, args)'
    )


for _call in (rpc_sync, rpc_async, remote):
    # TorchScript calls this to get what to compile in the function's place.
    cast(Any, _call).__prepare_scriptable__ = _refuse_script


@contextlib.contextmanager
def _wait_all() -> Iterator[None]:
    """Wait, at the end of the block, for all calls that ``rpc_async`` started in it."""
    _thread_local_var.future_list = []
    try:
        yield
    finally:
        try:
            wait_all(_thread_local_var.future_list)
        finally:
            del _thread_local_var.future_list
