"""An audit that goes on from what it has found before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from aioproducer.audit import Audit
from aioproducer.spark.audit import audit_stream, stream_findings
from aioproducer.testing import KafkaCluster
from tests.spark.marked import acknowledged, close, source, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakeTopic = Callable[..., str]
NOW_S = 1_767_225_600.5
LAG_S = 60


class Clock:
    """Seconds as the test says."""

    def __init__(self) -> None:
        self.now_s = NOW_S

    def __call__(self) -> float:
        return self.now_s


def test_a_lost_end_is_missing_though_nothing_follows(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path
) -> None:
    """Of a producer of which something arrived, and of one of which nothing did."""
    name, clock = topic(), Clock()
    cut, gone = (Audit(each, statements=tmp_path / "statements", clock=clock) for each in ("cut", "gone"))

    async def send() -> None:
        clock.now_s = NOW_S - 2 * LAG_S
        await write(kafka, acknowledged(cut, name, 100))
        clock.now_s = NOW_S - LAG_S + 0.4  # the same second as the last that is judged
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


def test_what_a_look_that_was_ended_has_not_read_is_not_missing(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic()
    asyncio.run(write(kafka, acknowledged(Audit(), name, 10)))
    assert not audit_stream(spark, source(kafka), [name], str(tmp_path), told_to_end=lambda: True)
    assert stream_findings(spark, str(tmp_path), [name]) is None
