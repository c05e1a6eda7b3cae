"""The calls of a producer's transactions, one after the other."""

from __future__ import annotations

import asyncio
import time

import pytest

from aioproducer.errors import KafkaError, ProducerClosedError, TransactionStateError, TransactionTimeoutError
from aioproducer.transaction.calls import SHARED, TransactionCalls
from tests.unit.core import LOGGER

CAUSE = KafkaError("why it takes so long")


def timed_out(name: str, began_ms: int) -> TransactionTimeoutError:
    error = TransactionTimeoutError(name)
    error.__cause__ = CAUSE
    return error


class Work:
    """The work of a call, which lasts until the test ends it."""

    def __init__(self) -> None:
        self.calls = TransactionCalls(
            loop=asyncio.get_running_loop(),
            timed_out=timed_out,
            cut_short=ProducerClosedError,
            on_end=lambda task: None,
            logger=LOGGER,
        )
        self.end: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def work(self) -> str:
        return await self.end

    async def left(self, name: str) -> asyncio.Task[str]:
        """A call that its caller has abandoned after a timeout."""
        with pytest.raises(TransactionTimeoutError, match=name) as caught:
            await self.calls.run(name, self.work(), 0)
        assert caught.value.__cause__ is CAUSE
        assert self.calls.latest is not None
        return self.calls.latest


def soon_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000) + 60_000


async def test_an_answer_that_came_while_the_loop_was_held_up_counts() -> None:
    """A call whose time has passed in a block of the loop goes on until what came meanwhile can have been read."""
    work = Work()
    loop = asyncio.get_running_loop()
    call = asyncio.create_task(work.calls.run("commit_transaction", work.work(), int(loop.time() * 1000) + 50))
    await asyncio.sleep(0)
    time.sleep(0.3)  # noqa: ASYNC251 - the block
    loop.call_later(0.02, work.end.set_result, "done")  # read some turns later
    assert await call == "done"


async def test_a_call_that_has_ended_is_nobody_s_any_more() -> None:
    work = Work()
    work.end.set_result("done")
    assert await work.calls.run("commit_transaction", work.work(), soon_ms()) == "done"
    assert work.calls.latest is None
    assert await work.calls.turn("commit_transaction", soon_ms()) is None


@pytest.mark.parametrize("name", sorted(SHARED))
async def test_the_end_of_a_call_that_was_left_belongs_to_the_same_call(name: str) -> None:
    work = Work()
    task = await work.left(name)
    work.end.set_result("done")
    assert await work.calls.turn(name, soon_ms()) is task
    assert task.result() == "done"
    assert work.calls.latest is None


@pytest.mark.parametrize("name", ["begin_transaction", "send_offsets_to_transaction"])
async def test_some_calls_are_made_again(name: str) -> None:
    """But a transaction can't begin twice, and other offsets make a different call."""
    work = Work()
    await work.left(name)
    work.end.set_result("done")
    assert await work.calls.turn(name, soon_ms()) is None


async def test_a_call_that_was_left_fails_before_another() -> None:
    """The other call only waits for its end, and leaves its error to its own caller."""
    work = Work()
    task = await work.left("commit_transaction")
    work.end.set_exception(TransactionStateError("no"))
    assert await work.calls.turn("abort_transaction", soon_ms()) is None
    assert work.calls.latest is task
    assert await work.calls.turn("commit_transaction", soon_ms()) is task
    assert isinstance(task.exception(), TransactionStateError)
    assert work.calls.latest is None


async def test_a_call_that_goes_on_is_waited_for_in_time() -> None:
    work = Work()
    task = await work.left("commit_transaction")
    for name in ("commit_transaction", "abort_transaction"):
        with pytest.raises(TransactionTimeoutError, match="commit_transaction"):
            await work.calls.turn(name, 0)
    assert work.calls.latest is task
    work.end.set_result("done")
    await work.calls.wait_for_latest(soon_ms())
    assert work.calls.latest is None
    await work.calls.wait_for_latest(0)


@pytest.mark.parametrize("name", ["commit_transaction", "abort_transaction"])
async def test_whoever_waits_for_a_call_that_is_cut_short_is_told(name: str) -> None:
    work = Work()
    task = await work.left("commit_transaction")
    waiting = asyncio.create_task(work.calls.turn(name, soon_ms()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(ProducerClosedError, match="commit_transaction"):
        await waiting


async def test_a_call_of_the_past_has_no_end_to_tell() -> None:
    """Once the next transaction has begun, the same call refers to that one."""
    work = Work()
    await work.left("commit_transaction")
    work.end.set_result("done")
    assert await work.calls.turn("begin_transaction", soon_ms()) is None
    work.calls.forget_latest()
    assert await work.calls.turn("commit_transaction", soon_ms()) is None
