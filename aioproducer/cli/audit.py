"""``aioproducer audit`` from its options to its exit code."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from aioproducer.cli.outcome import DONE, INTERRUPTED, SOME_FAILED, CommandError, one_line, require
from aioproducer.cli.spark_process import here, quiet_interrupts, signals_set_event, stderr_to, without_pandas_warning
from aioproducer.cli.tables import print_table
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import ConfigError, InvalidTopicError
from aioproducer.message_text import host_port, printable
from aioproducer.metadata import check_topic_name
from aioproducer.testing.errors import ClusterError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from aioproducer.spark.audit.report import Findings, Totals

NEEDED = {"pyspark": "pyspark", "pyarrow": "pyarrow"}
NEEDED_LOCALLY = {"jgo": "jgo"}
NEEDED_TO_DRAW = {"matplotlib": "matplotlib"}
MOST_ROWS = 40
"""Most rows of a table on the screen."""

CONNECT_TIMEOUT_S = 10.0
"""For each address of each bootstrap server."""

COUNTS = ("sent", "acked", "failed", "found", "missing", "duplicated", "out_of_order")
LATENCIES = tuple(f"{what}_{which}_ms" for what in ("append", "ack") for which in ("p50", "p99", "max"))


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """The options of the command.

    Args:
        configs: consumer configs, by dotted name.
        source: further options of Spark's Kafka source.
        tables: path or URI for Parquet output.
        state: where looks keep their findings; None audits what is there now and keeps nothing.
        every_s: seconds between looks; None ends after the first.
        master: of a cluster; None runs Spark in this process.
    """

    topics: Sequence[str]
    configs: Mapping[str, str]
    statements: Sequence[str] = ()
    output: Path = Path("out/audit")
    tables: str | None = None
    bucket_s: int = 60
    since_ms: int | None = None
    until_ms: int | None = None
    read_uncommitted: bool = False
    state: str | None = None
    every_s: int | None = None
    lag_s: int = 60
    master: str | None = None
    source: Mapping[str, str] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)
    pictures: bool = True


def run(options: AuditOptions) -> int:
    """Audit, show and write the findings; returns the exit code.

    Raises:
        CommandError: topics can't be read, or have no marks.
    """
    _check_topics(options.topics)
    _check_configs(options.configs)
    _check_reachable(options.configs["bootstrap.servers"])
    needed = NEEDED | (NEEDED_LOCALLY if options.master is None else {}) | (NEEDED_TO_DRAW if options.pictures else {})
    require(needed, "audit")
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    try:
        with _session(options) as spark:
            return _audit(spark, options, console) if options.state is None else _stream(spark, options, console)
    except ClusterError as error:
        raise CommandError(one_line(error)) from error
    except (PySparkException, Py4JError) as error:
        raise CommandError(f"{', '.join(options.topics)} can't be audited: {reason_of(str(error))}") from error


@contextmanager
def _session(options: AuditOptions) -> Iterator[SparkSession]:
    """This process's Spark session, or a new one for the block."""
    from pyspark.sql import SparkSession

    there = SparkSession.getActiveSession()
    if there is not None:
        yield there
        return
    with stderr_to(options.output / "spark.log"), without_pandas_warning():
        spark = _make_session(options)
    try:
        with quiet_interrupts():
            yield spark
    finally:
        spark.stop()


def _make_session(options: AuditOptions) -> SparkSession:
    """Spark in this process, or on the given cluster."""
    from aioproducer.spark import connector_jars, local_session

    quiet = {"spark.log.level": "WARN", **options.spark}
    if options.master is None:
        return local_session("aioproducer audit", cores="*", configs=quiet)
    from pyspark.sql import SparkSession

    from aioproducer.spark.environment import started

    builder = SparkSession.builder.master(options.master).appName("aioproducer audit")
    jars = (
        {}
        if {"spark.jars", "spark.jars.packages"} & set(quiet)
        else {"spark.jars": ",".join(map(str, connector_jars()))}
    )
    for name, value in {"spark.sql.session.timeZone": "UTC", **jars, **quiet}.items():
        builder = builder.config(name, value)
    return started(builder)


def _check_topics(topics: Sequence[str]) -> None:
    try:
        for topic in topics:
            check_topic_name(topic)
    except InvalidTopicError as error:
        raise CommandError(f"{error}; several topics are given one by one: orders payments") from error


def _check_configs(configs: Mapping[str, str]) -> None:
    """Refuse what a Java consumer ignores although it is needed to connect: its own error would not say why."""
    who = "Spark's Kafka source, which reads the topics,"
    if "sasl.username" in configs and "sasl.jaas.config" not in configs:
        raise CommandError(f"{who} takes no sasl.username and sasl.password: give sasl.jaas.config instead")
    if "proxy.url" in configs:
        raise CommandError(f"{who} takes no proxy.url: give an address that can be reached without a proxy")


