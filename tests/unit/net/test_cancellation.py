"""Whose cancellation an error is."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer.net.cancellation import is_own_cancellation


async def judged(future: asyncio.Future[None]) -> bool:
    """Whether what a future raises is this task's own cancellation."""
    try:
        await future
    except (Exception, asyncio.CancelledError) as error:
        return is_own_cancellation(error)
    raise AssertionError


async def test_the_tasks_own() -> None:
    task = asyncio.create_task(judged(asyncio.get_running_loop().create_future()))
    await asyncio.sleep(0)
    task.cancel()
    assert await task


async def test_that_of_what_the_task_awaited() -> None:
    """Two tasks await one future; the cancellation of the first cancels it for both."""
    shared: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    first, second = (asyncio.create_task(judged(shared)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await first
    assert not await second


async def test_a_timeout_that_ended_earlier_does_not_count() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await asyncio.Event().wait()
    assert not is_own_cancellation(asyncio.CancelledError())


async def test_another_error() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.set_exception(ZeroDivisionError())
    assert not await judged(future)


async def test_outside_of_a_task() -> None:
    """In a callback of the loop."""
    judgement: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(lambda: judgement.set_result(is_own_cancellation(asyncio.CancelledError())))
    assert not await judgement
