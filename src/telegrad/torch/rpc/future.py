"""The future of a call as a ``torch.futures.Future``.

A program may wait for it, add callbacks, or pass it to ``torch.futures.collect_all``, which uses it
from C++. Python waits for the call itself, so the waiting thread may read its worker's sockets; for
C++, a callback of the call settles the torch future.

Invariant: C++ never holds an exception that was raised. Its traceback refers to the waiting
thread's frames, which hold the future: a cycle through C++ that Python's collector can't see.
"""

import contextvars
import copy
from collections.abc import Callable
from typing import Any, cast

import torch

from telegrad.rpc.calls.future import Future, Quick
from telegrad.torch.rpc.failures import as_torch, raise_as_torch

_Torch: Any = torch.futures.Future
_torch_wait_all: Any = torch.futures.wait_all


class CallFuture(_Torch):  # type: ignore[misc]
    """A torch future that is settled together with a telegrad future."""

    def __init__(self, call: Future[Any]) -> None:
        super().__init__()
        self._call = call
        call.add_done_callback(self._settle)

    def _settle(self, call: Future[Any]) -> None:
        error = call.exception()
        if error is None:
            super().set_result(call.value())
            return
        _set_error(super(), as_torch(error))

    def wait(self) -> Any:
        """Wait for the value and return it, or raise the call's exception."""
        try:
            return self._call.wait()
        except BaseException as error:
            raise_as_torch(error)

    def done(self) -> bool:
        """Tell whether the call has a value or an exception."""
        return self._call.done()

    def value(self) -> Any:
        """Return the value of a future that is done, or raise its exception."""
        try:
            return self._call.value()
        except BaseException as error:
            raise_as_torch(error)

    def set_result(self, result: Any) -> None:
        """Raise RuntimeError: only the call may settle this future."""
        raise RuntimeError("Future can only be marked completed once: by the call that it is of")

    def set_exception(self, result: Any) -> None:
        """Raise RuntimeError, before PyTorch's method would replace the unwrap function."""
        self.set_result(result)

    def then(self, callback: Any) -> Any:
        """Return a future of `callback(self)`, run in the current context once this is done."""
        return super().then(_in_context(callback))

    def add_done_callback(self, callback: Any) -> None:
        """Run `callback(self)` in the current context once this is done."""
        super().add_done_callback(_in_context(callback))


def _in_context(callback: Any) -> Any:
    if not callable(callback):
        # PyTorch's C++ raises the error.
        return callback
    context = contextvars.copy_context()
    return lambda done: context.run(callback, done)


def _set_error(future: Any, error: BaseException) -> None:
    """Settle a torch future with an exception that is copied each time it is raised."""

    def give(template: Any) -> Any:
        raise _fresh(template)

    future._set_unwrap_func(give)
    future.set_result(_fresh(error))


def _fresh(error: BaseException) -> BaseException:
    """Return a copy without a traceback; a RuntimeError with its text if it can't be copied."""
    try:
        made = copy.copy(error)
        if type(made) is not type(error):
            raise TypeError
    except Exception:
        made = RuntimeError(f"{type(error).__qualname__}: {error}")
    for note in getattr(error, "__notes__", ()):
        if note not in getattr(made, "__notes__", ()):
            made.add_note(note)
    return made.with_traceback(None)


def failed(error: BaseException) -> CallFuture:
    """Return a future that has already failed."""
    call: Future[Any] = Future()
    call.set_exception(error)
    return CallFuture(call)


def outcome_of(torch_future: Any) -> Future[Any]:
    """Return a telegrad future that is settled as the torch future is."""
    if isinstance(torch_future, CallFuture):
        return torch_future._call
    outcome: Future[Any] = Future()

    def settle(done: Any) -> None:
        try:
            outcome.set_result(done.value())
        except Exception as error:
            outcome.set_exception(error)

    cast(Callable[[Any], None], torch_future.add_done_callback)(settle)
    return outcome


def wait_all(futures: list[Any]) -> list[Any]:
    """Return the values of torch futures, in order; raise as soon as one of them has failed.

    PyTorch's own ``torch.futures.wait_all`` would wait for all others first: to C++ a failed call
    has a value, which raises when it is unwrapped.
    """
    if not any(isinstance(future, CallFuture) for future in futures):
        return cast(list[Any], _torch_wait_all(futures))
    outcomes = [outcome_of(future) for future in futures]
    ended: Future[Future[Any]] = Future()
    missing = set(map(id, outcomes))

    def look(done: Future[Any]) -> None:
        missing.discard(id(done))
        if done._error is not None or not missing:
            ended._settle(done, None)

    callback = Quick(look)
    for outcome in outcomes:
        outcome.add_done_callback(callback)
    try:
        last = ended.wait()
    finally:
        for outcome in outcomes:
            outcome._forget_callback(callback)
    # If one has failed, only that one is sure to be done: raise its error first.
    futures[outcomes.index(last)].wait()
    return [future.wait() for future in futures]


def install_wait_all() -> None:
    """Replace ``torch.futures.wait_all`` by `wait_all`."""
    torch.futures.wait_all = wait_all