def _check_reachable(servers: str) -> None:
    """Raise if no broker is there: Spark's source would ask for three minutes, without a word."""
    try:
        addresses = ProducerConfig.parse_dotted({"bootstrap.servers": servers}).bootstrap_servers
    except ConfigError as error:
        raise CommandError(str(error)) from error
    failures = []
    for host, port in addresses:
        try:
            socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
        except OSError as error:
            failures.append(f"{host_port(host, port)}: {error.strerror or error}")
        else:
            return
    raise CommandError(f"no bootstrap server can be reached: {'; '.join(failures)}")


def source_options(options: AuditOptions) -> dict[str, str]:
    """The options for Spark's Kafka source."""
    found = {f"kafka.{name}": value for name, value in options.configs.items()}
    if options.read_uncommitted:
        found["kafka.isolation.level"] = "read_uncommitted"
    return {**found, **options.source}


def _audit(spark: SparkSession, options: AuditOptions, console: Console) -> int:
    from aioproducer.spark.audit import audit_topics

    found = audit_topics(
        spark,
        source_options(options),
        options.topics,
        statements=options.statements,
        bucket_s=options.bucket_s,
        since_ms=options.since_ms,
        until_ms=options.until_ms,
    )
    return publish(found, options, console)


def _stream(spark: SparkSession, options: AuditOptions, console: Console) -> int:
    from aioproducer.spark.audit import audit_stream, stream_findings
    from aioproducer.spark.audit.run import from_the_beginning

    assert options.state is not None
    state = options.state

    def look() -> Findings | None:
        return stream_findings(
            spark,
            state,
            options.topics,
            statements=options.statements,
            bucket_s=options.bucket_s,
            lag_s=options.lag_s,
            heads=from_the_beginning(options.source),
            since_ms=options.since_ms,
        )

    def all_read() -> bool:
        return audit_stream(
            spark,
            source_options(options),
            options.topics,
            state,
            bucket_s=options.bucket_s,
            told_to_end=told_to_end.is_set,
        )

    with signals_set_event() as told_to_end:
        began_s = time.monotonic()
        while (is_whole := all_read()) and options.every_s is not None:
            if (found := look()) is not None:
                print(f"{datetime.now(UTC):%H:%M:%S} {_sentence(found.totals())}", flush=True)
                found.forget()
            if told_to_end.wait(began_s + options.every_s - time.monotonic()):
                break
            began_s = time.monotonic()
    found = look() if is_whole or options.every_s is not None else None
    if found is None:
        raise CommandError(f"interrupted before all of {', '.join(options.topics)} was read", INTERRUPTED)
    return publish(found, options, console)


# --- output -----------------------------------------------------------------------------------------------------------


def publish(found: Findings, options: AuditOptions, console: Console) -> int:
    """Show the findings, write them as Parquet and pictures; returns the exit code.

    Raises:
        CommandError: no record has a mark, or none in the requested time.
    """
    from pyspark.sql import functions as F

    try:
        totals = found.totals()
        if not (totals.found or totals.duplicated or totals.missing or totals.sent):
            when = "" if options.since_ms is None and options.until_ms is None else " from the given time"
            names = ", ".join(options.topics)
            raise CommandError(f"no record in {names} has a mark{when}: see aioproducer.audit.Audit")
        place = options.tables if options.tables is not None else str(options.output.absolute())
        root = here(options.output.absolute()) if options.tables is None and options.master is None else place
        for name, frame in (("delivery", found.table), ("missing", found.missing)):
            frame.coalesce(1).write.mode("overwrite").parquet(f"{root}/{name}")
        by_place = _rows(_summed(found.table, "topic", "partition").orderBy("topic", F.asc_nulls_last("partition")))
        rows = _rows(found.table.orderBy("topic", F.asc_nulls_last("partition"), "bucket").limit(MOST_ROWS + 1))
        title = f"delivery audit of {', '.join(options.topics)}"
        print_table(console, table(title, rows if len(rows) <= MOST_ROWS else by_place))
        if totals.missing:
            ranges = _rows(found.missing.orderBy("topic", "producer", "first").limit(MOST_ROWS + 1))
            print_table(console, missing_table(ranges[:MOST_ROWS]))
            if len(ranges) > MOST_ROWS:
                console.print(f"and more: all of them are in {place}/missing", soft_wrap=True, markup=False)
        console.print("\n".join(notes(totals, found.unmarked, bool(options.statements))), soft_wrap=True)
        console.print(f"tables: {place}/delivery, {place}/missing", soft_wrap=True, markup=False)
        if options.pictures:
            from aioproducer.spark.audit.pictures import draw

            by_time = _rows(_summed(found.table, "bucket").orderBy("bucket"))
            drawn = draw(by_time, by_place, options.output, title)
            console.print(f"pictures: {', '.join(map(str, drawn))}", soft_wrap=True, markup=False)
    finally:
        found.forget()
    console.print(("[green]" if totals.clean else "[red]") + _sentence(totals))
    return DONE if totals.clean else SOME_FAILED


