"""A task's rows through a producer: order, results, bad rows and dead letters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import datetime

import pyarrow
import pytest
from pyspark.sql import Row

from aioproducer import Producer, Record
from aioproducer.records import TopicPartition
from aioproducer.spark.chunks import ArrowChunk, Chunk, RowChunk, arrow_chunks, row_chunks
from aioproducer.spark.columns import Columns
from aioproducer.spark.errors import SparkWriteError
from aioproducer.spark.marking import TaskAudit
from aioproducer.spark.options import SinkOptions
from aioproducer.spark.sending import TaskSend
from aioproducer.testing.fake import FakeCluster


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as fake:
        yield fake


@pytest.fixture
async def producer(cluster: FakeCluster) -> AsyncIterator[Producer]:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, buffer_memory=200_000, batch_size=16_384) as one:
        yield one


def options(**more: str) -> SinkOptions:
    return SinkOptions.parse({"kafka.bootstrap.servers": "x:1", "topic": "t", **more})


def values(cluster: FakeCluster, topic: str = "t") -> list[bytes | None]:
    return [record.value for record in cluster.records(topic, 0)]


def numbered(first: int, count: int, size: int = 100) -> RowChunk:
    return RowChunk([Record(str(number).encode().ljust(size)) for number in range(first, first + count)])


async def put_and_finish(send: TaskSend, *chunks: Chunk) -> None:
    for chunk in chunks:
        await send.put(chunk)
    await send.finish()


async def test_rows_keep_their_order_over_chunks_and_backpressure(cluster: FakeCluster, producer: Producer) -> None:
    """Twenty times the buffer's size, with as many chunks in flight as the buffer admits."""
    send = TaskSend(producer, options(), 0)
    for first in range(0, 40_000, 1_000):
        await send.put(numbered(first, 1_000))
    outcome = await send.finish()
    assert [int(value or b"") for value in values(cluster)] == list(range(40_000))
    assert (outcome.records, outcome.bytes, outcome.dead_letters) == (40_000, 4_000_000, 0)
    assert outcome.offsets == {TopicPartition("t", 0): [(0, 39_999)]}


async def test_a_chunk_is_taken_while_others_wait_for_their_acknowledgement(
    cluster: FakeCluster, producer: Producer
) -> None:
    send = TaskSend(producer, options(), 0)
    await producer.send("t", b"first")
    cluster.remove_leader("t")
    for first in (0, 100, 200):
        await asyncio.wait_for(send.put(numbered(first, 100)), 10)
    cluster.elect_leaders()
    assert (await send.finish()).records == 300


@pytest.mark.parametrize("way", ["rows", "arrow"])
async def test_a_task_waits_once_for_partitions_that_are_missing(cluster: FakeCluster, way: str) -> None:
    """Each chunk of a wrongly computed column ``partition`` has such rows, and a wait takes up to a minute."""
    cluster.create_topic("t", 2)
    cluster.create_topic("dead")
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        send = TaskSend(producer, options(deadLetterTopic="dead"), 0)
        await producer.partitions_for("t")
        await producer.partitions_for("dead")
        producer._config = replace(producer._config, max_block_ms=100)
        engine = producer._running_engine()
        waits: list[int | None] = []
        wait_for_topic = engine.wait_for_topic

        async def wait(topic: str, partition: int | None, deadline_ms: int) -> None:
            if deadline_ms > engine.now_ms():
                waits.append(partition)
            await wait_for_topic(topic, partition, deadline_ms)

        engine.wait_for_topic = wait  # type: ignore[method-assign]
        for first in range(3):
            given = [Record(b"v", partition=number) for number in range(first, first + 4)]
            if way == "rows":
                await send.put(RowChunk(given))
            else:
                columns = {"value": [b"v"] * 4, "partition": pyarrow.array(range(first, first + 4), pyarrow.int32())}
                await send.put(ArrowChunk(pyarrow.record_batch(columns)))
        outcome = await send.finish()
    assert (outcome.records, outcome.dead_letters) == (3, 9)
    assert waits == [2]


