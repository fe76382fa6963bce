"""Functions decorated to run inside a scope: plain ones, generators, coroutines, async generators.

The scope of a generator is left at each ``yield`` and entered again when the generator goes on, so
the code that consumes it runs outside of the scope.
"""

import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, TypeAlias

from telegrad.errors import UsageError

Scopes: TypeAlias = Callable[[], AbstractContextManager[Any]]
"""Makes a new scope, not entered yet."""


def decorated(function: Callable[..., Any], scope: Scopes) -> Callable[..., Any]:
    """Return `function` as one that runs in a scope of its own at each call."""
    if inspect.isclass(function) or not callable(function):
        raise UsageError(
            f"expected a function to decorate, got {function!r}; decorate the methods of a class "
            "one by one"
        )
    if inspect.isasyncgenfunction(function):

        @wraps(function)
        def stepped_async(*args: Any, **options: Any) -> AsyncGenerator[Any, Any]:
            return _run_async_generator(function(*args, **options), scope)

        return stepped_async
    if inspect.isgeneratorfunction(function):

        @wraps(function)
        def stepped(*args: Any, **options: Any) -> Generator[Any, Any, Any]:
            return _run_generator(function(*args, **options), scope)

        return stepped
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def awaited(*args: Any, **options: Any) -> Any:
            with scope():
                return await function(*args, **options)

        return awaited

    @wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        with scope():
            return function(*args, **options)

    return called


def _run_generator(inner: Generator[Any, Any, Any], scope: Scopes) -> Generator[Any, Any, Any]:
    step: Callable[[], Any] = inner.__next__
    while True:
        try:
            with scope():
                item = step()
        except StopIteration as stop:
            return stop.value
        try:
            sent = yield item
        except GeneratorExit:
            with scope():
                inner.close()
            raise
        except BaseException as error:
            step = _bind(inner.throw, error)
        else:
            step = _bind(inner.send, sent)


async def _run_async_generator(
    inner: AsyncGenerator[Any, Any], scope: Scopes
) -> AsyncGenerator[Any, Any]:
    step: Callable[[], Any] = inner.__anext__
    while True:
        try:
            with scope():
                item = await step()
        except StopAsyncIteration:
            return
        try:
            sent = yield item
        except GeneratorExit:
            with scope():
                await inner.aclose()
            raise
        except BaseException as error:
            step = _bind(inner.athrow, error)
        else:
            step = _bind(inner.asend, sent)


def _bind(step: Callable[[Any], Any], value: Any) -> Callable[[], Any]:
    return lambda: step(value)
