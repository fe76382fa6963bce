"""Awaiting a future from an event loop, also one that is gone when the answer comes."""

import asyncio

import pytest

from telegrad.rpc.future import Future


def test_a_loop_that_gave_up_and_closed_disturbs_nobody_when_the_answer_comes():
    future = Future()

    async def give_up():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_awaited(future), 0.001)

    asyncio.run(give_up())
    future.set_result(3)
    assert future.wait() == 3


async def _awaited(future):
    return await future
