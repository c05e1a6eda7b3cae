"""An audit that continues from its earlier results."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from aioproducer.audit import Audit
from aioproducer.cli.audit import reason_of
from aioproducer.spark.audit import audit_stream, stream_findings
from aioproducer.spark.audit.found import compared, found_in
from aioproducer.spark.audit.report import findings
from aioproducer.testing import KafkaCluster
from tests.spark.marked import acknowledged, close, source, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakeTopic = Callable[..., str]
NOW_S = 1_767_225_600.5
LAG_S = 60


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now_s = NOW_S

    def __call__(self) -> float:
        return self.now_s


def test_a_lost_end_is_missing_though_nothing_follows(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path
) -> None:
    """For a producer some of whose records arrived, and for one without any."""
    name, clock = topic(), Clock()
    cut, gone = (Audit(each, statements=tmp_path / "statements", clock=clock) for each in ("cut", "gone"))

    async def send() -> None:
        clock.now_s = NOW_S - 2 * LAG_S
        await write(kafka, acknowledged(cut, name, 100))
        clock.now_s = NOW_S - LAG_S + 0.4  # within the last second that is judged
        acknowledged(cut, name, 100)
        acknowledged(gone, name, 50)
        for audit in (cut, gone):
            await close(audit)

    def missing() -> set[tuple[str, int, int]]:
        assert audit_stream(spark, source(kafka), [name], str(tmp_path), clock=clock)
        found = stream_findings(spark, str(tmp_path), [name], statements=[str(tmp_path / "statements")], lag_s=LAG_S)
        assert found is not None
        rows = found.missing.collect()
        assert found.totals().missing == sum(row["records"] for row in rows)
        found.forget()
        return {(row["producer"], row["first"], row["last"]) for row in rows}

    asyncio.run(send())
    clock.now_s = NOW_S
    assert missing() == set()
    clock.now_s += 1
    assert missing() == {(cut.producer, 100, 199), (gone.producer, 0, 49)}


def test_a_topic_whose_beginning_is_gone(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path
) -> None:
    """By retention, before the first look: statements, and the numbers of later records, tell of what was there."""
    name, clock = topic(), Clock()
    stated, silent = Audit("stated", statements=tmp_path / "statements", clock=clock), Audit("silent", clock=clock)

    async def send() -> None:
        for each in (stated, silent, Audit("gone", statements=tmp_path / "statements", clock=clock)):
            acknowledged(each, name, 100)
            if each is not stated and each is not silent:
                await close(each)
        clock.now_s += 3_600
        for each in (stated, silent):
            await write(kafka, acknowledged(each, name, 10))
        await close(stated)

    def totals(since_ms: int | None) -> tuple[int | None, ...]:
        statements = [str(tmp_path / "statements")]
        found = stream_findings(spark, str(tmp_path), [name], statements=statements, lag_s=0, since_ms=since_ms)
        assert found is not None
        sums = found.totals()
        found.forget()
        return sums.sent, sums.found, sums.missing

    asyncio.run(send())
    clock.now_s += 60
    assert audit_stream(spark, source(kafka), [name], str(tmp_path), clock=clock)
    assert totals(None) == (210, 20, 300)
    assert totals(int(NOW_S * 1000) + 60_000) == (10, 20, 0)
    assert totals(int(clock.now_s * 1000)) == (None, 0, 0)


def test_what_a_look_that_was_ended_has_not_read_is_not_missing(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic()
    asyncio.run(write(kafka, acknowledged(Audit(), name, 10)))
    assert not audit_stream(spark, source(kafka), [name], str(tmp_path), told_to_end=lambda: True)
    assert stream_findings(spark, str(tmp_path), [name]) is None


def test_a_gap_is_as_young_as_the_record_behind_it(spark: SparkSession) -> None:
    """Records sent between an old record and a young one may still arrive."""
    old_ms, young_ms = 1_000_000, 5_000_000
    records = spark.createDataFrame(
        [("t", 0, 0, "p", "0", 0, old_ms), ("t", 0, 1, "p", "0", 2, young_ms)],
        "topic string, partition int, offset long, producer string, attempt string, sequence long, time_ms long",
    )
    found = found_in(compared(records.withColumn("latency_ms", F.lit(None).cast("bigint")), bucket_s=1))

    def missing(judged_ms: int) -> list[tuple[int, int, int]]:
        rows = findings(found, None, 1, heads=True, until_ms=judged_ms).missing.collect()
        return [(row["first"], row["last"], int(row["bucket"].timestamp())) for row in rows]

    assert missing(young_ms) == []
    assert missing(young_ms + 1) == [(1, 1, old_ms // 1000)]


@pytest.mark.parametrize("gone", ["state", "checkpoint"])
def test_half_of_what_was_kept_is_gone(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path, gone: str
) -> None:
    """Without the state, all earlier records would be missing; without the checkpoint, all would be duplicates."""
    name = topic()
    for _ in range(2):
        asyncio.run(write(kafka, acknowledged(Audit(), name, 1)))
        assert audit_stream(spark, source(kafka), [name], str(tmp_path))
    shutil.rmtree(tmp_path / gone)
    asyncio.run(write(kafka, acknowledged(Audit(), name, 1)))
    with pytest.raises(
        StreamingQueryException, match=f"ConfigError: .* continue from {tmp_path}: .*remove it"
    ) as error:
        audit_stream(spark, source(kafka), [name], str(tmp_path))
    assert reason_of(str(error.value)).startswith(f"ConfigError: the audit can't continue from {tmp_path}: ")


@pytest.mark.slow
def test_records_that_were_deleted_before_they_were_read(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path
) -> None:
    """It says what to do; told to go on, it reports them as missing."""
    name, audits = topic(), [Audit(str(number)) for number in range(3)]
    asyncio.run(write(kafka, acknowledged(audits[0], name, 10)))
    assert audit_stream(spark, source(kafka), [name], str(tmp_path))
    asyncio.run(write(kafka, acknowledged(audits[1], name, 10)))
    wanted = tmp_path / "deleted.json"
    wanted.write_text(json.dumps({"version": 1, "partitions": [{"topic": name, "partition": 0, "offset": 15}]}))
    kafka.run_tool(
        "DeleteRecordsCommand",
        ["--bootstrap-server", kafka.bootstrap_servers, "--offset-json-file", str(wanted)],
    )
    asyncio.run(write(kafka, acknowledged(audits[2], name, 10)))
    with pytest.raises(StreamingQueryException) as error:
        audit_stream(spark, source(kafka), [name], str(tmp_path))
    assert reason_of(str(error.value)).startswith("records were deleted before they were read")
    assert audit_stream(spark, {**source(kafka), "failOnDataLoss": "false"}, [name], str(tmp_path))
    found = stream_findings(spark, str(tmp_path), [name], lag_s=0)
    assert found is not None
    totals, lost = found.totals(), [tuple(row[2:5]) for row in found.missing.collect()]
    found.forget()
    assert (totals.found, totals.duplicated, totals.out_of_order) == (25, 0, 0)
    assert lost == [(audits[1].producer, 0, 4)]
