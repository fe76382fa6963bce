"""A reference to a value that lives on one worker, its owner.

An RRef is a handle: the value is freed when the last handle in the cluster is gone. It can be sent
in arguments and results of calls, never in a plain pickle.
"""

import copy
import operator
from collections.abc import Callable
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Generic, NoReturn

from telegrad.errors import CallTimeout, TelegradError, Unserializable, UsageError, WorkerLost
from telegrad.rpc.calls.call import Call
from telegrad.rpc.calls.future import Future, Quick
from telegrad.rpc.calls.incoming import async_execution, is_async_execution
from telegrad.rpc.calls.request import current_request
from telegrad.rpc.current import current_worker
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.protocol.reference_table import ReferenceState
from telegrad.rpc.security.audit import audit
from telegrad.rpc.wire.functions import check_exposed_method, expose
from telegrad.rpc.wire.slots import Reference

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from telegrad.rpc.worker import Worker

    # A plain RRef refers to Any; `typing` itself has such defaults from Python 3.13 on.
    T_co = TypeVar("T_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    T_co = TypeVar("T_co", covariant=True)

# The names by which futures, and other libraries' references, call `to_here`.
_TO_HERE = ("get", "result", "value", "wait")


class RRef(Reference, Generic[T_co]):
    """A handle to a value of some worker. ``RRef(value)`` refers to a value of the current one.

    Examples:
        >>> reference = rpc.RRef([1, 2, 3])
        >>> rpc.rpc_sync("ps", lambda r: sum(r.to_here()), (reference,))
        6
    """

    __slots__ = ("__weakref__", "_fork", "_made_by", "_owner", "_rref", "_worker")

    _made_by: object
    """The function that makes the value, if this worker asked for it."""

    def __init__(self, value: T_co) -> None:
        worker = current_worker()
        self._set(worker, worker.info, worker.references.keep(value), None)

    @classmethod
    def handle(cls, worker: "Worker", owner: WorkerInfo, rref: int, fork: int | None) -> "RRef":
        """Return a handle to a fork or, at the owner, to the value; it is counted already."""
        self = cls.__new__(cls)
        self._set(worker, owner, rref, fork)
        return self

    def _set(self, worker: "Worker", owner: WorkerInfo, rref: int, fork: int | None) -> None:
        self._worker = worker
        self._owner = owner
        self._rref = rref
        # None at the owner, which counts its own handles without forks.
        self._fork = fork

    def __repr__(self) -> str:
        role = "owner" if self._fork is None else "user"
        return f"<{role} RRef {self._rref:#x} of {self._owner.name!r}{self._to()}>"

    def _to(self) -> str:
        """Return what this worker knows about the value, for the repr, without a message."""
        if self._fork is None:
            try:
                value = self._worker.references.value(self._rref)
            except TelegradError:
                return ", which is gone"
            if not value.done():
                return ", not there yet"
            if value._error is not None:
                return f", failed with {type(value._error).__qualname__}"
            return f" to {type(value._value).__qualname__}"
        made_by = getattr(self, "_made_by", None)
        if isinstance(made_by, type):
            return f" to {made_by.__qualname__}"
        name = getattr(made_by, "__qualname__", "")
        return f" to the result of {name}" if name else ""

    def __del__(self) -> None:
        worker = getattr(self, "_worker", None)
        if worker is not None:
            worker.references.release(self._rref, self._fork)

    def __reduce__(self) -> Any:
        raise Unserializable(
            "an RRef travels in the arguments and results of remote calls only: a pickle of it "
            "would not be counted"
        )

    def owner(self) -> WorkerInfo:
        """Return the worker that has the value."""
        return self._owner

    def owner_name(self) -> str:
        """Return the name of the worker that has the value."""
        return self._owner.name

    def is_owner(self) -> bool:
        """Say whether this worker has the value."""
        return self._fork is None

    def confirmed_by_owner(self) -> bool:
        """Say whether the owner counts this handle."""
        if self._fork is None:
            return True
        held = self._worker.references.held(self._fork)
        return held is not None and held.state is ReferenceState.CONFIRMED

    def local_value(self) -> T_co:
        """Return the value itself, on its owner; wait for it if it is being computed."""
        if self._fork is not None:
            raise UsageError(
                f"{self!r} has no local value on {self._worker.name!r}: use to_here() for a copy"
            )
        return self._own_value(None)

    def _own_value(self, timeout: float | None) -> T_co:
        value: Future[T_co] = self._worker.references.value(self._rref)
        if not value.done():
            value._wait(timeout)
        error = value.exception()
        if error is not None:
            raise _again(error)
        return value.value()

    def to_here(self, timeout: float | None = None) -> T_co:
        """Return a copy of the value; on its owner, the value itself."""
        if self._fork is None:
            worker, left = self._worker, None
            if timeout is not None:
                # 0 means for ever, as it does for calls.
                left = worker.outgoing.deadline(timeout) - worker.host.now()
            try:
                return self._own_value(left)
            except CallTimeout:
                if self._worker.references.value(self._rref).done():
                    raise
                raise self._too_late("the value", timeout) from None
        self._check()
        function: Any = fetch_value
        args: tuple[Any, ...] = (self._rref,)
        if self._worker.references.is_early(self._fork):
            # The owner may not know the reference yet; it learns of it when it is sent.
            function, args = fetch_value_of, (self,)
        try:
            fetched: T_co = self._worker.rpc_sync(self._owner, function, args, timeout=timeout)
            return fetched
        except (CallTimeout, WorkerLost) as error:
            if _has_been_told(error):
                raise
            raise self._told(error, "the value", timeout) from None

    def _check(self) -> None:
        """Raise if the owner, in the life that had the value, is known to be gone."""
        held = None if self._fork is None else self._worker.references.held(self._fork)
        if held is not None and held.state is ReferenceState.GONE:
            why = held.why_gone
            if why is not None and not isinstance(why, WorkerLost):
                raise _again(why)
            raise self._lost(why)

    def _told(
        self, error: CallTimeout | WorkerLost, what: str, timeout: float | None
    ) -> CallTimeout | WorkerLost:
        """Return an error of a call for this reference, worded in terms of the reference."""
        if isinstance(error, CallTimeout):
            return self._too_late(what, timeout)
        return self._lost(error)

    def _too_late(self, what: str, timeout: float | None) -> CallTimeout:
        seconds = self._worker.options.rpc_timeout if timeout is None else timeout
        return CallTimeout(
            f"{what} of {self!r} did not come from worker {self._owner.name!r} within {seconds:g} "
            "s: it may still be computed there; allow more time by timeout=, or see what keeps the "
            "worker busy"
        )

    def _lost(self, why: BaseException | None) -> WorkerLost:
        reason = "its owner is gone" if why is None else str(why)
        return WorkerLost(
            f"{self!r} leads to no value: {reason}; what that worker had is lost with it, make it "
            "again with remote()"
        )

    if not TYPE_CHECKING:  # or a type checker would take every name for known

        def __getattr__(self, name: str) -> NoReturn:
            said = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in _TO_HERE:
                said += f": write to_here(), or for one of its value rref.rpc_sync().{name}(...)"
            elif not name.startswith("_"):
                said += (
                    f": of its value write to_here().{name}, or for a method "
                    f"rref.rpc_sync().{name}(...)"
                )
            raise AttributeError(said)

    def backward(self, context_id: int = -1, retain_graph: bool = False) -> None:
        """Run a backward pass from the value, a scalar Tensor, on the worker that has it.

        With a context's id the pass is distributed, and the gradients are the context's; without
        one, the pass runs on the owner alone.
        """
        self._check()
        layer = self._worker.interceptor
        if layer is None:
            raise UsageError(
                f"worker {self._worker.name!r} was started without autograd: start it with "
                "telegrad.distributed.rpc.init_rpc or LocalCluster"
            )
        layer.backward_from(self, context_id, retain_graph)

    def rpc_sync(self, timeout: float | None = None) -> "RRefProxy":
        """Return a proxy whose methods run on the owner and return their results."""
        return RRefProxy(self, _call_sync, timeout)

    def rpc_async(self, timeout: float | None = None) -> "RRefProxy":
        """Return a proxy whose methods run on the owner and return futures."""
        return RRefProxy(self, _call_async, timeout)

    def remote(self, timeout: float | None = None) -> "RRefProxy":
        """Return a proxy whose methods run on the owner and return RRefs."""
        return RRefProxy(self, _create, timeout)


class RRefProxy:
    """A proxy that calls the value's methods on its owner."""

    __slots__ = ("_call", "_reference", "_timeout")

    def __init__(self, reference: RRef, call: Callable[..., Any], timeout: float | None) -> None:
        self._reference = reference
        self._call = call
        self._timeout = timeout

    def __repr__(self) -> str:
        return f"<{_VERBS[self._call]} proxy of {self._reference!r}>"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        # The value is elsewhere, so any name may be one of its methods.
        if name.startswith("__"):
            raise AttributeError(name)
        reference, call, timeout = self._reference, self._call, self._timeout

        def method(*args: Any, **kwargs: Any) -> Any:
            reference._check()
            packed = (reference, name, args, kwargs)
            try:
                return call(reference, packed, timeout)
            except (CallTimeout, WorkerLost) as error:
                if _has_been_told(error):
                    raise
                raise reference._told(error, f"the result of {name}()", timeout) from None

        method.__name__ = name
        return method


def _call_sync(reference: RRef, packed: tuple[Any, ...], timeout: float | None) -> Any:
    return reference._worker.rpc_sync(reference._owner, call_method, packed, timeout=timeout)


def _call_async(reference: RRef, packed: tuple[Any, ...], timeout: float | None) -> Call:
    said = f"{packed[1]}() of {reference!r}"
    return reference._worker.outgoing.call(
        reference._owner, call_method, packed, None, timeout, waits=False, said=said
    )


def _create(reference: RRef, packed: tuple[Any, ...], timeout: float | None) -> RRef:
    said = f"{packed[1]}() of {reference!r}"
    return reference._worker.outgoing.create(
        reference._owner, call_method, packed, None, timeout, said
    )


_VERBS = {_call_sync: "rpc_sync", _call_async: "rpc_async", _create: "remote"}


def _again(error: BaseException) -> BaseException:
    """Return a copy of an error that the tables keep, to be raised.

    If the error itself were raised, its traceback would hold frames, and these the handle whose
    release the tables wait for. An error that can't be copied faithfully is raised itself.
    """
    try:
        copied = copy.copy(error)
    except Exception:
        return error
    same = len(copied.args) == len(error.args) and all(map(operator.is_, copied.args, error.args))
    if type(copied) is not type(error) or not same:
        return error
    copied.__cause__ = error.__cause__
    copied.__suppress_context__ = error.__suppress_context__
    return copied.with_traceback(error.__traceback__)


def _has_been_told(error: CallTimeout | WorkerLost) -> bool:
    """Say whether the error needs no rewording.

    An error raised on the owner concerns the value and has the owner's traceback; one about a
    worker that could not be reached in time already names the worker, and the reason.
    """
    is_of_there = bool(getattr(error, "__notes__", None))
    return is_of_there or (isinstance(error, CallTimeout) and error.__cause__ is not None)


@expose
@async_execution
def fetch_value(rref: int) -> Future[Any]:
    """Answer a to_here."""
    return current_worker().references.value(rref)


@expose
@async_execution
def fetch_value_of(reference: RRef) -> Future[Any]:
    """Answer a to_here of a reference that may have arrived before its value's creation."""
    value = current_worker().references.value(reference._rref)
    if not value.done():
        # This may be the only reference: if it were freed, so would be the value's place, the
        # creation would fill another one, and this answer would never come.
        value.add_done_callback(Quick(partial(_let_go, reference)))
    return value


def _let_go(reference: RRef, _: Future[Any]) -> None:
    """Do nothing: the callback only holds the reference until the value is there."""


@expose
@async_execution
def call_method(reference: RRef, name: str, args: Any, kwargs: Any) -> Future[Any]:
    """Answer a call of a proxy's method."""
    value = reference.local_value()
    if current_worker().codec.strict:
        check_exposed_method(value, name)
        request = current_request.get()
        peer = None if request is None or request.endpoint is None else request.endpoint.peer.name
        said = f"{type(value).__module__}:{type(value).__qualname__}.{name}"
        audit("called", current_worker().name, peer=peer, function=said)
    method = getattr(value, name)
    result = method(*args, **kwargs)
    future: Future[Any]
    if type(result) is CoroutineType:
        future = current_worker().incoming.coroutines.run(result)
    elif is_async_execution(method):
        future = result
    else:
        future = Future()
        future.set_result(result)
    return future