async def test_nothing_to_write(producer: Producer) -> None:
    assert (await TaskSend(producer, options(), 0).finish()).records == 0


async def test_a_bad_row_fails_the_task_and_says_which(producer: Producer) -> None:
    send = TaskSend(producer, options(), 4)
    await send.put(numbered(0, 10))
    with pytest.raises(SparkWriteError, match=r"row 12 of partition 4: RecordTooLargeError: .*option deadLetterTopic"):
        await put_and_finish(send, RowChunk([Record(b"a"), Record(b"b"), Record(b"x" * 2_000_000)]))


@pytest.mark.parametrize("way", ["arrow", "rows"])
async def test_the_row_that_the_broker_refused_is_named_not_the_first_of_its_batch(
    cluster: FakeCluster, way: str
) -> None:
    """The others of the batch failed only because of it, and may be more than a call reports to a program."""
    cluster.create_topic("t", configs={"cleanup.policy": "compact"})
    keys = [None if number in (1_500, 1_600) else b"k" for number in range(2_000)]
    columns = {"key": pyarrow.array(keys, pyarrow.binary()), "value": pyarrow.array([b"v"] * len(keys))}
    chunk: Chunk = RowChunk([Record(b"v", key) for key in keys])
    if way == "arrow":
        chunk = ArrowChunk(pyarrow.RecordBatch.from_pydict(columns))
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        with pytest.raises(
            SparkWriteError, match=r"^row 1500 of partition 4 \(2,000 rows of 2,000 failed\): "
        ) as caught:
            await put_and_finish(TaskSend(producer, options(), 4), chunk)
    assert "the broker refused the record" in str(caught.value)


@pytest.mark.parametrize("chunks", [1, 30])
@pytest.mark.parametrize("more", [{}, {"deadLetterTopic": "dead"}], ids=["no dead letters", "dead letters"])
async def test_a_row_that_the_broker_refuses_in_a_transaction(
    cluster: FakeCluster, more: dict[str, str], chunks: int
) -> None:
    """It can't become a dead letter of that transaction, so the error names the row, and does not advise that.

    Later rows fail as well, some before that one is known.
    """
    cluster.create_topic("t", configs={"cleanup.policy": "compact"})
    sink = options(**{"transactional.id.prefix": "p", "transactionLog": "/log"}, **more)
    configs = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "p-1", "batch.size": 16_384}
    rows = [Record(b"v" * 100, None if number == 900 else b"k") for number in range(1_000 * chunks)]
    async with Producer.from_config({**configs, "buffer.memory": 200_000}) as producer:
        await producer.begin_transaction()
        send = TaskSend(producer, sink, 0)
        with pytest.raises(SparkWriteError, match=r"^row 900 of partition 0 .*: InvalidRecordError") as caught:
            await put_and_finish(send, *(RowChunk(rows[first : first + 1_000]) for first in range(0, len(rows), 1_000)))
        assert str(caught.value).endswith("; no row that a broker refuses can become a dead letter in a transaction")
        await send.cancel()
        await producer.abort_transaction()


HEADERS = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))
TYPES = {"value": pyarrow.string(), "topic": pyarrow.string(), "partition": pyarrow.int32(), "headers": HEADERS}
TYPES["timestamp"] = pyarrow.timestamp("us", "UTC")


def chunk_of(way: str, row: dict[str, object], audit: TaskAudit | None = None) -> Chunk:
    """A good row and one with these columns, as columns or row by row."""
    rows = [{"value": "good", **dict.fromkeys(row), "topic": "t"}, {"value": "v", "topic": "t", **row}]
    columns = Columns(frozenset(rows[0]))
    if way == "rows":
        (chunk,) = row_chunks([Row(**one) for one in rows], columns, audit)
        return chunk
    arrays = {name: pyarrow.array([one[name] for one in rows], TYPES[name]) for name in rows[0]}
    (batch,) = arrow_chunks([pyarrow.record_batch(arrays)], columns, None, audit)
    return batch


