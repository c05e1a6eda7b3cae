"""flush, and what happens to failures that nobody observes."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from typing import Any

import pytest

from aioproducer import Delivery, DeliveryErrors, FlushTimeoutError, KafkaError, Producer, RecordTooLargeError
from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import new_topic, producer_of, until
from tests.broker.readers import read_values

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

LONG_LINGER: dict[str, Any] = {"linger_ms": 60_000, "delivery_timeout_ms": 120_000}
INVALID_RECORD = 87


class Failures:
    """The calls of ``on_error``."""

    def __init__(self) -> None:
        self.told: list[tuple[KafkaError, int]] = []

    def __call__(self, error: KafkaError, records: int) -> None:
        asyncio.get_running_loop()
        self.told.append((error, records))


async def picky_topic(kafka: KafkaCluster, partitions: int = 1) -> str:
    """A topic that refuses records without a key: one of them fails its whole batch."""
    return await new_topic(kafka, partitions, cleanup_policy="compact")


async def settle(producer: Producer) -> None:
    """Wait until nothing is pending, without observing any Delivery."""
    await until(
        lambda: producer.metrics()["producer-metrics"]["buffer-available-bytes"] == 32 << 20, "everything has ended"
    )
    await asyncio.sleep(0)


# --- flush ------------------------------------------------------------------------------------------------------------


async def test_flush_sends_everything_without_waiting_for_linger(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, 3)
    async with producer_of(kafka, **LONG_LINGER) as producer:
        deliveries = [await producer.submit(topic, b"value", partition=i % 3) for i in range(30)]
        await asyncio.wait_for(producer.flush(), 5)
        assert all(delivery.done() for delivery in deliveries)


async def test_flush_of_nothing_returns(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka) as producer:
        await producer.flush()
        await producer.flush(timeout=0)
        await producer.send(topic, b"value")
        await producer.flush(timeout=0)


async def test_flush_does_not_wait_for_records_that_come_later(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, 2)
    async with producer_of(kafka, **LONG_LINGER) as producer:
        before = await producer.submit(topic, b"before", partition=0)
        flushing = asyncio.create_task(producer.flush())
        await asyncio.sleep(0)
        after = [await producer.submit(topic, b"after", partition=i) for i in range(2)]
        await asyncio.wait_for(flushing, 5)
        assert before.done()
        assert not any(delivery.done() for delivery in after)


async def test_records_without_end_do_not_hold_flush_up(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    going = True
    async with producer_of(kafka, buffer_memory=1 << 20) as producer:

        async def submit_without_end() -> None:
            while going:
                await producer.submit(topic, bytes(1_000))

        submitting = asyncio.create_task(submit_without_end())
        await producer.submit(topic, b"first")
        for _ in range(5):
            await asyncio.wait_for(producer.flush(), 5)
        going = False
        await submitting


async def test_flush_timeout_tells_how_many_are_pending_and_drops_nothing(fragile_kafka: KafkaCluster) -> None:
    topic = await new_topic(fragile_kafka)
    async with producer_of(fragile_kafka, **LONG_LINGER) as producer:
        await producer.send(topic, b"0")
        fragile_kafka.pause(1)
        deliveries = [await producer.submit(topic, b"%d" % i) for i in range(1, 11)]
        began = time.monotonic()
        with pytest.raises(FlushTimeoutError) as caught:
            await producer.flush(timeout=0.2)
        assert 0.19 <= time.monotonic() - began < 5 * 0.2
        later = await producer.submit(topic, b"11")
        assert caught.value.pending == 10
        assert isinstance(caught.value, TimeoutError)
        with pytest.raises(FlushTimeoutError) as caught:
            await producer.flush(timeout=0)
        assert caught.value.pending == 11
        fragile_kafka.resume(1)
        await producer.flush()
        assert [delivery.result().offset for delivery in [*deliveries, later]] == list(range(1, 12))
    assert await read_values(fragile_kafka, topic) == [b"%d" % i for i in range(12)]


async def test_a_cancelled_flush_changes_nothing(fragile_kafka: KafkaCluster) -> None:
    topic = await new_topic(fragile_kafka)
    async with producer_of(fragile_kafka) as producer:
        await producer.send(topic, b"0")
        fragile_kafka.pause(1)
        delivery = await producer.submit(topic, b"1")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.flush(), 0.1)
        assert not delivery.done()
        fragile_kafka.resume(1)
        await producer.flush()
        assert delivery.result().offset == 1


# --- failures that nobody looked at -----------------------------------------------------------------------------------


async def test_flush_raises_failures_that_nobody_looked_at(
    kafka: KafkaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await picky_topic(kafka, 2)
    on_error = Failures()
    async with producer_of(kafka, on_error=on_error, **LONG_LINGER) as producer:
        for _ in range(10):
            await producer.submit(topic, b"secret", partition=0)
        kept = [await producer.submit(topic, b"secret", partition=1) for _ in range(5)]
        with caplog.at_level(logging.ERROR, logger="aioproducer"), pytest.raises(DeliveryErrors) as caught:
            await producer.flush()
        group = caught.value
        assert isinstance(group, KafkaError)
        assert isinstance(group, ExceptionGroup)
        assert group.record_count == 15
        assert sorted(error.record_count for error in group.exceptions) == [5, 10]  # type: ignore[attr-defined]
        assert {error.code for error in group.exceptions} == {INVALID_RECORD}  # type: ignore[attr-defined]
        assert all("record 0 of the batch: Compacted topic cannot" in str(error) for error in group.exceptions)
        assert not group.maybe_written
        await asyncio.sleep(0)
        assert sorted(records for _, records in on_error.told) == [5, 10]
        assert "records failed" in caplog.text
        assert "secret" not in caplog.text + repr(group.exceptions)
        assert all(delivery.exception() is not None for delivery in kept)
        del kept
        gc.collect()
        await producer.flush()  # failures are raised only once
        await asyncio.sleep(0)
        assert len(on_error.told) == 2


async def test_except_star_takes_the_group_apart(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, max_message_bytes=1_000)
    found: list[BaseException] = []
    try:
        async with producer_of(kafka) as producer:
            await producer.submit(topic, bytes(2_000))
    except* RecordTooLargeError as group:
        found.extend(group.exceptions)
    assert len(found) == 1


async def test_a_failure_is_given_to_on_error_without_any_flush(kafka: KafkaCluster) -> None:
    topic = await picky_topic(kafka)
    on_error = Failures()
    async with producer_of(kafka, on_error=on_error) as producer:
        for _ in range(7):
            producer_of_record = await producer.submit(topic, b"value")
            del producer_of_record
        await until(lambda: sum(records for _, records in on_error.told) == 7, "on_error was told of all 7")
        assert {error.code for error, _ in on_error.told} == {INVALID_RECORD}
        with pytest.raises(DeliveryErrors) as caught:
            await producer.flush()
        assert caught.value.record_count == 7


async def test_a_delivery_dropped_after_its_failure_is_reported_then(kafka: KafkaCluster) -> None:
    topic = await picky_topic(kafka)
    on_error = Failures()
    async with producer_of(kafka, on_error=on_error, **LONG_LINGER) as producer:
        looked_at = await producer.submit(topic, b"value")
        dropped = await producer.submit(topic, b"value")
        with pytest.raises(KafkaError):
            await producer.send(topic, b"value")
        await settle(producer)
        assert not on_error.told
        assert looked_at.exception() is not None
        del looked_at
        await asyncio.sleep(0)
        assert not on_error.told
        del dropped
        await until(lambda: on_error.told, "on_error was told")
        assert [records for _, records in on_error.told] == [1]
        with pytest.raises(DeliveryErrors) as caught:
            await producer.flush()
        assert caught.value.record_count == 1


async def test_whoever_looks_keeps_flush_silent(kafka: KafkaCluster) -> None:
    topic = await picky_topic(kafka)
    on_error = Failures()
    async with producer_of(kafka, on_error=on_error, **LONG_LINGER) as producer:
        awaited = await producer.submit(topic, b"value")
        called: list[Delivery] = []
        (await producer.submit(topic, b"value")).add_done_callback(called.append)
        waiting = asyncio.create_task(_error_of(awaited))
        sending = asyncio.create_task(_error_of(producer.send(topic, b"value")))
        await asyncio.sleep(0)
        await producer.flush()
        assert isinstance(await waiting, KafkaError)
        assert isinstance(await sending, KafkaError)
        await until(lambda: called, "the callback was called")
        assert called[0].exception() is not None
        asked = await producer.submit(topic, b"value")
        with pytest.raises(KafkaError):
            await producer.send(topic, b"value")
        assert asked.exception() is not None
        await producer.flush()
    assert not on_error.told


async def _error_of(awaitable: Any) -> BaseException | None:
    try:
        await awaitable
    except KafkaError as error:
        return error
    return None


async def test_flushes_at_the_same_time_all_report_it(kafka: KafkaCluster) -> None:
    topic = await picky_topic(kafka)
    async with producer_of(kafka, **LONG_LINGER) as producer:
        await producer.submit(topic, b"value")
        found = await asyncio.gather(*(producer.flush() for _ in range(3)), return_exceptions=True)
        assert [type(one) for one in found] == [DeliveryErrors] * 3
        assert [one.record_count for one in found] == [1, 1, 1]  # type: ignore[union-attr]
        await producer.flush()


async def test_a_flush_reports_only_what_it_covers(kafka: KafkaCluster) -> None:
    good, bad = await new_topic(kafka), await picky_topic(kafka)
    async with producer_of(kafka, **LONG_LINGER) as producer:
        await producer.submit(good, b"value")
        flushing = asyncio.create_task(producer.flush())
        await asyncio.sleep(0)
        await producer.submit(bad, b"value")
        await asyncio.wait_for(flushing, 5)
        with pytest.raises(DeliveryErrors):
            await producer.flush()


async def test_at_most_100_errors_and_a_total(kafka: KafkaCluster) -> None:
    topic = await picky_topic(kafka)
    on_error = Failures()
    async with producer_of(kafka, on_error=on_error, batch_size=0) as producer:
        for _ in range(150):
            await producer.submit(topic, b"each record is a batch")
        with pytest.raises(DeliveryErrors) as caught:
            await producer.flush()
        assert len(caught.value.exceptions) == 100
        assert caught.value.record_count == 150
        assert "150 records" in str(caught.value)
        await asyncio.sleep(0)
        assert sum(records for _, records in on_error.told) == 150


async def test_on_error_that_raises_disturbs_nobody(kafka: KafkaCluster, caplog: pytest.LogCaptureFixture) -> None:
    topic = await picky_topic(kafka)

    def wrong(error: KafkaError, records: int) -> None:
        raise ValueError("mine")

    async with producer_of(kafka, on_error=wrong) as producer:
        await producer.submit(topic, b"value")
        with pytest.raises(DeliveryErrors):
            await producer.flush()
        await asyncio.sleep(0)
        assert "on_error raised" in caplog.text
        await producer.send(topic, b"value", key=b"key")


async def test_a_bad_record_takes_down_its_batch_but_each_record_knows_why(kafka: KafkaCluster) -> None:
    """The broker refuses a batch as a whole and names the invalid records (KIP-467)."""
    topic = await picky_topic(kafka)
    async with producer_of(kafka, **LONG_LINGER) as producer:
        good = await producer.submit(topic, b"value", key=b"key")
        bad = await producer.submit(topic, b"value")
        bad_too = await producer.submit(topic, b"value")
        with pytest.raises(DeliveryErrors):
            await producer.flush()
        for delivery in (good, bad, bad_too):
            error = delivery.exception()
            assert isinstance(error, KafkaError)
            assert error.code == INVALID_RECORD
            assert not error.maybe_written
        assert "not among them" in str(good.exception())
        assert "refused the record" in str(bad.exception())
        # The sequence continues where it was: the next record is accepted at once.
        assert (await producer.send(topic, b"value", key=b"key")).offset == 0
