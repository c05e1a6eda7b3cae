"""The audit from topics to findings: at once, or in looks that each continue where the last one ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from aioproducer.errors import ConfigError
from aioproducer.metadata import check_topic_name
from aioproducer.spark.audit.found import Found, compared, found_in
from aioproducer.spark.audit.records import marked
from aioproducer.spark.audit.report import Findings, findings
from aioproducer.spark.audit.statements import Statements

BUCKET_S = 60
LAG_S = 60

LOOK_FOR_END_S = 1
"""Longest interval between calls of ``told_to_end``."""

DEFAULTS = {"startingOffsets": "earliest", "includeHeaders": "true", "kafka.isolation.level": "read_committed"}


def from_the_beginning(options: Mapping[str, str]) -> bool:
    """Whether Spark's Kafka source, with DEFAULTS and these options, reads topics from their beginning."""
    given = {name.lower(): value for name, value in options.items()}  # Spark ignores case
    starts = given.get("startingoffsets", "earliest").strip().lower()
    return starts == "earliest" and not given.keys() & {"startingtimestamp", "startingoffsetsbytimestamp"}


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
    """Audit the current content of topics.

    Args:
        options: of Spark's Kafka source: ``kafka.bootstrap.servers`` and other ``kafka.*`` configs of the consumer,
            ``minPartitions`` and the like. By default the topics are read from their beginning, with
            ``read_committed``.
        statements: files of statements, or directories (read recursively), wherever Spark can read; a statement
            read twice counts once.
        bucket_s: length of a time bucket.
        since_ms, until_ms: only records marked from ``since_ms`` up to, but not including, ``until_ms``, in ms since
            the epoch; seconds only partly inside do not count. With ``since_ms``, or options that do not start at the
            beginning, nothing counts as missing before a producer's first record that is found or stated. Records of
            other times are still read: their numbers are not missing.
    Returns:
        Findings, kept by Spark until ``forget()``.
    Raises:
        TypeError: topics or statements are one str.
        InvalidTopicError: no topic can have one of the names.
    """
    _check_lists(topics=topics, statements=statements)
    _check_topics(topics)
    # Statements have whole seconds, marks have milliseconds: both must leave out the same records.
    since_ms = None if since_ms is None else -_whole_seconds(-since_ms)
    until_ms = None if until_ms is None else _whole_seconds(until_ms)
    # Statements before records: on a topic still being written, the reverse order would find false losses.
    said = Statements.read(spark, statements, topics, since_ms, until_ms).keep() if statements else None
    read = spark.read.format("kafka").options(**{**DEFAULTS, **options}).option("subscribe", ",".join(topics)).load()
    seen = Observation()
    counts = F.count("*").alias("all"), F.count("producer").alias("marked")
    records = marked(read)
    observed = records.observe(seen, *counts).where("producer IS NOT NULL")
    rows = compared(observed, bucket_s, since_ms=since_ms, until_ms=until_ms)
    rows.persist(StorageLevel.MEMORY_AND_DISK)
    heads = since_ms is None and from_the_beginning(options)
    try:
        answer = findings(found_in(rows), said, bucket_s, heads=heads, since_ms=since_ms, until_ms=until_ms).keep()
        for frame in (answer.missing, answer.table, answer.producers):
            frame.count()
    finally:
        rows.unpersist()
        if said is not None:
            said.lines.unpersist()
    if answer.producers.where("found").isEmpty():
        # Adaptive execution drops a step without output, and its observation with it.
        unmarked = records.where("producer IS NULL").count()
    else:
        unmarked = seen.get["all"] - seen.get["marked"]
    return replace(answer, unmarked=unmarked)


class AuditState:
    """The findings of an audit's micro-batches, in two alternating directories, and the start of the last look.

    A micro-batch that Spark repeats finds the state from before its first run.
    """

    def __init__(self, spark: SparkSession, directory: str) -> None:
        self._spark = spark
        self._directory = directory

    def load(self) -> Found | None:
        """The findings up to the last micro-batch; None before the first."""
        done = self._done()
        return self._found(done[max(done)]) if done else None

    def load_before(self, number: int) -> Found | None:
        """The findings up to the micro-batch before ``number``; None before the first.

        Raises:
            ConfigError: they are missing, or later ones exist.
        """
        done = self._done()
        if (number and number - 1 not in done) or max(done, default=number) > number:
            raise ConfigError(
                f"the audit can't continue from {self._directory}: its checkpoint is at micro-batch {number}, its "
                f"state has {', '.join(map(str, sorted(done))) or 'none'}; remove it to begin the audit again"
            )
        return self._found(done[number - 1]) if number else None

    def save(self, number: int, found: Found) -> None:
        """Keep the findings up to a micro-batch."""
        slot = number % 2
        for name in Found.names():
            getattr(found, name).coalesce(1).write.mode("overwrite").parquet(self._path(f"{slot}/{name}"))
        self._note(f"{slot}/last", number)

    def looked_ms(self) -> int | None:
        """When the last complete look began, in ms; None before the first."""
        return self._number("looked")

    def look_ended(self, began_ms: int) -> None:
        """Note that a look has read everything that was there when it began."""
        self._note("looked", began_ms)  # if this dies halfway, there is no complete look until the next one

    def _done(self) -> dict[int, int]:
        """Each slot, by the micro-batch up to which it has findings."""
        return {number: slot for slot in (0, 1) if (number := self._number(f"{slot}/last")) is not None}

    def _found(self, slot: int) -> Found:
        return Found(*(self._spark.read.parquet(self._path(f"{slot}/{name}")) for name in Found.names()))

    def _number(self, name: str) -> int | None:
        try:
            row = self._spark.read.parquet(self._path(name)).first()
        except AnalysisException:  # there is none
            return None
        return None if row is None else int(row["number"])

    def _note(self, name: str, number: int) -> None:
        frame = self._spark.range(1).select(F.lit(number).cast("bigint").alias("number"))
        frame.write.mode("overwrite").parquet(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._directory}/state/{name}"


