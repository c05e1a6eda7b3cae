"""Findings: the result of an audit, as tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from aioproducer.spark.audit.found import Found, as_rows, bucket
from aioproducer.spark.audit.records import within
from aioproducer.spark.audit.statements import Statements

PERCENTILES = (("p50", 0.5), ("p99", 0.99), ("max", 1.0))

SUMS = ("sent", "acked", "failed", "found", "missing", "duplicated", "out_of_order")

END, LINE, NUMBERS = 0, 1, 2

GAP_ROW = """producer string, topic string, kind int, first bigint, last bigint, stated boolean,
    first_ms bigint, last_ms bigint, border_ms bigint"""
"""Ranges of numbers, and borders of statements' lines with when the record at the border was sent."""


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of an audit.

    Args:
        sent, acked, failed: as stated; None if nothing was stated.
        found: records in the topics, each counted once.
        missing: records not in the topics, although later ones are, or although they were stated as acknowledged.
        duplicated: additional copies of found records.
        out_of_order: records that follow later ones.
        producers, stated, closed: instances found or stated; those with a statement; those whose statement is marked
            as complete.
    """

    sent: int | None
    acked: int | None
    failed: int | None
    found: int
    missing: int
    duplicated: int
    out_of_order: int
    producers: int
    stated: int
    closed: int

    @property
    def clean(self) -> bool:
        """Whether each record is there, once, in order; true if none was found and none is missing."""
        return not (self.missing or self.duplicated or self.out_of_order)


@dataclass(frozen=True, slots=True)
class Findings:
    """The results of an audit.

    Args:
        table: a row for each topic, partition and time bucket: topic, partition, bucket, the counts of Totals up to
            out_of_order, and latencies in ms: append_p50_ms, append_p99_ms, append_max_ms (to the broker's timestamp,
            topics with LogAppendTime), ack_p50_ms, ack_p99_ms, ack_max_ms (to the acknowledgement, as stated). The
            partition is null where it is unknown.
        missing: a row for each range of sequence numbers: topic, partition, producer, first, last, records,
            acknowledged (false: not stated), bucket.
        producers: producer, found, stated, closed.
        gaps: what ``missing`` is made of.
        unmarked: number of records read without a mark; None in streams.
    """

    table: DataFrame
    missing: DataFrame
    producers: DataFrame
    gaps: DataFrame = field(repr=False)
    unmarked: int | None = field(default=None)

    def keep(self) -> Findings:
        """Have Spark cache the tables once they are computed; they are small."""
        for frame in (self.gaps, self.missing, self.table, self.producers):
            frame.persist()
        return self

    def forget(self) -> None:
        """Undo ``keep``."""
        for frame in (self.producers, self.table, self.missing, self.gaps):  # none is made of one that is gone
            frame.unpersist()

    def totals(self) -> Totals:
        """Sums over all tables."""
        sums = self.table.agg(*(F.sum(name).alias(name) for name in SUMS)).first()
        flags = self.producers.agg(
            F.count("*").alias("producers"), F.count_if("stated").alias("stated"), F.count_if("closed").alias("closed")
        ).first()
        assert sums is not None
        assert flags is not None
        counts = {name: sums[name] for name in SUMS}
        for name in ("found", "missing", "duplicated", "out_of_order"):
            counts[name] = counts[name] or 0
        return Totals(**counts, **flags.asDict())


def findings(
    found: Found,
    statements: Statements | None,
    bucket_s: int,
    *,
    heads: bool,
    since_ms: int | None = None,
    until_ms: int | None = None,
) -> Findings:
    """Compare what was found with what was stated.

    Args:
        statements: read for the same times.
        heads: whether the first number of each producer without a statement must be 0.
        since_ms, until_ms: records sent outside these times do not count as missing.
    """
    gaps = _gaps(found, statements, heads)
    # The records of a gap were sent between the records around it; borders of statements are within these times.
    between = [F.coalesce(within(F.col(name), since_ms, until_ms), F.lit(True)) for name in ("before_ms", "behind_ms")]
    gaps = gaps.where(F.col("acknowledged") | (between[0] & between[1]))
    missing = _missing(gaps, statements).withColumn("bucket_s", bucket(F.floor(F.col("time_ms") / 1000), bucket_s))
    parts = [found.cells, missing.select("topic", "partition", "bucket_s", F.col("records").alias("missing"))]
    if statements is not None:
        parts.append(statements.cells(bucket_s))
    return Findings(
        table=_table(parts),
        missing=missing.select(
            "topic", "partition", "producer", "first", "last", "records", "acknowledged", _moment("bucket_s")
        ),
        producers=_producers(found, statements),
        gaps=gaps,
    )


def _gaps(found: Found, statements: Statements | None, heads: bool) -> DataFrame:
    """Ranges of numbers neither found nor stated as failed; those covered by a statement are separate."""
    parts = [as_rows(GAP_ROW, found.islands, NUMBERS)]
    if statements is not None:
        bounds = statements.bounds()
        parts += [
            as_rows(GAP_ROW, statements.failed(), NUMBERS),
            as_rows(GAP_ROW, bounds, LINE, stated=F.lit(True), border_ms="began_ms"),
            as_rows(GAP_ROW, bounds, END, first="next", stated=F.lit(False), border_ms="ended_ms"),
        ]
    before = (
        Window.partitionBy("producer", "topic")
        .orderBy("first", "kind", "last")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    boundary = F.when(F.col("stated").isNotNull(), F.col("first"))
    return (
        reduce(DataFrame.unionByName, parts)
        .select(
            "producer",
            "topic",
            "first",
            "first_ms",
            "border_ms",
            F.max("last").over(before).alias("reached"),
            F.last(boundary, ignorenulls=True).over(before).alias("boundary"),
            F.last("stated", ignorenulls=True).over(before).alias("acknowledged"),
            F.last("last_ms", ignorenulls=True).over(before).alias("before_ms"),
            F.last("border_ms", ignorenulls=True).over(before).alias("border_before_ms"),
        )
        # greatest() skips null; with nothing before, the gap starts at the first possible number.
        .withColumn(
            "from", F.coalesce(F.greatest(F.col("reached") + 1, F.col("boundary")), F.lit(0 if heads else None))
        )
        .where(F.col("from") < F.col("first"))
        .select(
            "producer",
            "topic",
            F.col("from").alias("first"),
            (F.col("first") - 1).alias("last"),
            F.coalesce("acknowledged", F.lit(False)).alias("acknowledged"),
            # Next to no record that was found, between two lines one of which is lost, only the lines tell.
            F.coalesce("before_ms", "first_ms", "border_before_ms", "border_ms").alias("time_ms"),
            "before_ms",
            F.col("first_ms").alias("behind_ms"),
        )
    )


def _missing(gaps: DataFrame, statements: Statements | None) -> DataFrame:
    """The gaps with what is known of their place."""
    columns = "producer", "topic", "first", "last", "partition", "acknowledged", "time_ms"
    unknown = gaps.withColumn("partition", F.lit(None).cast("int")).select(*columns)
    if statements is not None:
        known = (
            statements.runs_of(gaps.where("acknowledged"))
            .withColumn("acknowledged", F.lit(True))
            .withColumn("time_ms", F.col("second") * 1000)
            .select(*columns)
        )
        unknown = unknown.where("NOT acknowledged").unionByName(known)
    return unknown.withColumn("records", F.col("last") - F.col("first") + 1)


def _table(parts: list[DataFrame]) -> DataFrame:
    def union(one: DataFrame, other: DataFrame) -> DataFrame:
        return one.unionByName(other, allowMissingColumns=True)

    whole = reduce(union, parts)
    for name, of_type in (("acked", "bigint"), ("failed", "bigint"), ("ack_ms", "bigint"), ("acks", "bigint")):
        if name not in whole.columns:
            whole = whole.withColumn(name, F.lit(None).cast(of_type))
    copies = F.coalesce(F.col("found") + F.col("duplicated"), F.lit(0))
    acks = F.coalesce(F.col("acks"), F.lit(0))
    shares = F.array(*(F.lit(share) for _, share in PERCENTILES))
    sums = whole.groupBy("topic", "partition", "bucket_s").agg(
        F.sum("acked").alias("acked"),
        F.sum("failed").alias("failed"),
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in SUMS[3:]),
        F.percentile("latency_ms", shares, copies).alias("append"),
        F.percentile("ack_ms", shares, acks).alias("ack"),
    )
    stated = F.coalesce("acked", F.lit(0)) + F.coalesce("failed", F.lit(0))
    latencies = [
        F.get(what, F.lit(index)).cast("bigint").alias(f"{what}_{name}_ms")
        for what in ("append", "ack")
        for index, (name, _) in enumerate(PERCENTILES)
    ]
    return sums.select(
        "topic",
        "partition",
        _moment("bucket_s"),
        F.when(F.coalesce("acked", "failed").isNotNull(), stated).alias("sent"),
        *SUMS[1:],
        *latencies,
    )


def _producers(found: Found, statements: Statements | None) -> DataFrame:
    seen = found.highs.select("producer", F.lit(True).alias("found"), F.lit(True).alias("counts"))
    if statements is not None:
        # The last line names no topic; without other lines it may be from a producer of other topics.
        stated = statements.lines.select(
            "producer",
            F.lit(True).alias("stated"),
            F.coalesce("closed", F.lit(False)).alias("closed"),
            F.col("topic").isNotNull().alias("counts"),
        )
        seen = seen.unionByName(stated, allowMissingColumns=True)
    else:
        seen = seen.withColumn("stated", F.lit(False)).withColumn("closed", F.lit(False))
    flags = ("found", "stated", "closed", "counts")
    producers = seen.groupBy("producer").agg(*(F.coalesce(F.bool_or(name), F.lit(False)).alias(name) for name in flags))
    return producers.where("counts").drop("counts")


def _moment(seconds: str) -> Column:
    return F.timestamp_seconds(seconds).alias("bucket")
