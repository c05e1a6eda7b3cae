"""Producers' statements, as rows."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from aioproducer.audit.statement import FAILED
from aioproducer.spark.audit.found import bucket
from aioproducer.spark.audit.records import within

SCHEMA = """producer string, topic string, first bigint, next bigint, runs array<array<bigint>>,
    acked array<array<bigint>>, failed array<array<bigint>>, latency_ms array<array<bigint>>, closed boolean"""


class Statements:
    """The lines of all statements, and a view of each subject.

    Args:
        lines: of SCHEMA.
        since_ms, until_ms: records sent outside these times do not count.
    """

    def __init__(self, lines: DataFrame, since_ms: int | None = None, until_ms: int | None = None) -> None:
        # A killed producer may have left a partial line.
        self.lines: DataFrame = lines.where("producer IS NOT NULL AND (topic IS NOT NULL OR closed)")
        self._since_ms = since_ms
        self._until_ms = until_ms

    @classmethod
    def read(
        cls,
        spark: SparkSession,
        paths: Sequence[str],
        topics: Sequence[str] | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
    ) -> Statements:
        """Read files, and directories recursively.

        A line counts once however often it is read: a file may be given twice, by a link, or along with its directory.
        No two lines are equal otherwise, because each line of a producer and topic begins at its own number.

        Args:
            topics: topics that count; None for all.
        """
        # By default Spark silently reads nothing from a directory that has only subdirectories.
        lines = spark.read.schema(SCHEMA).option("recursiveFileLookup", True).json(list(paths))
        if topics is not None:
            lines = lines.where(F.col("closed") | F.col("topic").isin(*topics))
        return cls(lines.distinct(), since_ms, until_ms)

    def keep(self) -> Statements:
        """Read them now, and have Spark cache them."""
        self.lines.persist(StorageLevel.MEMORY_AND_DISK).count()
        return self

    def bounds(self) -> DataFrame:
        """The range of each line, and when its records were sent: producer, topic, first, next, began_ms, ended_ms."""
        kept = F.filter("runs", lambda run: within(run[2] * 1000, self._since_ms, self._until_ms))
        seconds = F.transform("kept", lambda run: run[2])
        return (
            self.lines.where("topic IS NOT NULL")
            .withColumn("kept", kept)
            .where(F.size("kept") > 0)
            .select(
                "producer",
                "topic",
                F.array_min(F.transform("kept", lambda run: run[0])).alias("first"),
                (F.array_max(F.transform("kept", lambda run: run[1])) + 1).alias("next"),
                (F.array_min(seconds) * 1000).alias("began_ms"),
                (F.array_max(seconds) * 1000).alias("ended_ms"),
            )
        )

    def failed(self) -> DataFrame:
        """Records reported to their program as failed: producer, topic, first, last, second."""
        return self._each("failed", "first", "last", "second")

    def runs_of(self, gaps: DataFrame) -> DataFrame:
        """Where the records of gaps were acknowledged: the gaps, split, with partition (or null) and second.

        Args:
            gaps: producer, topic, first, last; few of them.
        """
        gap, line = F.broadcast(gaps.alias("gap")), self.lines.alias("line")
        overlap = (
            (F.col("gap.producer") == F.col("line.producer"))
            & (F.col("gap.topic") == F.col("line.topic"))
            & (F.col("gap.first") < F.col("line.next"))
            & (F.col("gap.last") >= F.col("line.first"))
        )
        return (
            line.join(gap, overlap)
            .select("gap.producer", "gap.topic", "gap.first", "gap.last", F.explode("line.runs").alias("run"))
            .where((F.col("run")[0] <= F.col("last")) & (F.col("run")[1] >= F.col("first")))
            .where(within(F.col("run")[2] * 1000, self._since_ms, self._until_ms))
            .select(
                "producer",
                "topic",
                F.greatest("first", F.col("run")[0]).alias("first"),
                F.least("last", F.col("run")[1]).alias("last"),
                F.col("run")[3].cast("int").alias("partition"),
                F.col("run")[2].alias("second"),
            )
            .where(F.coalesce(F.col("partition"), F.lit(0)) != FAILED)
        )

    def cells(self, bucket_s: int) -> DataFrame:
        """Counts by time: topic, partition (null for failed records), bucket_s, acked, failed, ack_ms, acks."""
        acked = self._each("acked", "partition", "second", "acked")
        failed = self.failed().withColumn("failed", F.col("last") - F.col("first") + 1)
        latency = self._each("latency_ms", "partition", "second", "ack_ms", "acks")
        whole = acked.unionByName(failed, allowMissingColumns=True).unionByName(latency, allowMissingColumns=True)
        return whole.select(
            "topic",
            F.col("partition").cast("int"),
            bucket(F.col("second"), bucket_s).alias("bucket_s"),
            "acked",
            "failed",
            "ack_ms",
            "acks",
        )

    def _each(self, what: str, *names: str) -> DataFrame:
        entries = self.lines.where("topic IS NOT NULL").select("producer", "topic", F.explode(what).alias("one"))
        columns = [F.col("one")[index].alias(name) for index, name in enumerate(names)]
        return entries.select("producer", "topic", *columns).where(
            within(F.col("second") * 1000, self._since_ms, self._until_ms)
        )