@pytest.mark.parametrize("way", ["rows", "arrow"])
@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"topic": None}, r"SerializationError: column topic is null, and there is no option topic"),
        ({"topic": "no topic"}, r"InvalidTopicError: .*'?no topic"),
        ({"partition": 7}, r"MetadataTimeoutError: topic t has 1 partitions and no partition 7 .*max_block_ms"),
        ({"partition": -1}, r"SerializationError: .*partition -1 of a record for topic 't' is outside 0"),
        ({"headers": [None]}, r"SerializationError: column headers: a header .*'t' is null or has no name"),
        ({"headers": [(None, b"1")]}, r"SerializationError: column headers: a header .*'t' is null or has no name"),
        ({"timestamp": datetime(1969, 1, 1)}, r"SerializationError: .*timestamp.* is outside 0 to 2\^63-1"),
        ({"value": "x" * 2_000_000}, r"RecordTooLargeError: .*topic 't' takes up to 2,000,\d+ .*max_request_size"),
    ],
    ids=["no topic", "invalid topic", "no partition", "negative", "no header", "no name", "1969", "large"],
)
async def test_a_bad_row_is_told_by_its_columns_on_either_way(
    cluster: FakeCluster, row: dict[str, object], told: str, way: str
) -> None:
    """The error says what is wrong, where, and which config matters."""
    chosen = SinkOptions.parse({"kafka.bootstrap.servers": "x:1"})
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, max_block_ms=1_000) as producer:
        send = TaskSend(producer, chosen, 4)
        with pytest.raises(SparkWriteError, match=rf"^row 1 of partition 4: {told}.*; the option deadLetterTopic has"):
            await put_and_finish(send, chunk_of(way, row))


@pytest.mark.parametrize("audited", [False, True])
@pytest.mark.parametrize("way", ["rows", "arrow"])
async def test_a_row_without_a_topic_becomes_a_dead_letter(
    cluster: FakeCluster, producer: Producer, way: str, audited: bool
) -> None:
    chosen = SinkOptions.parse({"kafka.bootstrap.servers": "x:1", "deadLetterTopic": "dead"})
    audit = TaskAudit("p", "a", None) if audited else None
    await put_and_finish(TaskSend(producer, chosen, 0, audit), chunk_of(way, {"topic": None}, audit))
    assert values(cluster) == [b"good"]
    (letter,) = cluster.records("dead", 0)
    headers = dict(letter.headers)
    assert b"column topic is null, and there is no option topic" in (headers["aioproducer.error.message"] or b"")
    assert not headers.keys() & {"aioproducer.topic", "aioproducer.audit"}


async def test_bad_rows_become_dead_letters(cluster: FakeCluster, producer: Producer) -> None:
    send = TaskSend(producer, options(deadLetterTopic="dead"), 4)
    large = Record(b"x" * 2_000_000, b"key", headers=[("h", b"1")])
    await send.put(RowChunk([Record(b"a"), large, Record(b"b"), Record(b"c", topic="no topic")]))
    await send.put(RowChunk([Record(b"d")]))
    outcome = await send.finish()
    assert values(cluster) == [b"a", b"b", b"d"]
    assert (outcome.records, outcome.bytes, outcome.dead_letters) == (3, 3, 2)
    assert outcome.offsets == {TopicPartition("t", 0): [(0, 2)], TopicPartition("dead", 0): [(0, 1)]}
    cut, named = cluster.records("dead", 0)
    assert (cut.value, cut.key) == (b"x" * 65_536, b"key")
    headers = dict(cut.headers)
    assert headers["aioproducer.error"] == b"RecordTooLargeError"
    assert headers["aioproducer.row"] == b"4:1"
    assert headers["aioproducer.bytes"] == b"3:2000000"
    assert named.value == b"c"
    assert dict(named.headers)["aioproducer.topic"] == b"no topic"


