"""Async functions as handlers: they run on an event loop of the worker."""

import asyncio
import contextvars
import threading

import pytest
from tests.rpc.neighbours import neighbours

from telegrad.errors import NotInitialized, WorkerLost
from telegrad.rpc.api import rpc_async
from telegrad.rpc.current import current_worker
from telegrad.rpc.wire.failures import RemoteFailure

ASKED = contextvars.ContextVar("asked", default=0)


async def double(x):
    await asyncio.sleep(0)
    return 2 * x


async def fail():
    await asyncio.sleep(0)
    raise ValueError("not today")


async def leave():
    raise SystemExit(3)


async def cancel():
    raise asyncio.CancelledError


async def ask_others(x):
    there = [rpc_async(name, double, (x,)) for name in ("a", "b", "c")]
    return current_worker().name, sum(await asyncio.gather(*there))


async def own_variable(x):
    ASKED.set(ASKED.get() + x)
    await asyncio.sleep(0)
    return ASKED.get()


class Meeting:
    """Two that wait for each other: on one thread, or never."""

    def __init__(self):
        self._met = asyncio.Event()

    async def wait(self):
        await self._met.wait()
        return threading.get_ident()

    async def come(self):
        self._met.set()
        return threading.get_ident()


class Held:
    started = threading.Event()
    ended = threading.Event()


async def hold():
    Held.started.set()
    try:
        await asyncio.Event().wait()
    finally:
        Held.ended.set()


@pytest.fixture
def workers():
    with neighbours("a", "b", "c") as workers:
        yield workers


def test_an_async_function_is_run_and_its_value_the_answer(workers):
    a, _, _ = workers
    assert a.rpc_sync("b", double, (4,)) == 8
    assert a.rpc_async("b", double, (4,)).wait() == 8
    assert a.rpc_sync("a", double, (4,)) == 8


def test_what_an_async_function_raises_is_raised_with_its_traceback(workers):
    a, _, _ = workers
    with pytest.raises(ValueError, match="not today") as caught:
        a.rpc_sync("b", fail)
    assert "in fail" in "".join(caught.value.__notes__)


@pytest.mark.parametrize("function", [leave, cancel])
def test_an_async_function_that_would_end_its_loop_ends_itself_alone(workers, function):
    a, _, _ = workers
    with pytest.raises(RemoteFailure, match=r"SystemExit: 3|CancelledError"):
        a.rpc_sync("b", function)
    assert a.rpc_sync("b", double, (4,)) == 8


def test_an_async_function_awaits_calls_of_its_own(workers):
    a, _, _ = workers
    assert a.rpc_sync("b", ask_others, (1,)) == ("b", 6)


def test_a_remote_value_may_come_from_an_async_function(workers):
    a, _, _ = workers
    assert a.remote("b", double, (4,)).to_here() == 8
    with pytest.raises(ValueError, match="not today"):
        a.remote("b", fail).to_here()


def test_async_methods_of_a_value_run_on_one_loop(workers):
    a, _, _ = workers
    meeting = a.remote("b", Meeting)
    waiting = meeting.rpc_async().wait()
    assert meeting.rpc_sync().come() == waiting.wait()


def test_each_call_has_variables_of_its_own(workers):
    a, _, _ = workers
    calls = [a.rpc_async("b", own_variable, (i,)) for i in range(5)]
    assert [call.wait() for call in calls] == list(range(5))


def test_a_worker_that_shuts_down_lets_its_async_functions_clean_up():
    Held.started.clear()
    Held.ended.clear()
    with neighbours("a", "b") as (a, b):
        call = a.rpc_async("b", hold)
        assert Held.started.wait(10)
        b.close()
        assert Held.ended.is_set()
        with pytest.raises(WorkerLost):
            call.wait()
        with pytest.raises(NotInitialized, match="before its async handler ended"):
            b.incoming.coroutines.run(double(1))
