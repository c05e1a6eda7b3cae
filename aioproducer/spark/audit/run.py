"""The audit from topics to findings, at once or as a stream that goes on from where it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.storagelevel import StorageLevel

from aioproducer.spark.audit.found import Found, compared, found_in
from aioproducer.spark.audit.records import marked, within
from aioproducer.spark.audit.report import Findings, findings
from aioproducer.spark.audit.statements import Statements

BUCKET_S = 60
LAG_S = 60

DEFAULTS = {"startingOffsets": "earliest", "includeHeaders": "true", "kafka.isolation.level": "read_committed"}


def audit_topics(
    spark: SparkSession,
    options: Mapping[str, str],
    topics: Sequence[str],
    *,
    statements: Sequence[str] = (),
    bucket_s: int = BUCKET_S,
    since_ms: int | None = None,
    until_ms: int | None = None,
) -> Findings:
    """Audit what is in some topics now.

    Args:
        options: of Spark's Kafka source: ``kafka.bootstrap.servers`` and other ``kafka.*`` configs of the consumer,
            ``minPartitions`` and the like. Unless they say otherwise the topics are read from their beginning, by a
            ``read_committed`` reader.
        statements: files or directories of statements, anything that Spark reads.
        bucket_s: length of a time bucket.
        since_ms, until_ms: only records whose mark names a time from the one up to the other, ms since the epoch. With
            ``since_ms`` nothing is missing before the first record that is found, or stated, of a producer.
    Returns:
        Findings, kept by Spark until ``forget()``.
    """
    # First what was promised, then what is there: on a topic that is written to, the other way round would find losses.
    said = Statements.read(spark, statements, topics, since_ms, until_ms).keep() if statements else None
    read = spark.read.format("kafka").options(**{**DEFAULTS, **options}).option("subscribe", ",".join(topics)).load()
    seen = Observation()
    counts = F.count("*").alias("all"), F.count("producer").alias("marked")
    records = marked(read).observe(seen, *counts).where("producer IS NOT NULL")
    rows = compared(records.where(within(F.col("time_ms"), since_ms, until_ms)), bucket_s)
    rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        answer = findings(found_in(rows), said, bucket_s, heads=since_ms is None).keep()
        for frame in (answer.missing, answer.table, answer.producers):
            frame.count()
    finally:
        rows.unpersist()
        if said is not None:
            said.lines.unpersist()
    metrics = seen.get
    return Findings(answer.table, answer.missing, answer.producers, metrics["all"] - metrics["marked"])


class AuditState:
    """What the micro-batches of an audit have found, in two directories that take turns.

    A micro-batch that Spark repeats finds what was there before it.
    """

    def __init__(self, spark: SparkSession, directory: str) -> None:
        self._spark = spark
        self._directory = directory

    def load(self, before: int | None = None) -> tuple[Found, int] | None:
        """What was found up to the last micro-batch, or up to that before another one, and when it began, in ms.

        None at the beginning.
        """
        done = {found["number"]: slot for slot in (0, 1) if (found := self._last(slot)) is not None}
        numbers = [number for number in done if before is None or number == before - 1]
        if not numbers:
            return None
        slot = done[max(numbers)]
        last = self._last(slot)
        assert last is not None
        return Found(*(self._spark.read.parquet(self._path(slot, name)) for name in Found.names())), last["began_ms"]

    def save(self, number: int, began_ms: int, found: Found) -> None:
        """Keep what was found up to a micro-batch."""
        slot = number % 2
        for name in Found.names():
            getattr(found, name).coalesce(1).write.mode("overwrite").parquet(self._path(slot, name))
        last = self._spark.range(1).select(F.lit(number).alias("number"), F.lit(began_ms).alias("began_ms"))
        last.write.mode("overwrite").parquet(self._path(slot, "last"))

    def _last(self, slot: int) -> dict[str, int] | None:
        try:
            row = self._spark.read.parquet(self._path(slot, "last")).first()
        except AnalysisException:  # there is none
            return None
        return None if row is None else row.asDict()

    def _path(self, slot: int, name: str) -> str:
        return f"{self._directory}/{slot}/{name}"


def audit_stream(
    spark: SparkSession,
    options: Mapping[str, str],
    topics: Sequence[str],
    directory: str,
    *,
    bucket_s: int = BUCKET_S,
    every_s: int | None = None,
    on_batch: Callable[[], object] = lambda: None,
) -> StreamingQuery:
    """Start a stream that audits topics as records come.

    Args:
        options: as for ``audit_topics``.
        directory: a path or URI, of this audit alone, where it keeps what it has found; it goes on from there.
        every_s: time between micro-batches; None: up to what is there now, then the stream ends.
        on_batch: called after each micro-batch; ``stream_findings`` has what was found by then.
    """
    state = AuditState(spark, f"{directory}/state")

    def take(batch: DataFrame, number: int) -> None:
        began_ms = int(time.time() * 1000)
        earlier = state.load(before=number) if number else None
        known = None if earlier is None else earlier[0]
        rows = compared(batch.where("producer IS NOT NULL"), bucket_s, known)
        rows.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            state.save(number, began_ms, found_in(rows, known))
        finally:
            rows.unpersist()
        on_batch()

    read = spark.readStream.format("kafka").options(**{**DEFAULTS, **options}).option("subscribe", ",".join(topics))
    stream = marked(read.load()).writeStream.foreachBatch(take).option("checkpointLocation", f"{directory}/checkpoint")
    if every_s is None:
        return stream.trigger(availableNow=True).start()
    return stream.trigger(processingTime=f"{every_s} seconds").start()


def stream_findings(
    spark: SparkSession,
    directory: str,
    topics: Sequence[str],
    *,
    statements: Sequence[str] = (),
    bucket_s: int = BUCKET_S,
    lag_s: int = LAG_S,
    heads: bool = True,
) -> Findings | None:
    """What a stream has found up to its last micro-batch; None before the first.

    Args:
        directory, bucket_s: as for ``audit_stream``.
        lag_s: records that were sent later than so long before that micro-batch began are not missing yet.
        heads: False if the stream did not begin at the beginning of the topics.
    """
    last = AuditState(spark, f"{directory}/state").load()
    if last is None:
        return None
    found, began_ms = last
    judged_ms = began_ms - lag_s * 1000
    said = Statements.read(spark, statements, topics, until_ms=judged_ms) if statements else None
    return findings(found, said, bucket_s, heads=heads, judged_ms=judged_ms).keep()
