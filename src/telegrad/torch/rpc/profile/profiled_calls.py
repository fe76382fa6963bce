"""Remote calls under PyTorch's profiler: named as PyTorch names them, recorded on both sides.

While a profile is on in the calling thread, the function is sent with the profile's options. The
callee records the function's run and answers with the value and the recording. Nested calls do the
same, so their recordings are included. Without a profile, none of this code runs.
"""

from collections.abc import Mapping
from functools import partial
from types import CoroutineType
from typing import Any

import torch

from telegrad.interop.torch.profile import CallSpan, Recording, Served, current, record
from telegrad.rpc.calls.future import Future, Quick
from telegrad.rpc.calls.incoming import async_execution, is_async_execution
from telegrad.rpc.current import current_worker
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.references.rref import RRef
from telegrad.rpc.worker import Worker
from telegrad.torch.rpc.handlers import Prepared
from telegrad.torch.rpc.internal import RPCExecMode, _build_rpc_profiling_key


class ProfiledCall(Future[Any]):
    """The future of a profiled call's value, done once the handler's recording has arrived, too."""

    __slots__ = ("_call",)

    def __init__(self, call: Future[Any], span: CallSpan) -> None:
        super().__init__()
        self._call = self._source = call
        call.add_done_callback(Quick(span.stop))
        call.add_done_callback(partial(self._finish, span))

    def _finish(self, span: CallSpan, call: Future[Any]) -> None:
        error = call.exception()
        if error is not None:
            self._settle(None, error)
            return
        value, served = call.value()
        span.add(served)
        self._settle(value, None)

    def wait(self, timeout: float | None = None) -> Any:
        """Wait for the value and return it, or raise the call's exception."""
        try:
            # Wait for the call itself, which must do more on the thread that takes its answer.
            try:
                self._call.wait(timeout)
            except BaseException:
                if not self._call._done:
                    raise
                # The call has failed. Another thread may be about to end its span: wait for that.
            return super().wait(timeout)
        finally:
            # As in Future.wait: the exception's traceback holds this frame.
            del self

    def value(self) -> Any:
        """Return the value of a call that is done, or raise its exception."""
        if self._done:
            self._call.value()
        return super().value()


def call(
    worker: Worker,
    to: str | WorkerInfo,
    named: Any,
    prepared: Prepared,
    timeout: float | None,
    mode: RPCExecMode,
) -> Future[Any]:
    """Make a profiled call; return the future of its value.

    Arguments:
        worker: The caller.
        to: The callee.
        named: The user's function, or its name in the profile.
        prepared: The function and its arguments, as they are sent.
        timeout: The seconds until the call fails.
        mode: How it is called; with SYNC, this thread waits for it at once.
    """
    function, args, kwargs, said = prepared
    recording = current()
    name = _name_of(named, said)
    begin = partial(
        worker.outgoing.call,
        to,
        timeout=timeout,
        waits=mode is RPCExecMode.SYNC,
        said=said or name,
    )
    if recording is None:
        return begin(function, args, kwargs)
    span = _begin_span(recording, worker, to, mode, name)
    try:
        if worker.codec.strict:
            # Strict peers run exposed functions only, so they refuse `_run_profiled`.
            plain = begin(function, args, kwargs)
            plain.add_done_callback(Quick(span.stop))
            return plain
        packed = (recording.options, function, args, kwargs)
        return ProfiledCall(begin(_run_profiled, packed, None), span)
    except BaseException:
        span.stop()
        raise


def create(
    worker: Worker, to: str | WorkerInfo, named: Any, prepared: Prepared, timeout: float | None
) -> tuple[RRef, Future[Any] | None]:
    """Make a value that stays on its worker, profiled; return an RRef and a future.

    The arguments are those of `call`. The future is done when the value has been made and its
    recording has arrived here; it is None if nothing is recorded.
    """
    function, args, kwargs, said = prepared
    recording = current()
    name = _name_of(named, said)
    make = partial(worker.outgoing.create, to, timeout=timeout)
    if recording is None or worker.codec.strict:
        return make(function, args, kwargs, said=said), None
    span = _begin_span(recording, worker, to, RPCExecMode.REMOTE, name)
    # The box keeps the recording there; dropping its RRef frees it.
    box = make(_new_box, (), None)
    packed = (box, recording.options, function, args, kwargs)
    made = make(_run_boxed, packed, None, said=said or name)
    fetched = worker.outgoing.call(
        to, _content_of, (made, box), None, timeout, waits=False, said=said or name
    )
    return made, ProfiledCall(fetched, span)


def _begin_span(
    recording: Recording, worker: Worker, to: str | WorkerInfo, mode: RPCExecMode, name: str
) -> CallSpan:
    callee = to if isinstance(to, str) else to.name
    span = CallSpan(_build_rpc_profiling_key(mode, name, worker.name, callee), worker.id)
    recording.spans.append(span)
    return span


def _name_of(named: Any, said: str | None) -> str:
    """Return a function's name in profiles; `said` is its name in errors, if it has one."""
    if isinstance(named, str):
        return named
    builtin = torch.jit._builtins._find_builtin(named)  # type: ignore[no-untyped-call]
    if builtin is not None:
        return str(builtin)
    if isinstance(named, torch.jit.ScriptFunction):
        return str(torch._jit_internal._qualified_name(named))
    return said or str(getattr(named, "__qualname__", type(named).__qualname__))


@async_execution
def _run_profiled(
    options: Mapping[str, bool], function: Any, args: Any, kwargs: Any
) -> Future[Any]:
    """Run a function; answer with its result (or its future's value) and the recording."""
    result, recording = record(options, function, args, kwargs)
    node = current_worker().id
    outcome: Future[Any] = Future()
    if type(result) is CoroutineType:
        outcome = current_worker().incoming.coroutines.run(result)
    elif is_async_execution(function):
        outcome = result
    else:
        outcome.set_result(result)
    # Only when it is done, since calls that the function made may still be running.
    return outcome.then(lambda done: (done.value(), recording and recording.served(node)))


def _new_box() -> list[Served]:
    """Return an empty box for the recording of a value's creation."""
    return []


@async_execution
def _run_boxed(
    box: RRef, options: Mapping[str, bool], function: Any, args: Any, kwargs: Any
) -> Future[Any]:
    """Run a function whose result stays here; put the recording into the box."""

    def unpack(done: Future[Any]) -> Any:
        value, served = done.value()
        box.local_value().append(served)
        return value

    return _run_profiled(options, function, args, kwargs).then(unpack)


def _content_of(made: RRef, box: RRef) -> tuple[None, Served]:
    """Return the recording of a value's creation, once the value has been made."""
    made.local_value()
    return None, box.local_value()[0]
