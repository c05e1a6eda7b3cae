"""The load: every mode sends what it should, counts the results, and hides no wait."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from aioproducer import Producer
from aioproducer.cli.outcome import CommandError
from aioproducer.cli.perf import payloads
from aioproducer.cli.perf.load import Load, Mode
from aioproducer.testing import FakeCluster


def load_on(producer: Producer, mode: Mode, **values: Any) -> Load:
    options: dict[str, Any] = {"rate": None, "concurrency": 5, "chunk": 100, "transaction_s": None}
    return Load(producer, "t", payloads.random_letters(20, 4), mode=mode, **options | values)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("rate", [None, 5_000.0])
async def test_every_record_arrives_and_is_counted(mode: Mode, rate: float | None) -> None:
    with FakeCluster() as cluster:
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.partitions_for("t")
            stats = await load_on(producer, mode, rate=rate).run(1_003)
        assert (stats.sent, stats.acked, stats.failed) == (1_003, 1_003, 0)
        assert stats.acked_bytes == 1_003 * 24
        assert stats.latencies.count == 1_003
        records = cluster.records("t")
        assert len(records) == 1_003
        assert {len(each.value or b"") for each in records} == {20}


@pytest.mark.parametrize("mode", Mode)
async def test_a_second_run_goes_on_with_other_records(mode: Mode) -> None:
    """As after the warm-up."""
    with FakeCluster() as cluster:
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.partitions_for("t")
            load = load_on(producer, mode)
            assert (await load.run(300)).acked == 300
            load.reset()
            assert (await load.run(200)).acked == 200
        values = [each.value for each in cluster.records("t")]
        assert len(values) == len(set(values)) == 500


@pytest.mark.parametrize("mode", [Mode.SUBMIT_NOWAIT, Mode.SEND])
async def test_a_wait_shows_in_all_that_had_to_wait(mode: Mode) -> None:
    """The schedule continues while nothing is answered: latencies count from the time when a record was due."""
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        async with Producer(
            bootstrap_servers=cluster.bootstrap_servers, max_in_flight_requests_per_connection=1
        ) as producer:
            await producer.partitions_for("t")
            cluster.faults.delay("Produce", 400)
            stats = await load_on(producer, mode, rate=1_000.0, concurrency=1).run(300)
        assert stats.acked == 300
        # Without the schedule only the one record in flight would show it.
        (median_us,) = stats.latencies.percentiles([50])
        assert median_us > 100_000


@pytest.mark.parametrize("mode", Mode)
async def test_what_fails_is_counted_by_its_error(mode: Mode) -> None:
    with FakeCluster() as cluster:
        cluster.create_topic("t", configs={"max.message.bytes": 70})
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.partitions_for("t")
            stats = await load_on(producer, mode).run(50)
        assert (stats.sent, stats.acked, stats.failed) == (50, 0, 50)
        assert stats.errors == {"MESSAGE_TOO_LARGE": 50}
        assert stats.latencies.count == 0


@pytest.mark.parametrize("mode", Mode)
async def test_it_can_be_stopped(mode: Mode) -> None:
    with FakeCluster() as cluster:
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.partitions_for("t")
            load = load_on(producer, mode, rate=1_000.0)
            running = asyncio.create_task(load.run(1_000_000))
            while not load.stats.acked:
                await asyncio.sleep(0)
            load.stop()
            stats = await running
        assert stats.acked == stats.sent == len(cluster.records("t"))


@pytest.mark.parametrize("mode", Mode)
async def test_in_transactions(mode: Mode) -> None:
    with FakeCluster() as cluster:
        async with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="perf") as producer:
            await producer.partitions_for("t")
            stats = await load_on(producer, mode, rate=2_000.0, transaction_s=0.05).run(500)
        assert (stats.acked, stats.committed) == (500, 500)
        assert len(cluster.records("t", read_committed=True)) == 500


async def test_what_ends_the_producer_ends_the_load() -> None:
    with FakeCluster() as cluster:
        async with Producer(
            bootstrap_servers=cluster.bootstrap_servers, transactional_id="perf", enable_idempotence=True
        ) as producer:
            await producer.partitions_for("t")
            load = load_on(producer, Mode.SUBMIT, rate=2_000.0, transaction_s=0.05)
            running = asyncio.create_task(load.run(1_000_000))
            while not load.stats.committed:
                await asyncio.sleep(0)
            async with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="perf"):
                stats = await running
        assert load.trouble is not None
        assert stats.sent < 1_000_000


@pytest.mark.parametrize("rate", [None, 1_000.0])
async def test_a_topic_that_is_gone_ends_the_load(rate: float | None) -> None:
    with FakeCluster(auto_create_topics=False) as cluster:
        async with Producer(bootstrap_servers=cluster.bootstrap_servers, max_block_ms=500) as producer:
            load = load_on(producer, Mode.SUBMIT_NOWAIT, rate=rate)
            async with asyncio.timeout(30):
                stats = await load.run(10)
    assert stats.sent == 0
    assert load.trouble is not None
    assert "topic t are not known" in load.trouble
    assert "max_block_ms=500" in load.trouble


@pytest.mark.parametrize("mode", [Mode.SUBMIT, Mode.SEND, Mode.SEND_MANY])
async def test_a_topic_that_is_gone_ends_the_load_of_calls_that_wait_for_it(mode: Mode) -> None:
    """Each further record would wait for max_block_ms too."""
    with FakeCluster(auto_create_topics=False) as cluster:
        async with Producer(bootstrap_servers=cluster.bootstrap_servers, max_block_ms=500) as producer:
            load = load_on(producer, mode)
            async with asyncio.timeout(30):
                stats = await load.run(1_000)
    assert stats.sent == stats.failed < 1_000
    assert load.trouble is not None
    assert "topic t are not known" in load.trouble


async def test_a_topic_that_becomes_known_again_does_not() -> None:
    with FakeCluster(auto_create_topics=False) as cluster:
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            load = load_on(producer, Mode.SUBMIT_NOWAIT)
            running = asyncio.create_task(load.run(10))
            await asyncio.sleep(0)
            cluster.create_topic("t")
            async with asyncio.timeout(30):
                stats = await running
    assert load.trouble is None
    assert (stats.sent, stats.acked) == (10, 10)


# --- payloads ---------------------------------------------------------------------------------------------------------


def test_the_same_number_gives_the_same_record() -> None:
    one, other = payloads.random_letters(30, 5), payloads.random_letters(30, 5)
    assert [one(number) for number in range(100)] == [other(number) for number in range(100)]
    value, key = one(7)
    assert (len(value), len(key or b"")) == (30, 5)
    assert value.isalpha()
    assert value.isupper()
    assert payloads.random_letters(0, 0)(3) == (b"", None)


def test_pieces_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "payloads"
    path.write_text("a|b||c")
    make = payloads.from_file(path, "|", 0)
    assert {make(number)[0] for number in range(3)} == {b"a", b"b", b"c"}
    with pytest.raises(CommandError, match="can't be read"):
        payloads.from_file(tmp_path / "none", "|", 0)
    path.write_text("||")
    with pytest.raises(CommandError, match="no payloads"):
        payloads.from_file(path, "|", 0)


@pytest.mark.parametrize("mode", [Mode.SEND, Mode.SEND_MANY])
async def test_no_more_calls_at_a_time_than_records(mode: Mode) -> None:
    """A concurrency with too many digits would fill the memory with tasks."""
    tasks: list[int] = []

    def make(number: int) -> tuple[bytes, bytes | None]:
        tasks.append(len(asyncio.all_tasks()))
        return b"v", None

    with FakeCluster() as cluster:
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.partitions_for("t")
            load = load_on(producer, mode, concurrency=1_000)
            load._make = make
            stats = await load.run(10)
        assert stats.acked == 10
    assert max(tasks) < 100
