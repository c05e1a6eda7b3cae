"""The delivery audit finds exactly the faults that were planted, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import io
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.parquet
import pytest
from matplotlib.dates import date2num
from pyspark.sql import functions as F
from rich.console import Console

from aioproducer import Producer, Record, RecordMetadata, SerializationError
from aioproducer.audit import HEADER, Audit, Mark
from aioproducer.audit.mark import read_mark
from aioproducer.cli.audit import COUNTS as COLUMNS
from aioproducer.cli.audit import LATENCIES, AuditOptions, _rows, run, table
from aioproducer.cli.outcome import CommandError
from aioproducer.spark.audit import audit_stream, audit_topics, stream_findings
from aioproducer.spark.audit.records import marked
from aioproducer.testing import ExistingCluster, KafkaCluster
from tests.spark.marked import acknowledged, close, source, write
from tests.spark.readers import values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeTopic = Callable[..., str]
Range = tuple[str, int | None, str, int, int]
"""Topic, partition, producer, first and last number."""
COUNTS = ("found", "missing", "duplicated", "out_of_order")
RECORDS = 600
CLEAN_RECORDS = 2_300
SPARK_ROWS = 60_000
PATIENCE_S = 120.0
BAD = b"bad"


@dataclass
class Plan:
    """A topic's records, and the faults among them."""

    topic: str
    log: list[Record] = field(default_factory=list)
    """In the order of writing."""
    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By count and partition."""
    missing: set[Range] = field(default_factory=set)


def plan(audit: Audit, topic: str, rng: random.Random, partitions: int = 3, gone_from: int = RECORDS) -> Plan:
    """Records whose producer was told that all are in the topic, and what really became of them.

    Args:
        gone_from: records from this number on are missing from the topic.
    """
    made = Plan(topic)
    last: dict[int, Record] = {}
    highest: Counter[int] = Counter()
    gone: dict[int, int] = {}
    number = 0
    while number < RECORDS:
        partition = rng.randrange(partitions)
        records = [audit.on_send(Record(b"v", topic=topic, partition=partition)) for _ in range(rng.randint(1, 9))]
        for record in records:
            audit.on_acknowledgement(RecordMetadata(topic, partition, number, 0, 0, 1), None, record.headers)
        numbered = list(zip(range(number, number + len(records)), records, strict=True))
        number += len(records)
        fate = "lost" if number > gone_from else rng.choice(["fine"] * 6 + ["lost", "swapped", "again", "late again"])
        if fate == "lost":
            gone.update((each, partition) for each, _ in numbered)
            continue
        if fate == "swapped" and len(records) > 1:
            numbered[0], numbered[-1] = numbered[-1], numbered[0]
        for each, record in numbered:
            made.log.append(record)
            made.counts["found", partition] += 1
            made.counts["out_of_order", partition] += each < highest[partition]
            highest[partition] = max(highest[partition], each)
        if fate == "again":
            made.log += records
            made.counts["duplicated", partition] += len(records)
        if fate == "late again" and partition in last:
            made.log.append(last[partition])
            made.counts["duplicated", partition] += 1
        last[partition] = records[0]
    for each in sorted(gone):
        made.counts["missing", gone[each]] += 1
        if gone.get(each - 1) != gone[each]:
            end = each
            while gone.get(end + 1) == gone[each]:
                end += 1
            made.missing.add((topic, gone[each], audit.producer, each, end))
    return made


def counted(rows: Iterable[Any], *more: str) -> Counter[tuple[Any, ...]]:
    """The counts by topic, kind and partition, without zeros."""
    sums: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        for name in (*COUNTS, *more):
            sums[row["topic"], name, row["partition"]] += row[name] or 0
    return +sums


def planned(*plans: Plan) -> Counter[tuple[Any, ...]]:
    sums: Counter[tuple[Any, ...]] = Counter()
    for one in plans:
        sums.update({(one.topic, *key): count for key, count in one.counts.items()})
    return +sums


@dataclass
class Audited:
    """The audit's results.

    Args:
        names: the topics, by what happened in them.
    """

    names: dict[str, str]
    plans: list[Plan]
    exit_code: int
    screen: str
    output: Path

    def rows(self, table: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = pyarrow.parquet.read_table(self.output / table).to_pylist()
        return rows

    def counts(self, *more: str) -> Counter[tuple[Any, ...]]:
        return counted(self.rows("delivery"), *more)


async def serialize(value: bytes) -> bytes:
    """Refuse bad values only after a while, so that later records get their numbers first."""
    if value == BAD:
        await asyncio.sleep(0)
        raise ValueError("bad")
    return value


async def write_clean(kafka: KafkaCluster, name: str, statements: Path) -> None:
    """Several producers at once; one aborts transactions, others have records that fail."""

    def producer(number: int, **configs: Any) -> Producer:
        audit = Audit(f"clean-{number}", statements=statements)
        return Producer(bootstrap_servers=kafka.bootstrap_servers, interceptors=[audit], **configs)

    async def plain(number: int) -> None:
        async with producer(number, compression_type="lz4", value_serializer=serialize) as one:
            bad = [one.send(name, BAD) for _ in range(3)]
            good = [one.send(name, b"v", key=b"%d" % (key % 7)) for key in range(500)]
            ends = await asyncio.gather(*bad, *good, return_exceptions=True)
            assert sum(isinstance(end, SerializationError) for end in ends) == 3
            await one.send_many(name, [b"v"] * 500)

    async def transactional() -> None:
        async with producer(9, transactional_id=f"{name}-audit") as one:
            for commits in (True, False, True, False, True):
                await one.begin_transaction()
                await one.send_many(name, [b"v"] * 100)
                await (one.commit_transaction() if commits else one.abort_transaction())

    await asyncio.gather(plain(1), plain(2), transactional())


def failing_once(rows: DataFrame, bootstrap: str, topic: str, mark: Path) -> DataFrame:
    """The same rows, but the first task fails once some of its rows are in the topic."""
    path = str(mark)

    def pass_on(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        seen = 0
        for batch in batches:
            yield batch
            seen += batch.num_rows
            # Spark passes a batch on only when it has the one after the next.
            if seen > 20_000 and not Path(path).exists():
                deadline_s = time.monotonic() + PATIENCE_S
                while not any(ExistingCluster(bootstrap).end_offsets(topic).values()):
                    assert time.monotonic() < deadline_s, "no row was written"
                    time.sleep(0.01)
                Path(path).touch()
                raise RuntimeError("the task fails")

    return rows.mapInArrow(pass_on, rows.schema)


def write_from_spark(spark: SparkSession, kafka: KafkaCluster, topic: str, work: Path, **options: str) -> None:
    """60,000 rows, of which one task fails."""
    rows = spark.range(0, SPARK_ROWS, 1, 2).selectExpr("CAST(id AS STRING) AS value")
    given = {**source(kafka), "topic": topic, "audit": "true", "auditStatements": str(work / "statements"), **options}
    failing = failing_once(rows, kafka.bootstrap_servers, topic, work / topic)
    failing.write.format("aioproducer").options(**given).mode("append").save()


async def write_all(kafka: KafkaCluster, names: dict[str, str], statements: Path) -> list[Plan]:
    """Write all records that don't come from Spark; returns the planted faults."""
    audits = [Audit(f"planted-{number}", statements=statements) for number in range(3)]
    plans = [
        plan(audits[0], names["planted"], random.Random(1)),
        plan(audits[1], names["planted"], random.Random(2)),
        plan(audits[2], names["cut off"], random.Random(3), gone_from=400),
    ]
    for audit in audits:
        audit.close()
        await audit.written()
    await write_clean(kafka, names["clean"], statements)
    for one in plans:
        await write(kafka, one.log)
    await write(kafka, [Record(b"nobody's", topic=names["planted"])] * 5)
    return plans


