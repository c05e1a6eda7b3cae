"""What was found: compares records with each other, and keeps what the next micro-batch has to know.

Theory of operation. The audit's one shuffle of records brings all records of a producer and topic together, sorted by
sequence number. Then each row needs to know only how far the rows before it reach:

    up to this number           a duplicate
    up to the number before it  the island of numbers goes on
    less far                    a new island begins, after a gap

Order is that of the log: among the rows of one attempt in one partition, sorted by offset, a record is out of order if
a later one of its producer precedes it. Duplicates are not checked for order.

Earlier findings join as rows of the same form: islands, with a first and a last number, and the highest number by
attempt and partition. So a micro-batch is a batch with some rows known in advance, and of earlier records only these
are kept. Gaps are looked for at the end, because partitions are not read at the same pace.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from aioproducer.spark.audit.records import two_digits, within

ISLAND, HIGH, RECORD = 0, 1, 2

ROW = """producer string, topic string, kind int, first bigint, last bigint, attempt string, partition int,
    offset bigint, first_ms bigint, last_ms bigint, latency_ms bigint, high bigint"""


@dataclass(frozen=True, slots=True)
class Found:
    """The findings from all records read so far.

    Args:
        islands: producer, topic, first, last, first_ms, last_ms: runs of numbers without a gap.
        highs: producer, topic, attempt, partition, high: the highest number in each.
        cells: topic, partition, bucket_s, latency_ms, found, duplicated, out_of_order: counts of records.
    """

    islands: DataFrame
    highs: DataFrame
    cells: DataFrame

    @staticmethod
    def names() -> tuple[str, ...]:
        """Names of the tables, in order."""
        return "islands", "highs", "cells"

    def since(self, ms: int) -> Found:
        """The same without counts from before a time, at which a bucket begins. Earlier numbers are not missing."""
        recent = self.islands.where(F.col("last_ms") >= ms).select("producer", "topic").distinct()
        return Found(
            islands=self.islands,
            highs=self.highs.join(recent, ["producer", "topic"], "left_semi"),
            cells=self.cells.where(F.col("bucket_s") * 1000 >= ms),
        )


def compared(
    records: DataFrame,
    bucket_s: int,
    known: Found | None = None,
    *,
    since_ms: int | None = None,
    until_ms: int | None = None,
) -> DataFrame:
    """Compare and count records and earlier findings: one row for each island, place, bucket and latency.

    Args:
        records: from ``records.marked``, all with a mark.
        bucket_s: length of a time bucket.
        known: earlier findings.
        since_ms, until_ms: records outside these times are not counted, but their numbers are used: if a clock was set
            back, they lie between those of counted records.
    """
    numbers = {"first": "sequence", "last": "sequence", "high": "sequence"}
    rows = as_rows(ROW, records, RECORD, **numbers, first_ms="time_ms", last_ms="time_ms")
    if known is not None:
        rows = rows.unionByName(as_rows(ROW, known.islands, ISLAND)).unionByName(as_rows(ROW, known.highs, HIGH))
    one = Window.partitionBy("producer", "topic")
    by_number = one.orderBy("first", "kind", "first_ms", "attempt", "partition", "offset")
    by_offset = Window.partitionBy("producer", "topic", "attempt", "partition").orderBy("offset")
    before, upto = (Window.unboundedPreceding, -1), (Window.unboundedPreceding, Window.currentRow)
    is_record = F.col("kind") == RECORD
    reached = F.max("last").over(by_number.rowsBetween(*before))
    counts = (
        rows.withColumn("reached", reached)
        .withColumn("again", is_record & F.coalesce(F.col("reached") >= F.col("first"), F.lit(False)))
        .withColumn("begins", F.coalesce(F.col("first") > F.col("reached") + 1, F.col("first").isNotNull()))
        .withColumn("island", F.sum(F.col("begins").cast("int")).over(by_number.rowsBetween(*upto)))
        .withColumn("high", F.when(~F.col("again"), F.col("high")))
        .withColumn("higher", F.max("high").over(by_offset.rowsBetween(*before)))
        .withColumn("late", is_record & ~F.col("again") & F.coalesce(F.col("first") < F.col("higher"), F.lit(False)))
        .withColumn("counts", is_record & within(F.col("first_ms"), since_ms, until_ms))
        .withColumn("bucket_s", F.when(is_record, bucket(F.floor(F.col("first_ms") / 1000), bucket_s)))
        .withColumn("latency_ms", two_digits(F.col("latency_ms")))
    )
    return counts.groupBy("producer", "topic", "island", "attempt", "partition", "bucket_s", "latency_ms").agg(
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.min_by("first_ms", "first").alias("first_ms"),
        F.max_by("last_ms", "last").alias("last_ms"),
        F.max("high").alias("high"),
        F.count_if(F.col("counts") & ~F.col("again")).alias("found"),
        F.count_if(F.col("counts") & F.col("again")).alias("duplicated"),
        F.count_if(F.col("counts") & F.col("late")).alias("out_of_order"),
    )


def found_in(compared: DataFrame, known: Found | None = None) -> Found:
    """Collect the findings from the rows of ``compared``, which should be persisted in memory or on disk.

    Args:
        known: as given to ``compared``; its counts are added.
    """
    cells = compared.where(F.col("found") + F.col("duplicated") > 0).select(*CELL, *COUNTS)
    if known is not None:
        cells = cells.unionByName(known.cells)
    return Found(
        islands=compared.where("first IS NOT NULL")
        .groupBy("producer", "topic", "island")
        .agg(
            F.min("first").alias("first"),
            F.max("last").alias("last"),
            F.min_by("first_ms", "first").alias("first_ms"),
            F.max_by("last_ms", "last").alias("last_ms"),
        )
        .drop("island"),
        highs=compared.where("partition IS NOT NULL AND (bucket_s IS NULL OR found + duplicated > 0)")
        .groupBy("producer", "topic", "attempt", "partition")
        .agg(F.max("high").alias("high"))
        .where("high IS NOT NULL"),
        cells=cells.groupBy(*CELL).agg(*(F.sum(name).alias(name) for name in COUNTS)),
    )


CELL = ("topic", "partition", "bucket_s", "latency_ms")
COUNTS = ("found", "duplicated", "out_of_order")


def bucket(second: Column, length_s: int) -> Column:
    """The second at which the bucket of a second begins."""
    return (F.floor(second / length_s) * length_s).cast("bigint")


def as_rows(schema: str, frame: DataFrame, kind: int, **sources: str | Column) -> DataFrame:
    """The columns of a schema: what is given for one, or a column's name, by default its own; else null."""
    columns = []
    for column in schema.split(","):
        name, of_type = column.split()
        source = F.lit(kind) if name == "kind" else sources.get(name, name)
        if isinstance(source, str):
            source = F.col(source) if source in frame.columns else F.lit(None)
        columns.append(source.cast(of_type).alias(name))
    return frame.select(*columns)