def audit_stream(
    spark: SparkSession,
    options: Mapping[str, str],
    topics: Sequence[str],
    directory: str,
    *,
    bucket_s: int = BUCKET_S,
    told_to_end: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.time,
) -> bool:
    """Take one look at topics: read what is new so far, and keep the findings for ``stream_findings``.

    Args:
        options: as for ``audit_topics``.
        directory: a path or URI, for this audit alone, where it keeps its findings and continues from.
        told_to_end: called during the look; once it returns True, the rest is left to the next look.
        clock: seconds since the epoch.
    Returns:
        Whether everything was read.
    Raises:
        StreamingQueryException: the topics can't be read, or the directory is incomplete.
        TypeError: ``topics`` is a single str.
        InvalidTopicError: no topic can have one of the names.
    """
    _check_lists(topics=topics)
    _check_topics(topics)
    state = AuditState(spark, directory)

    def take(batch: DataFrame, number: int) -> None:
        known = state.load_before(number)
        rows = compared(batch.where("producer IS NOT NULL"), bucket_s, known)
        rows.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            state.save(number, found_in(rows, known))
        finally:
            rows.unpersist()

    read = spark.readStream.format("kafka").options(**{**DEFAULTS, **options}).option("subscribe", ",".join(topics))
    stream = marked(read.load()).writeStream.foreachBatch(take).option("checkpointLocation", f"{directory}/checkpoint")
    # Taken before the query asks where the topics end, and saved when it has read that far. Not in a micro-batch:
    # without new records there is none, and then lost ends would never count as missing.
    began_ms = int(clock() * 1000)
    query = stream.trigger(availableNow=True).start()
    try:
        while not query.awaitTermination(LOOK_FOR_END_S):
            if told_to_end():
                return False
    finally:
        query.stop()
    state.look_ended(began_ms)
    return True


def stream_findings(
    spark: SparkSession,
    directory: str,
    topics: Sequence[str],
    *,
    statements: Sequence[str] = (),
    bucket_s: int = BUCKET_S,
    lag_s: int = LAG_S,
    heads: bool = True,
    since_ms: int | None = None,
) -> Findings | None:
    """The findings up to the last look of ``audit_stream``; None before the first complete look.

    Args:
        directory, bucket_s: as for ``audit_stream``.
        lag_s: records sent less than this many seconds before that look began do not count as missing yet.
        heads: False if the first look did not start at the beginning of the topics; see ``from_the_beginning``.
        since_ms: leaves out what was sent earlier, as for ``audit_topics``, and buckets only partly inside.
    Raises:
        TypeError: ``topics`` or ``statements`` is a single str.
        InvalidTopicError: no topic can have one of the names.
    """
    _check_lists(topics=topics, statements=statements)
    _check_topics(topics)
    state = AuditState(spark, directory)
    found, looked_ms = state.load(), state.looked_ms()
    if found is None or looked_ms is None:
        return None
    judged_ms = _whole_seconds(looked_ms) - lag_s * 1000
    if since_ms is not None:
        since_ms = -(-since_ms // (bucket_s * 1000)) * bucket_s * 1000
        found, heads = found.since(since_ms), False
    said = Statements.read(spark, statements, topics, since_ms, judged_ms) if statements else None
    return findings(found, said, bucket_s, heads=heads, since_ms=since_ms, until_ms=judged_ms).keep()


def _check_lists(**lists: Sequence[str]) -> None:
    for name, given in lists.items():
        if isinstance(given, str):  # its single letters would be valid topic names and paths
            raise TypeError(f"{name} is the str {given!r}; a list is needed, such as [{given!r}]")


def _check_topics(topics: Sequence[str]) -> None:
    """Refuse what Spark's source would take for several names, or strip: no statement is about a topic so called."""
    for topic in topics:
        check_topic_name(topic)


def _whole_seconds(ms: int) -> int:
    return ms // 1000 * 1000
