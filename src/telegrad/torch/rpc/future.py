"""The future of a call as a ``torch.futures.Future``.

A program may wait for it here, hang callbacks on it, or give it to ``torch.futures.collect_all``,
which looks at it from C++. Waiting goes to the call, whose worker may read sockets in that time;
what C++ sees is settled by a callback of the call.

Invariant: C++ never holds an exception that was raised. Its traceback would lead to the thread that
waits, which holds the future: a circle through memory that Python's collector can't see.
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
    """Settled when the future of telegrad that it is made from is."""

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
        """Wait for the value and return it; raise the exception if it became one."""
        try:
            return self._call.wait()
        except BaseException as error:
            raise_as_torch(error)

    def done(self) -> bool:
        """Tell whether there is a value or an exception."""
        return self._call.done()

    def value(self) -> Any:
        """Return the value of a future that is done, or raise its exception."""
        try:
            return self._call.value()
        except BaseException as error:
            raise_as_torch(error)

    def set_result(self, result: Any) -> None:
        """Refuse: the call settles it."""
        raise RuntimeError("Future can only be marked completed once: by the call that it is of")

    def set_exception(self, result: Any) -> None:
        """Refuse as well, before torch's own would have changed how the value is looked at."""
        self.set_result(result)

    def then(self, callback: Any) -> Any:
        """Return the future of `callback(self)`, run when this is done, in the current context."""
        return super().then(_in_context(callback))

    def add_done_callback(self, callback: Any) -> None:
        """Call `callback(self)` when this is done, in the current context."""
        super().add_done_callback(_in_context(callback))


def _in_context(callback: Any) -> Any:
    if not callable(callback):
        # C++ says what is wrong with it.
        return callback
    context = contextvars.copy_context()
    return lambda done: context.run(callback, done)


def _set_error(future: Any, error: BaseException) -> None:
    """Settle a torch future with an exception that is made anew each time it is raised."""

    def give(template: Any) -> Any:
        raise _fresh(template)

    future._set_unwrap_func(give)
    future.set_result(_fresh(error))


def _fresh(error: BaseException) -> BaseException:
    """Return a copy without a traceback; a RuntimeError of the same words if that can't be."""
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
    """Return a future that has failed already."""
    call: Future[Any] = Future()
    call.set_exception(error)
    return CallFuture(call)


def outcome_of(torch_future: Any) -> Future[Any]:
    """Return a future of telegrad that is settled as the torch future is."""
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

    To C++ a call that failed is one whose value raises when it is looked at, so
    ``torch.futures.wait_all`` would wait for all others first.
    """
    if not any(isinstance(future, CallFuture) for future in futures):
        return cast(list[Any], _torch_wait_all(futures))
    outcomes = [outcome_of(future) for future in futures]
    ended: Future[Future[Any]] = Future()
    missing = [None] * len(outcomes)

    def look(done: Future[Any]) -> None:
        missing.pop()
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
    # If one has failed, that one alone is sure to be done.
    futures[outcomes.index(last)].wait()
    return [future.wait() for future in futures]


def install_wait_all() -> None:
    """Have ``torch.futures.wait_all`` do what `wait_all` does."""
    torch.futures.wait_all = wait_all
