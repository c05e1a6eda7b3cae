"""Thousands of calls to the cluster, a few at a time."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer.errors import KafkaError, TransactionTimeoutError
from aioproducer.spark.in_turn import AT_ONCE, all_in_turn, in_turn

MANY = range(10 * AT_ONCE)


class Calls:
    """Calls that end when they are told to."""

    def __init__(self) -> None:
        self.begun: dict[int, asyncio.Future[str]] = {}

    async def __call__(self, number: int) -> str:
        self.begun[number] = asyncio.get_running_loop().create_future()
        return await self.begun[number]

    async def of(self, number: int) -> asyncio.Future[str]:
        """The call about a number, which must begin within a few turns of the loop."""
        for _ in range(5):
            if number in self.begun:
                break
            await asyncio.sleep(0)
        return self.begun[number]


async def test_a_call_begins_when_an_earlier_one_has_ended() -> None:
    calls = Calls()
    ends = asyncio.ensure_future(in_turn(calls, MANY))
    for number in MANY:
        call = await calls.of(min(number + AT_ONCE, len(MANY)) - 1)
        assert list(calls.begun) == list(MANY[: number + AT_ONCE])
        assert not call.done()
        calls.begun[number].set_result(f"end of {number}")
    assert await ends == [f"end of {number}" for number in MANY]


async def test_an_error_holds_up_nothing() -> None:
    async def call(number: int) -> int:
        if number % 2:
            raise KafkaError(f"odd: {number}")
        return number

    ends = await in_turn(call, MANY)
    assert [str(end) if number % 2 else end for number, end in zip(MANY, ends, strict=True)] == [
        f"odd: {number}" if number % 2 else number for number in MANY
    ]
    with pytest.raises(KafkaError, match=r"odd: 1$"):
        await all_in_turn(call, MANY)
    assert await all_in_turn(call, MANY[::2]) == list(MANY[::2])


async def test_none_begins_once_one_is_out_of_time() -> None:
    begun = []

    async def call(number: int) -> None:
        begun.append(number)
        await asyncio.sleep(0)
        if number == 1:
            raise TransactionTimeoutError("the cluster is away")

    ends = await in_turn(call, MANY)
    assert begun == list(MANY[: len(begun)])
    assert len(begun) <= 2 * AT_ONCE
    assert ends[0] is None
    assert {str(end) for end in ends[len(begun) :]} == {"the cluster is away"}


async def test_it_ends_with_a_worker_that_dies() -> None:
    class Death(BaseException):
        pass

    async def call(number: int) -> None:
        raise Death

    with pytest.raises(Death):
        await in_turn(call, MANY)


async def test_none_at_all() -> None:
    assert await all_in_turn(Calls(), []) == []
