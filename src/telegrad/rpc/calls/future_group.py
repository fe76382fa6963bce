"""Several futures at once: wait for all of them, or make one future of them.

A group is settled by the last of its futures, and to wait for the group is to wait for the first
future that is missing: so the waiting thread still reads its own answers.
"""

from collections.abc import Iterable
from typing import Any, TypeVar

from telegrad.errors import UsageError
from telegrad.rpc.calls.future import Future, Quick

T = TypeVar("T")


def wait_all(futures: Iterable[Future[T]], timeout: float | None = None) -> list[T]:
    """Wait for all; return their values in order, or raise the first exception in that order.

    Raises:
        CallTimeout: If one is not done within `timeout` seconds.

    Examples:
        >>> rpc.wait_all([rpc.rpc_async("ps", abs, (-n,)) for n in range(3)])
        [0, 1, 2]
    """
    futures = _checked(futures)
    if timeout is not None:
        together, count = _together(futures)
        try:
            together.wait(timeout)
        finally:
            for future in futures:
                future._forget_callback(count)
    for future in futures:
        if not future._done:
            future._wait(None)
    for future in futures:
        # Mark all failures as heard, as the program sees only the first.
        future.exception()
    return [future.value() for future in futures]


def collect_all(futures: Iterable[Future[T]]) -> Future[list[Future[T]]]:
    """Return the future of the list, which is done when all the futures are.

    To wait again, keep the future that this returned: each call makes a new one.

    Examples:
        >>> both = rpc.collect_all([rpc.rpc_async("ps", abs, (-n,)) for n in (1, 2)])
        >>> [done.wait() for done in both.wait()]
        [1, 2]
    """
    return _together(_checked(futures))[0]


def _together(futures: list[Future[T]]) -> tuple[Future[list[Future[T]]], Quick]:
    """Return the future of the list, and the callback that counts its futures."""
    together: Future[list[Future[T]]] = Future()
    # A wait for all may begin with the first that is missing.
    together._source = next((future for future in futures if not future._done), None)
    # No lock: two threads that both find it empty settle the group only once.
    missing = set(map(id, futures))

    def count(done: Future[T]) -> None:
        missing.discard(id(done))
        if not missing:
            together._settle(futures, None)

    callback = Quick(count)
    for future in futures:
        future.add_done_callback(callback)
    if not futures:
        together.set_result(futures)
    return together, callback


def _checked(futures: Any) -> "list[Future[Any]]":
    if not isinstance(futures, Iterable):
        kind = "a Future" if isinstance(futures, Future) else type(futures).__qualname__
        raise UsageError(f"expected a list of futures, got {kind}: write [future, ...]")
    listed = list(futures)
    for index, future in enumerate(listed):
        if not isinstance(future, Future):
            raise UsageError(
                f"expected futures, as rpc_async returns, got {type(future).__qualname__} at "
                f"position {index}"
            )
    return listed
