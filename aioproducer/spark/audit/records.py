"""The records of topics, as rows with the fields of their marks."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from aioproducer.audit.mark import HEADER, PATTERN

LOG_APPEND_TIME = 1
"""``timestampType`` of records whose timestamp is the broker's."""


def marked(read: DataFrame) -> DataFrame:
    """Convert rows of Spark's Kafka source: topic, partition, offset, producer, attempt, sequence, time_ms, latency_ms.

    The mark's four fields are null for unmarked records. ``latency_ms`` is the time from the mark to the broker's own
    timestamp for topics with LogAppendTime, null for others.

    Args:
        read: with headers (option ``includeHeaders``).
    """
    ours = F.filter("headers", lambda header: header["key"] == HEADER)
    value = F.try_element_at(ours, F.lit(-1))["value"].cast("string")
    fields = F.split(value, ";")
    mark = F.when(value.rlike(rf"\A{PATTERN}\z"), fields)
    return (
        read.withColumn("mark", mark)
        .select(
            "topic",
            "partition",
            "offset",
            F.col("mark")[0].alias("producer"),
            F.col("mark")[1].alias("attempt"),
            F.col("mark")[2].cast("bigint").alias("sequence"),
            F.col("mark")[3].cast("bigint").alias("time_ms"),
            F.when(F.col("timestampType") == LOG_APPEND_TIME, F.unix_millis("timestamp")).alias("appended_ms"),
        )
        # Null stays null; greatest() alone would skip it.
        .withColumn(
            "latency_ms", F.when(F.col("appended_ms") < F.col("time_ms"), 0).otherwise(F.expr("appended_ms - time_ms"))
        )
        .drop("appended_ms")
    )


def within(time_ms: Column, since_ms: int | None, until_ms: int | None) -> Column:
    """Whether a time is inside; the end is exclusive."""
    holds = F.lit(True)
    if since_ms is not None:
        holds &= time_ms >= since_ms
    if until_ms is not None:
        holds &= time_ms < until_ms
    return holds


def two_digits(ms: Column) -> Column:
    """Milliseconds, rounded down to two digits from 100 on, as in statements."""
    step = F.pow(F.lit(10), F.length(ms.cast("string")) - 2).cast("bigint")
    return F.when(ms < 100, ms).otherwise(F.floor(ms / step) * step).cast("bigint")