def _summed(frame: DataFrame, *by: str) -> DataFrame:
    """Sums of the counts, and the highest latencies."""
    from pyspark.sql import functions as F

    sums = [F.sum(name).alias(name) for name in COUNTS]
    return frame.groupBy(*by).agg(*sums, *(F.max(name).alias(name) for name in LATENCIES))


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    """The rows, with times in UTC: Spark gives them in this machine's time zone, and does not say so."""
    return [{name: _in_utc(value) for name, value in row.asDict().items()} for row in frame.collect()]


def _in_utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """The rows as a table; empty columns are omitted."""
    names = [name for name in (*COUNTS, *LATENCIES) if any(row[name] is not None for row in rows)]
    timed = any("bucket" in row for row in rows)
    result = Table("partition", *(["from, UTC"] if timed else []), title=title, title_justify="left", box=None)
    for name in names:
        result.add_column(name.removesuffix("_ms").replace("_", " "), justify="right")
    for row in rows:
        place = f"{row['topic']}-{'?' if row['partition'] is None else row['partition']}"
        cells = ["" if row[name] is None else _cell(name, row[name]) for name in names]
        result.add_row(place, *([f"{row['bucket']:%Y-%m-%d %H:%M:%S}"] if timed else []), *cells)
    return result


def missing_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The missing ranges."""
    result = Table("partition", "producer", "first", "last", "records", "acknowledged", box=None)
    for row in rows:
        place = f"{row['topic']}-{'?' if row['partition'] is None else row['partition']}"
        known = "yes" if row["acknowledged"] else "unknown"
        # A mark has only plain characters; a statement is a file that anybody may have written.
        producer = Text(printable(row["producer"]))
        result.add_row(place, producer, *(f"{row[name]:,}" for name in ("first", "last", "records")), known)
    return result


def notes(totals: Totals, unmarked: int | None, has_statements: bool) -> list[str]:
    """Notes needed to interpret the numbers."""
    lines = []
    if unmarked:
        lines.append(f"{unmarked:,} more records have no mark")
    if has_statements:
        silent, open_ones = totals.producers - totals.stated, totals.stated - totals.closed
        if silent:
            lines.append(
                f"{silent:,} of {totals.producers:,} producers stated nothing: losses at their end can't be seen"
            )
        if open_ones:
            lines.append(f"{open_ones:,} producers did not state their end: later losses can't be seen")
    else:
        lines.append(
            "without --statements, losses at the end can't be seen, nor whether missing records were acknowledged"
        )
    return lines


def _cell(name: str, value: int) -> str:
    return f"[red]{value:,}[/]" if value and name in COUNTS[4:] else f"{value:,}"


def _sentence(totals: Totals) -> str:
    producers = f"{totals.producers:,} producer{'' if totals.producers == 1 else 's'}"
    if totals.clean:
        return f"{totals.found:,} records from {producers}: each is there, once, in order."
    return (
        f"{totals.found:,} records from {producers}: {totals.missing:,} missing, "
        f"{totals.duplicated:,} duplicated, {totals.out_of_order:,} out of order."
    )


# --- options ----------------------------------------------------------------------------------------------------------


def moment_ms(text: str | None, option: str) -> int | None:
    """A time in ms since the epoch: ISO 8601, UTC by default, or ``-SECONDS`` for that long ago.

    Raises:
        CommandError: it is neither, or before 1970.
    """
    if text is None:
        return None
    try:
        if re.fullmatch(r"-\d{1,12}", text):
            found_ms = int(time.time() * 1000) + int(text) * 1000
        else:
            moment = datetime.fromisoformat(text)
            found_ms = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except ValueError:
        found_ms = -1
    if found_ms < 0:
        raise CommandError(f"{option} takes a time, such as 2026-01-31T12:00:00Z, or -3600 for an hour ago")
    return found_ms


def pairs(given: Sequence[str], option: str) -> dict[str, str]:
    """Options of the form NAME=VALUE.

    Raises:
        CommandError: one has no ``=``.
    """
    found = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not sign or not name.strip():
            raise CommandError(f"{option} takes name=value")
        found[name.strip()] = value
    return found


_DELETED = "Some data may have been lost because they are not available in Kafka any more"
"""In an error of Spark's Kafka source."""


def reason_of(text: str) -> str:
    """The line of Spark's error with the reason: the deepest cause, without stack trace and query plan."""
    if _DELETED in text:  # the deepest cause is then an offset that is out of range
        return (
            "records were deleted before they were read, by retention or with their topic; "
            "--source-option failOnDataLoss=false goes on with the others, and a topic that was created anew needs "
            "another --state"
        )
    causes = re.findall(r"^(?:Caused by: |: )?(?:[\w$]+\.)+(\w*(?:Exception|Error)): (.+)$", text, re.MULTILINE)
    if causes:
        return one_line(Exception(f"{causes[-1][0]}: {causes[-1][1]}"))
    return one_line(Exception(re.split(r"=== Streaming Query ===|JVM stacktrace", text, maxsplit=1)[0]))
