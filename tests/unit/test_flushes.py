"""Waiting for records to end, and for how long."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer._accumulator import RecordAccumulator
from aioproducer._delivery_ledger import DeliveryLedger
from aioproducer.deadline import Deadline
from aioproducer.errors import FlushTimeoutError, ProducerClosedError
from aioproducer.failure_report import FailureReport
from aioproducer.flushes import Flushes
from aioproducer.metrics import ProducerMetrics
from tests.unit.core import LOGGER, add_topic, drain_all, end, make_accumulator, put


def flushes_of(accumulator: RecordAccumulator, begun: list[str]) -> Flushes:
    ledger = DeliveryLedger()
    ledger.loop = asyncio.get_running_loop()
    return Flushes(
        loop=asyncio.get_running_loop(),
        accumulator=accumulator,
        ledger=ledger,
        failures=FailureReport(ledger, None, LOGGER),
        metrics=ProducerMetrics(),
        on_begin=lambda: begun.append("begun"),
        unreachable_too=lambda: "; no broker can be reached: lost",
    )


async def test_a_flush_waits_for_what_was_there_when_it_began() -> None:
    accumulator, begun = make_accumulator(), []
    flushes = flushes_of(accumulator, begun)
    topic = add_topic(accumulator, leaders=(1, 2))
    put(accumulator, topic, partition=0)
    waiter = flushes.begin(accumulator.last_serial)
    assert begun == ["begun"]
    put(accumulator, topic, partition=1)
    flushes.progressed()
    assert not waiter.done()
    for batch in drain_all(accumulator):
        end(accumulator, batch)
    flushes.progressed()
    assert waiter.done()
    assert not flushes.waiters  # so that thousands of flushes do not look at each other's
    flushes.forget(waiter)


async def test_flushes_end_in_their_order() -> None:
    accumulator = make_accumulator()
    flushes = flushes_of(accumulator, [])
    topic = add_topic(accumulator, leaders=(1, 2))
    waiters = []
    for partition in 0, 1:
        put(accumulator, topic, partition=partition)
        waiters.append(flushes.begin(accumulator.last_serial))
    (first,), (second,) = drain_all(accumulator), drain_all(accumulator, 2)
    for batch, done in (second, [False, False]), (first, [True, True]):
        end(accumulator, batch)
        flushes.progressed()
        assert [waiter.done() for waiter in waiters] == done


async def test_a_flush_that_runs_out_of_time_leaves_nobody_waiting() -> None:
    accumulator = make_accumulator()
    flushes = flushes_of(accumulator, [])
    put(accumulator, add_topic(accumulator))
    with pytest.raises(FlushTimeoutError, match="ended after 0 s; they go on; no broker can be reached") as caught:
        await flushes.flush(Deadline(asyncio.get_running_loop(), 0))
    assert caught.value.pending == 1
    assert not flushes.waiters


@pytest.mark.parametrize("closing", [False, True])
async def test_a_flush_of_records_that_the_producer_gave_up(closing: bool) -> None:
    """close() does not report records that it failed itself, but a flush does."""
    accumulator = make_accumulator()
    flushes = flushes_of(accumulator, [])
    put(accumulator, add_topic(accumulator))
    flushing = asyncio.create_task(flushes.flush(Deadline(asyncio.get_running_loop(), None), closing=closing))
    await asyncio.sleep(0)
    flushes.cut_off()
    for batch in drain_all(accumulator):
        end(accumulator, batch)
    flushes.progressed()
    if closing:
        await flushing
    else:
        with pytest.raises(ProducerClosedError, match="before 1 records that the flush covers had ended") as caught:
            await flushing
        assert caught.value.maybe_written


class ComparedDeadline(Deadline):
    """A deadline that counts how often it is compared with another."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        ComparedDeadline.comparisons += 1
        return self is other


async def test_flushes_that_are_cancelled_do_not_look_at_each_other() -> None:
    """Thousands that a server cancels would hold the loop for seconds."""
    accumulator = make_accumulator()
    flushes = flushes_of(accumulator, [])
    put(accumulator, add_topic(accumulator))
    loop = asyncio.get_running_loop()
    waiting = [asyncio.create_task(flushes.flush(ComparedDeadline(loop, None))) for _ in range(10)]
    await asyncio.sleep(0)
    for task in reversed(waiting):
        task.cancel()
    await asyncio.wait(waiting)
    assert not flushes.waiters
    assert ComparedDeadline.comparisons == 0