@pytest.fixture(scope="module")
def audited(spark: SparkSession, kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """One audit of topics with all kinds of faults."""
    work = tmp_path_factory.mktemp("audit")
    names = {}
    for name in ("clean", "planted", "cut off", "once", "at least once"):
        names[name] = f"audit-{name.replace(' ', '-')}"
        configs = {"message.timestamp.type": "LogAppendTime"} if name == "planted" else {}
        kafka.create_topic(names[name], 3, configs=configs)
    plans = asyncio.run(write_all(kafka, names, work / "statements"))
    prefix = {"transactional.id.prefix": "audited", "transactionLog": str(work / "log")}
    write_from_spark(spark, kafka, names["once"], work, **prefix)
    write_from_spark(spark, kafka, names["at least once"], work)

    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    options = AuditOptions(
        list(names.values()), servers, [str(work / "statements")], output=work / "out", bucket_s=3_600
    )
    screen = io.StringIO()
    with contextlib.redirect_stdout(screen):
        exit_code = run(options)
    return Audited(names, plans, exit_code, screen.getvalue(), work / "out")


def test_losses_duplicates_and_reorderings(audited: Audited) -> None:
    """Where and how many, including a lost end, which only a statement can reveal."""
    of_plans = [audited.names["planted"], audited.names["cut off"]]
    counts = {key: count for key, count in audited.counts().items() if key[0] in of_plans}
    assert counts == planned(*audited.plans)
    missing = audited.rows("missing")
    found = {(row["topic"], row["partition"], row["producer"], row["first"], row["last"]) for row in missing}
    assert found == set().union(*(one.missing for one in audited.plans))
    assert all(row["acknowledged"] for row in missing)


def test_nothing_in_clean_topics(audited: Audited) -> None:
    """Although several producers write at once, one aborts transactions, and records of others fail."""
    counts = {
        key[1:]: count
        for key, count in audited.counts("sent", "acked", "failed").items()
        if key[0] == audited.names["clean"]
    }
    assert {name for name, _ in counts} == {"sent", "acked", "failed", "found"}
    assert counts["failed", None] == 6  # their partition is not known
    assert sum(count for (name, _), count in counts.items() if name == "found") == CLEAN_RECORDS
    assert all(counts["acked", partition] == counts["found", partition] for partition in range(3))


def test_rows_of_spark(audited: Audited, kafka: KafkaCluster) -> None:
    """What a failed attempt has written is found as duplicates; with transactions there are none."""
    written = values(kafka, audited.names["at least once"])
    copies = len(written) - len(set(written))
    assert copies > 0
    sums: Counter[tuple[str, str]] = Counter()
    for (name, count, _), records in audited.counts("acked", "failed").items():
        sums[name, count] += records
    right = {"acked": SPARK_ROWS, "failed": 0, "found": SPARK_ROWS, "missing": 0, "duplicated": 0, "out_of_order": 0}
    assert {count: sums[audited.names["once"], count] for count in right} == right
    assert {count: sums[audited.names["at least once"], count] for count in right} == {**right, "duplicated": copies}


def test_latencies_end_at_the_broker_or_at_the_stated_acknowledgement(audited: Audited) -> None:
    """To the broker where the topic has LogAppendTime, to the acknowledgement where the producer has stated it."""
    rows = {row["topic"]: row for row in audited.rows("delivery") if row["partition"] is not None}
    assert rows[audited.names["planted"]]["append_p99_ms"] is not None
    clean = rows[audited.names["clean"]]
    assert clean["append_p99_ms"] is None
    assert 0 <= clean["ack_p50_ms"] <= clean["ack_p99_ms"] <= clean["ack_max_ms"]


def test_what_is_shown(audited: Audited) -> None:
    assert audited.exit_code == 1
    sums: Counter[str] = Counter()
    for (_, name, _), count in audited.counts().items():
        sums[name] += count
    assert (
        f"{sums['found']:,} records from 10 producers: {sums['missing']:,} missing, {sums['duplicated']:,} duplicated, "
        f"{sums['out_of_order']:,} out of order."
    ) in audited.screen
    assert "5 more records have no mark" in audited.screen
    assert "stated nothing" not in audited.screen
    assert "did not state their end" not in audited.screen
    for picture in ("audit-time.svg", "audit-partitions.svg"):
        assert (audited.output / picture).read_text().startswith("<?xml")


def test_times_are_shown_in_utc(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """As --since and --until take them, wherever this machine is."""
    frame = spark.range(1).select(
        *(F.lit(0).alias(name) for name in (*COLUMNS, *LATENCIES)),
        F.lit("t").alias("topic"),
        F.lit(0).alias("partition"),
        F.timestamp_seconds(F.lit(0)).alias("bucket"),
    )
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        rows = _rows(frame)
    finally:
        monkeypatch.undo()
        time.tzset()
    screen = io.StringIO()
    Console(file=screen, width=300).print(table("title", rows))
    assert "1970-01-01 00:00:00" in screen.getvalue()
    assert "UTC" in screen.getvalue()
    assert date2num(rows[0]["bucket"]) == 0, "as the picture shows it"


@pytest.mark.slow
async def test_a_stream_finds_the_same(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path
) -> None:
    """Micro-batches share their state, even if a duplicate or a missing record comes later."""
    name = topic(3)
    audit = Audit("streamed")
    made = plan(audit, name, random.Random(4))
    statement = {key: count for key, count in planned(made).items() if key[1] != "missing"}
    middle = len(made.log) // 2
    for part in (made.log[:middle], made.log[middle:]):
        await write(kafka, part)
        await asyncio.to_thread(audit_stream, spark, source(kafka), [name], str(tmp_path))
    found = await asyncio.to_thread(stream_findings, spark, str(tmp_path), [name], lag_s=0)
    assert found is not None
    # No statement says in which partition they were acknowledged.
    counts = counted(found.table.collect())
    assert {key: count for key, count in counts.items() if key[1] != "missing"} == statement
    lost = {number for _, _, _, first, last in made.missing for number in range(first, last + 1)}
    missing = [tuple(row[:5]) for row in found.missing.collect()]
    holes = {number for _, _, _, first, last in missing for number in range(first, last + 1)}
    assert holes == {number for number in lost if any(number < other for other in set(range(RECORDS)) - lost)}
    found.forget()


# --- what is at the edge of an audit ----------------------------------------------------------------------------------


def exit_code_of(kafka: KafkaCluster, output: Path, name: str, *statements: Path, until_ms: int | None = None) -> int:
    """The exit code of the command for one topic."""
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    paths = [str(path) for path in statements]
    options = AuditOptions([name], servers, paths, output=output, until_ms=until_ms, pictures=False)
    return run(options)


async def state_as_lost(name: str, count: int, statements: Path) -> None:
    """State that records are in a topic, but write none."""
    audit = Audit("lost", statements=statements)
    acknowledged(audit, name, count)
    await close(audit)


@pytest.mark.usefixtures("spark")
def test_topics_without_a_mark_that_counts(
    kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unmarked, or of another time: nothing is found, and records that were stated count as missing."""
    name = topic()
    asyncio.run(write(kafka, [Record(b"nobody's", topic=name)] * 5))
    asyncio.run(state_as_lost("another topic", 50, tmp_path / "statements"))
    with pytest.raises(CommandError, match=f"no record in {name} has a mark"):
        exit_code_of(kafka, tmp_path, name, tmp_path / "statements")
    asyncio.run(state_as_lost(name, 50, tmp_path / "statements"))
    assert exit_code_of(kafka, tmp_path, name, tmp_path / "statements") == 1
    screen = capsys.readouterr().out
    assert "5 more records have no mark" in screen
    assert "0 records from 1 producer: 50 missing, 0 duplicated, 0 out of order." in screen
    asyncio.run(write(kafka, acknowledged(Audit(), name, 1)))
    with pytest.raises(CommandError, match=f"no record in {name} has a mark from the given time"):
        exit_code_of(kafka, tmp_path, name, tmp_path / "statements", until_ms=1_000)


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_topics_without_a_mark_that_counts_or_a_statement(
    kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path
) -> None:
    """Empty, or of another time."""
    name = topic()
    with pytest.raises(CommandError, match=f"no record in {name} has a mark"):
        exit_code_of(kafka, tmp_path, name)
    asyncio.run(write(kafka, acknowledged(Audit(), name, 1)))
    with pytest.raises(CommandError, match=f"no record in {name} has a mark from the given time"):
        exit_code_of(kafka, tmp_path, name, until_ms=1_000)


def test_tables_are_where_the_pictures_are(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path
) -> None:
    """Also if paths without a scheme are somewhere else for Spark, as on a machine with Hadoop's configs."""
    name = topic()
    asyncio.run(write(kafka, acknowledged(Audit(), name, 1)))
    spark.conf.set("fs.defaultFS", "nowhere:///")
    try:
        assert exit_code_of(kafka, tmp_path / "a b", name) == 0
    finally:
        spark.conf.unset("fs.defaultFS")
    assert pyarrow.parquet.read_table(tmp_path / "a b" / "delivery").num_rows == 1


def test_times_within_a_second(spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path) -> None:
    """Statements only have seconds: of a second that is only partly in range, neither records nor statements count."""
    name = topic()

    async def send() -> None:
        seconds = [10.1, 10.9, 11.0, 11.9, 12.1, 12.9]
        audit = Audit(statements=tmp_path, clock=lambda: seconds[0])
        records = []
        while seconds:
            records += acknowledged(audit, name, 1)
            del seconds[0]
        await close(audit)
        await write(kafka, records)

    asyncio.run(send())
    times = {"since_ms": 10_500, "until_ms": 12_500}
    found = audit_topics(spark, source(kafka), [name], statements=[str(tmp_path)], **times)
    totals = found.totals()
    found.forget()
    assert (totals.sent, totals.found, totals.missing) == (2, 2, 0)


@pytest.mark.parametrize(
    ("stated", "times"),
    [
        (False, {"since_ms": 50_000}),
        (True, {"until_ms": 50_000}),
        pytest.param(False, {"until_ms": 50_000}, marks=pytest.mark.slow),
        pytest.param(True, {"since_ms": 50_000}, marks=pytest.mark.slow),
    ],
)
def test_a_clock_that_was_set_back(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path, stated: bool, times: dict[str, int]
) -> None:
    """Records out of the time range that are between others are not missing; records lost next to them are."""
    name, now_s = topic(), [0.0]

    async def send() -> None:
        audit = Audit(statements=tmp_path, clock=lambda: now_s[0])
        records = []
        for now_s[0] in (70, 20, 30, 80, 25, 75):
            sent = acknowledged(audit, name, 4)
            records += [*sent[:2], *sent[3:]]
        await close(audit)
        await write(kafka, records)

    asyncio.run(send())
    found = audit_topics(spark, source(kafka), [name], statements=[str(tmp_path)] if stated else (), **times)
    totals, lost = found.totals(), sorted((row["first"], row["last"]) for row in found.missing.collect())
    found.forget()
    assert (totals.found, totals.out_of_order, totals.duplicated) == (9, 0, 0)
    expected = [6, 10, 18] if "until_ms" in times else [2, 14, 22]
    assert lost == [(number, number) for number in expected]


def test_headers_that_somebody_else_wrote(spark: SparkSession) -> None:
    """Headers that a reader can't display and count are not taken for marks; Spark and Python agree on them."""
    values = [
        b"p;0;7;5",
        b"p;1f;999999999999999;9999999999999",
        b"p;0;7",
        b"p;0;7;5;1",
        b"p;0;7;5\n",
        b";0;7;5",
        b"p;0;-7;5",
        b"p;0; 7;5",
        b"p;0;9223372036854775808;5",
        b"p;0;1000000000000000;5",
        b"p;0;7;10000000000000",
        b"p\x1b[2J;0;7;5",
        b"p\xff;0;7;5",
        b"p;\xff;7;5",
        "p;0;\u0667;5".encode(),
        None,
    ]
    rows = [("t", 0, offset, None, 0, [(HEADER, value)]) for offset, value in enumerate(values)]
    schema = (
        "topic string, partition int, offset long, timestamp timestamp, timestampType int, "
        "headers array<struct<key: string, value: binary>>"
    )
    found = {row["offset"]: row for row in marked(spark.createDataFrame(rows, schema)).collect()}
    for offset, value in enumerate(values):
        fields = tuple(found[offset][name] for name in Mark._fields)
        assert fields == (read_mark(value) or (None,) * 4), value
    assert [offset for offset, row in found.items() if row["producer"] is not None] == [0, 1]
