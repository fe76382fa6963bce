"""Awaiting a future from an event loop, also one that is gone when the answer comes."""

import asyncio

import pytest
from tests.rpc.inside import has_callbacks

from telegrad.rpc.calls.future import Future


def test_a_loop_that_gave_up_and_closed_disturbs_nobody_when_the_answer_comes():
    future = Future()

    async def give_up():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_awaited(future), 0.001)

    asyncio.run(give_up())
    future.set_result(3)
    assert future.wait() == 3


def test_a_loop_that_polls_a_future_leaves_nothing_at_it():
    future = Future()

    async def poll():
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(_awaited(future), 0.001)

    asyncio.run(poll())
    assert not has_callbacks(future)
    future.set_result(3)
    assert asyncio.run(_awaited(future)) == 3


async def _awaited(future):
    return await future