@pytest.mark.parametrize("timestamp_ms", [-1_000, 2**62], ids=["before 1970", "in the far future"])
async def test_a_timestamp_that_no_topic_takes_becomes_a_header(
    cluster: FakeCluster, producer: Producer, timestamp_ms: int
) -> None:
    """A dead-letter topic has the same limits, so dead letters get the time at which they are written."""
    for name in ("t", "dead"):
        cluster.create_topic(name, configs={"message.timestamp.after.max.ms": 3_600_000})
    send = TaskSend(producer, options(deadLetterTopic="dead"), 0)
    before_ms = int(time.time() * 1000)
    await put_and_finish(send, RowChunk([Record(b"good"), Record(b"bad", timestamp_ms=timestamp_ms)]))
    assert values(cluster) == [b"good"]
    (letter,) = cluster.records("dead", 0)
    assert dict(letter.headers)["aioproducer.timestamp"] == str(timestamp_ms).encode()
    assert before_ms <= letter.timestamp_ms <= int(time.time() * 1000)


async def test_dead_letters_without_a_place_fail_the_task(producer: Producer) -> None:
    send = TaskSend(producer, replace(options(), dead_letter_topic="no topic"), 0)
    with pytest.raises(SparkWriteError, match=r"row 0 of partition 0 \(as a dead letter\): InvalidTopicError"):
        await put_and_finish(send, RowChunk([Record(b"x" * 2_000_000)]))


async def test_many_dead_letters_take_few_requests(cluster: FakeCluster, producer: Producer) -> None:
    """What is wrong with one row may be wrong with all of them; more than fit into the buffer at once."""
    cluster.create_topic("dead")
    requests = cluster.faults.delay("Produce", 1, times=None, topic="dead")
    send = TaskSend(producer, options(deadLetterTopic="dead"), 0)
    await put_and_finish(send, RowChunk([Record(b"v" * 100, topic="no topic") for _ in range(1_000)]))
    rows = [dict(letter.headers)["aioproducer.row"] for letter in cluster.records("dead")]
    assert rows == [f"0:{number}".encode() for number in range(1_000)]
    assert requests.struck < 100


async def test_the_dead_letter_that_the_broker_refused_is_named(cluster: FakeCluster, producer: Producer) -> None:
    """Not others of its batch."""
    cluster.create_topic("dead", configs={"cleanup.policy": "compact"})
    send = TaskSend(producer, options(deadLetterTopic="dead"), 0)
    rows = [Record(b"v", None if number == 7 else b"k", topic="no topic") for number in range(20)]
    with pytest.raises(SparkWriteError, match=r"^row 7 of partition 0 \(as a dead letter\): InvalidRecordError"):
        await put_and_finish(send, RowChunk(rows))


async def test_a_task_that_gives_up_leaves_the_producer_usable(cluster: FakeCluster, producer: Producer) -> None:
    send = TaskSend(producer, options(), 0)
    await producer.send("t", b"first")
    cluster.remove_leader("t")
    await send.put(numbered(0, 10))
    await send.cancel()
    cluster.elect_leaders()
    await producer.send("t", b"last")
    assert values(cluster)[-1] == b"last"
    assert len(values(cluster)) == 12


@pytest.mark.parametrize("version", ["4.3", "2.1"])
async def test_rows_that_share_a_batch_with_a_bad_one_are_written(version: str) -> None:
    """The broker refuses whole batches, which hold rows of several chunks; each bad row is found among them.

    Before Kafka 2.4 it does not tell which it is.
    """
    with FakeCluster(version=version) as cluster:
        cluster.create_topic("t", configs={"cleanup.policy": "compact"})
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            send = TaskSend(producer, options(deadLetterTopic="dead"), 0)
            bad = {3, 104, 105, 299}
            for first in (0, 100, 200):
                keys = [None if number in bad else str(number).encode() for number in range(first, first + 100)]
                await send.put(RowChunk([Record(b"v", key) for key in keys]))
            outcome = await send.finish()
        assert sorted(int(record.key or b"") for record in cluster.records("t", 0)) == sorted(set(range(300)) - bad)
        letters = {dict(record.headers)["aioproducer.row"] for record in cluster.records("dead", 0)}
    assert letters == {f"0:{number}".encode() for number in bad}
    assert (outcome.records, outcome.dead_letters) == (296, 4)


