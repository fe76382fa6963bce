"""RRefs with the methods of ``torch.distributed.rpc.RRef``.

All references of a worker that this package's ``init_rpc`` made have this type, also those that
arrive in messages.
"""

from typing import Any

import torch
from torch.autograd.profiler import record_function

from telegrad.errors import CallTimeout, NotInitialized, PeerError
from telegrad.interop.torch.profile import THREAD, is_any_on
from telegrad.rpc.names import COUNTER_BITS, WorkerInfo, maker_of
from telegrad.rpc.references import rref as plain
from telegrad.rpc.references.rref import T_co
from telegrad.torch import autograd
from telegrad.torch.rpc import calls, constants, handlers
from telegrad.torch.rpc.failures import RpcTimeout, as_torch_raises
from telegrad.torch.rpc.future import CallFuture, failed
from telegrad.torch.rpc.internal import RPCExecMode
from telegrad.torch.rpc.profile import profiled_calls

_UNSET = constants.UNSET_RPC_TIMEOUT
_OF_COPIES = frozenset({"__deepcopy__", "__getstate__", "__setstate__"})
"""The names that Python looks up to copy or pickle an object: they concern the proxy itself."""


class RRef(plain.RRef[T_co]):
    """A reference to a value on some worker; ``RRef(value)`` refers to a value of this one."""

    __slots__ = ("_creation", "_patience", "_recorded", "_type")

    _creation: CallFuture
    _patience: float | None
    """The timeout of the value's creation."""
    _recorded: CallFuture
    """For a profiled creation: done when its recording has arrived."""
    _type: CallFuture

    def __init__(self, value: T_co, type_hint: Any = None) -> None:
        try:
            super().__init__(value)
        except NotInitialized as error:
            raise NotInitialized(
                "Current RPC agent is not set! Did you initialize the RPC framework, by calling "
                "init_rpc?"
            ) from error

    def __str__(self) -> str:
        if self._fork is None:
            return f"OwnerRRef({_id_text(self._rref)})"
        return f"UserRRef(RRefId = {_id_text(self._rref)}, ForkId = {_id_text(self._fork)})"

    def __reduce__(self) -> Any:
        raise RuntimeError(
            "Can not pickle rref in python pickler, rref can only be pickled when using RPC"
        )

    def local_value(self) -> T_co:
        """Return the value itself; only its owner may call this."""
        if self._fork is not None:
            raise RuntimeError(
                f"For {self}, can't call localValue() on user {_info_text(self._worker.info)}. "
                f"Call it on owner {_info_text(self.owner())}"
            )
        with as_torch_raises():
            return super().local_value()

    def to_here(self, timeout: float | None = _UNSET) -> T_co:
        """Return a copy of the value; on its owner, the value itself."""
        if self._worker.closed:
            raise NotInitialized(
                f"{self} belongs to a worker that has shut down. Cannot call to_here() on it after "
                "deletion."
            )
        seconds = self._worker.options.rpc_timeout if timeout in (None, _UNSET) else timeout
        self._check_creation()
        with as_torch_raises():
            if not is_any_on() or self._fork is None:
                return super().to_here(seconds)
            with record_function(f"to_here#({self._worker.name})->({self.owner().name})"):
                return super().to_here(seconds)

    def backward(self, dist_autograd_ctx_id: int = -1, retain_graph: bool = False) -> None:
        """Run a backward pass from the value, on its owner; without a context, a local pass."""
        if self._fork is None:
            autograd.backward_from_value(self.local_value(), dist_autograd_ctx_id, retain_graph)
            return
        if dist_autograd_ctx_id == -1:
            raise RuntimeError("User RRefs require 'dist_autograd_ctx_id' to be specified")
        args = (self, dist_autograd_ctx_id, retain_graph)
        with as_torch_raises():
            self._worker.outgoing.call(
                self.owner(),
                autograd.backward_on_owner,
                args,
                None,
                None,
                waits=True,
                said=f"backward of {self}",
            ).wait()

    def rpc_sync(self, timeout: float | None = _UNSET) -> "RRefProxy":  # type: ignore[override]
        """Return a proxy whose methods run on the owner and return their results."""
        return RRefProxy(self, "rpc_sync", timeout)

    def rpc_async(self, timeout: float | None = _UNSET) -> "RRefProxy":  # type: ignore[override]
        """Return a proxy whose methods run on the owner and return futures."""
        return RRefProxy(self, "rpc_async", timeout)

    def remote(self, timeout: float | None = _UNSET) -> "RRefProxy":  # type: ignore[override]
        """Return a proxy whose methods run on the owner and return RRefs."""
        return RRefProxy(self, "remote", timeout)

    def _get_type(self, timeout: float | None = _UNSET, blocking: bool = True) -> Any:
        """Return the value's type, or a future of it; the owner is asked once."""
        future: Any = getattr(self, "_type", None)
        if future is None:
            ask = (
                self._ask if THREAD.recording is None or self._fork is None else self._ask_profiled
            )
            future = self._type = ask(handlers.type_on_owner, f"the type of {self}", timeout)
        return future.wait() if blocking else future

    def _ask(self, function: Any, said: str, timeout: float | None) -> CallFuture:
        """Run a function of this RRef on the owner; `said` is the call's name in errors."""
        try:
            self._check()
            return CallFuture(
                self._worker.outgoing.call(
                    self.owner(), function, (self,), None, timeout, waits=False, said=said
                )
            )
        except PeerError as error:
            return failed(error)

    def _ask_profiled(self, function: Any, said: str, timeout: float | None) -> CallFuture:
        """Do what `_ask` does, as a profiled call with PyTorch's name."""
        sent: handlers.Prepared = (function, (self,), {}, said)
        to, mode = self.owner(), RPCExecMode.ASYNC
        try:
            self._check()
            return CallFuture(
                profiled_calls.call(self._worker, to, "_rref_typeof_on_owner", sent, timeout, mode)
            )
        except PeerError as error:
            return failed(error)

    def _get_profiling_future(self) -> CallFuture:
        """Return a future that is done when a profile can show the value's creation."""
        if not hasattr(self, "_recorded"):
            raise RuntimeError(
                f"expected {self} to be made by remote() while a profile of "
                "torch.autograd.profiler_legacy was on, got one that was not: make it inside of "
                "`with profile()`"
            )
        return self._recorded

    def _get_future(self) -> "torch._C.Future[Any]":
        """Return a future that is done when the value has been made, or its timeout is over."""
        made: Any = getattr(self, "_creation", None)
        if made is None:
            timeout = getattr(self, "_patience", None)
            made = self._creation = self._ask(
                handlers.wait_for_value, f"the value of {self}", timeout
            )
        future: torch._C.Future[Any] = made
        return future

    def _check_creation(self) -> None:
        """Raise RpcTimeout if `_get_future` has found that the value was not made in time."""
        made: Any = getattr(self, "_creation", None)
        error = made._call.exception() if made is not None and made.done() else None
        if isinstance(error, CallTimeout):
            raise RpcTimeout(
                f"RRef creation via rpc.remote() on {_info_text(self.owner())} timed out: {error}"
            )


class RRefProxy:
    """Calls methods of an RRef's value on its owner."""

    __slots__ = ("rpc_timeout", "rref", "verb")

    def __init__(self, rref: RRef, verb: str, timeout: float | None) -> None:
        self.rref = rref
        self.verb = verb
        self.rpc_timeout = timeout

    def __getattr__(self, name: str) -> Any:
        # The value is on another worker, so any name may be one of its methods.
        if name in _OF_COPIES:
            raise AttributeError(name)

        def method(*args: Any, **kwargs: Any) -> Any:
            verb = getattr(calls, self.verb)
            if self.verb == "remote":
                # Checked here: nobody waits for this call, so its error could go unseen.
                getattr(self.rref._get_type(self.rpc_timeout), name)
            packed = (self.rref, name, args, kwargs)
            return verb(self.rref.owner(), handlers.call_method, packed, None, self.rpc_timeout)

        method.__name__ = name
        return method


def _id_text(number: int) -> str:
    created_on, local_id = maker_of(number), number & ((1 << COUNTER_BITS) - 1)
    return f"GloballyUniqueId(created_on={created_on}, local_id={local_id})"


def _info_text(info: WorkerInfo) -> str:
    return f"WorkerInfo(id={info.id}, name={info.name})"
