"""The event loop of a worker, which runs async handlers; made when the first of them comes.

It has a thread of its own, and each coroutine has the context variables of the call that it serves,
so the current worker and autograd's context are those of the call after an `await`, too. Answers
are sent from other threads: a peer that does not read never blocks the loop.
"""

import asyncio
import contextvars
import threading
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from telegrad.errors import NotInitialized
from telegrad.rpc.calls.future import Future
from telegrad.rpc.calls.request import Request, current_request
from telegrad.rpc.wire.failures import as_exception

if TYPE_CHECKING:
    from telegrad.rpc.worker import Worker


class Coroutines:
    """The coroutines that a worker runs for others."""

    def __init__(self, worker: "Worker") -> None:
        self._worker = worker
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._up = threading.Event()
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop
        self._end: asyncio.Event

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Start the coroutine in a copy of the current context; return the future of its value."""
        outcome: Future[Any] = Future()
        context = contextvars.copy_context()
        # It runs on another stack, so its calls must not be nested on the caller's waiting thread.
        context.run(current_request.set, Request(self._worker, None, 0, False))
        with self._lock:
            if self._is_closed:
                coroutine.close()
                raise self._ended()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=contextvars.Context().run,
                    args=(self._serve,),
                    name=f"telegrad-async-{self._worker.name}",
                    daemon=True,
                )
                self._thread.start()
            self._up.wait()
            self._loop.call_soon_threadsafe(self._start, coroutine, context, outcome)
        return outcome

    def close(self, timeout: float) -> None:
        """Cancel the coroutines that still run, and wait at most `timeout` seconds for them."""
        with self._lock:
            thread = self._thread
            if self._is_closed or thread is None:
                self._is_closed = True
                return
            self._is_closed = True
            self._loop.call_soon_threadsafe(self._end.set)
        if thread is not threading.current_thread():
            thread.join(timeout)

    def _serve(self) -> None:
        # When this ends, asyncio cancels the remaining tasks, and lets them clean up.
        asyncio.run(self._until_closed())

    async def _until_closed(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        self._up.set()
        await self._end.wait()

    def _start(
        self,
        coroutine: Coroutine[Any, Any, Any],
        context: contextvars.Context,
        outcome: Future[Any],
    ) -> None:
        task = self._loop.create_task(_guarded(coroutine), context=context)
        task.add_done_callback(partial(self._settle, outcome))

    def _settle(self, outcome: Future[Any], task: "asyncio.Task[Any]") -> None:
        if task.cancelled():
            error: BaseException | None = self._ended() if self._is_closed else _cancelled()
        else:
            error = task.exception()
        value = None if error is not None else task.result()
        settle = partial(outcome._settle, value, error)
        if not self._worker.host.start(settle):
            settle()

    def _ended(self) -> NotInitialized:
        return NotInitialized(
            f"worker {self._worker.name!r} was shut down before its async handler ended"
        )


async def _guarded(coroutine: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await coroutine
    except (KeyboardInterrupt, SystemExit) as error:
        # It must not end the loop, which serves other calls: see `as_exception`.
        raise as_exception(error) from error


def _cancelled() -> Exception:
    return as_exception(asyncio.CancelledError("the async handler was cancelled"))