async def test_rows_of_which_the_broker_tells_that_they_are_bad_take_few_requests(cluster: FakeCluster) -> None:
    """Since Kafka 2.4 it names the records at fault, so nobody has to look for them."""
    cluster.create_topic("t", configs={"cleanup.policy": "compact"})
    requests = cluster.faults.delay("Produce", 1, times=None, topic="t")
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        send = TaskSend(producer, options(deadLetterTopic="dead"), 0)
        rows = [Record(b"v", None if number % 2 else str(number).encode()) for number in range(1_000)]
        await put_and_finish(send, RowChunk(rows))
    assert [int(record.key or b"") for record in cluster.records("t")] == list(range(0, 1_000, 2))
    places = [dict(record.headers)["aioproducer.row"] for record in cluster.records("dead")]
    assert places == [f"0:{number}".encode() for number in range(1, 1_000, 2)]
    assert requests.struck < 20


async def test_brokers_that_go_away_while_bad_rows_are_looked_for(cluster: FakeCluster) -> None:
    """The task fails then, rather than after a wait for each of the rows that shared a batch with a bad one."""
    cluster.create_topic("t", configs={"cleanup.policy": "compact"})
    hurried = {"request_timeout_ms": 500, "delivery_timeout_ms": 500, "linger_ms": 0}
    lost = cluster.faults.swallow("Produce", times=None, skip=1)
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, **hurried) as producer:
        send = TaskSend(producer, options(deadLetterTopic="dead"), 0)
        rows = [Record(b"v", None if number == 7 else b"k") for number in range(20)]
        with pytest.raises(SparkWriteError, match=r"^row \d+ of partition 0: DeliveryTimeoutError: "):
            await put_and_finish(send, RowChunk(rows))
    assert lost.struck < 10


async def test_an_audit_hears_what_became_of_the_rows(cluster: FakeCluster, producer: Producer) -> None:
    """Dead letters are stated as failed, and have no mark, because marks count records of another topic."""
    audit = TaskAudit("p", "a", "t", clock=lambda: 7.5)
    send = TaskSend(producer, options(deadLetterTopic="dead"), 0, audit)
    for rows in ([b"a", b"b" * 2_000_000, b"c"], [b"d"]):
        await send.put(RowChunk(*audit.mark_records([Record(value, headers=[("h", b"1")]) for value in rows])))
    await send.finish()
    marks = [dict(record.headers)["aioproducer.audit"] for record in cluster.records("t")]
    assert marks == [b"p;a;0;7500", b"p;a;2;7500", b"p;a;3;7500"]
    (letter,) = cluster.records("dead")
    assert "aioproducer.error" in dict(letter.headers)
    assert "aioproducer.audit" not in dict(letter.headers)
    (line, _) = audit.statement()
    assert line["runs"] == [[0, 0, 7, None], [1, 1, 7, -1], [2, 3, 7, None]]
    assert (line["next"], line["acked"], line["failed"]) == (4, [[0, 7, 3]], [[1, 1, 7]])


async def test_marks_stay_with_rows_that_are_sent_again(cluster: FakeCluster, producer: Producer) -> None:
    """Rows whose batch the broker refused because of another row."""
    cluster.create_topic("compacted", configs={"cleanup.policy": "compact"})
    audit = TaskAudit("p", "a", "compacted", clock=lambda: 7.5)
    records, second = audit.mark_records([Record(b"v", None if number == 5 else b"k") for number in range(10)])
    send = TaskSend(producer, options(topic="compacted", deadLetterTopic="dead"), 0, audit)
    await put_and_finish(send, RowChunk(records, second))
    found = sorted(
        int(dict(record.headers)["aioproducer.audit"].split(b";")[2]) for record in cluster.records("compacted")
    )
    assert found == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    (line, _) = audit.statement()
    assert (line["acked"], line["failed"]) == ([[0, 7, 9]], [[5, 5, 7]])
