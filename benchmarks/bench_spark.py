"""How many rows a second does Spark write to Kafka, compared with its own sink?"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from rich.console import Console

from aioproducer.spark import local_session
from aioproducer.spark.environment import CONNECTOR
from benchmarks import report
from benchmarks.payloads import WORDS
from benchmarks.peers import Client
from benchmarks.plan import RATE, SERVER_CPU, Bench, Case, Measure
from benchmarks.runner import MachineUsage, Run, as_json
from benchmarks.servers import PARTITIONS, BrokerServer, Visit, broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REPOSITORY = Path(__file__).parent.parent
TASKS = 2
DRIVER_MEMORY = "2g"
WARM_UP_ROUNDS = 2
"""Rounds until Spark's JVM has compiled its hot code and the Python workers are running."""
WARM_UP_RECORDS = 2
WARM_UP_VALUE = bytes(5_000)
"""A broker creates a new partition's index files at the first record after 4 KiB, and answers it 40 to 300 ms late.
This value makes that happen before a measured write begins."""
FIRST_ID = 10_000_000
"""All ids have the same number of digits, so all records have the same size."""
READ_TIMEOUT_S = 300

INTRODUCTION = """\
# Benchmarks: Spark

Written by `make bench-spark` on {today}. One Spark session, `local[{tasks}]` with {memory} of driver memory, one broker
on the same machine. Every way of writing writes the same rows, one after the other and round by round, after two rounds
that do not count. The rows have a key (8 bytes, the id) and a value (JSON of the size given in the column); Spark makes
them while it writes them, so all figures include what a row costs Spark itself. Topics have {partitions} partitions; no
compression, otherwise the clients' own defaults, which are acks=all and idempotence for both. Each run has a topic of
its own, with {warm_up} records in each partition beforehand, so that the broker has created its files. Before each run,
as much memory as it writes, plus 1 GiB, is touched for a moment: memory that a virtual machine has given back to its
host costs seconds per gigabyte to fetch again, which would be charged to the broker that writes to it.

Cells: **median** (least-most) of the rounds, and the median's ratio to the first row's. The time is that of `save()`:
planning, tasks and commit. CPU seconds are those of Spark, JVM and Python workers together. A run counts only if the
broker has exactly as many records as there were rows; with exactly-once, a `read_committed` consumer reads them back.
"""

SPARK_CPU = Measure(
    "cpu_seconds_per_million", "Spark's CPU seconds (JVM and Python) per million rows", "s", 1, less_is_better=True
)


class NothingSource(DataSource):
    """Takes Arrow batches and drops them: Spark's own cost of passing rows to Python."""

    @classmethod
    def name(cls) -> str:
        return "nothing"

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return NothingWriter()


class NothingWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


@dataclass(frozen=True, slots=True)
class RowsCase(Case):
    """A number of equally large rows."""

    rows: int = 0


@dataclass(frozen=True, slots=True)
class Way(Client):
    """One way of writing a DataFrame.

    Attributes:
        source: the argument of ``format``.
        options: besides servers and topic.
        transactions: whether it writes exactly once.
        writes: whether anything reaches the broker.
    """

    source: str = "aioproducer"
    options: Mapping[str, str] = field(default_factory=dict, hash=False)
    transactions: bool = False
    writes: bool = True


WAYS: Final = (
    Way("Spark's own sink", "pyspark", "", '`format("kafka")`, a JVM producer', source="kafka"),
    Way("aioproducer", "aioproducer", "", '`format("aioproducer")`, at least once'),
    Way("aioproducer, exactly once", "aioproducer", "", "with `transactional.id.prefix`", transactions=True),
    Way("aioproducer, rows", "aioproducer", "", "`writer=rows`: a Python object per row", options={"writer": "rows"}),
    Way("nothing", "pyspark", "", "Arrow batches to a Python writer that drops them", source="nothing", writes=False),
)

SIZES = ((100, "100 B"), (1_024, "1 KB"))
BENCH: Final = Bench(
    slug="spark",
    question=__doc__,
    server="broker",
    cases=tuple(
        RowsCase(f"{name}, {millions} M rows", size, "none", quick=millions == 1, rows=millions * 1_000_000)
        for size, name in SIZES
        for millions in (1, 5)
    ),
    clients=WAYS,
    measures=(RATE, SPARK_CPU, SERVER_CPU),
)


class Session:
    """A Spark session, and its cost so far."""

    def __init__(self, work: Path) -> None:
        configs = {"spark.log.level": "ERROR", "spark.driver.memory": DRIVER_MEMORY, "spark.local.dir": work}
        self.spark: SparkSession = local_session("bench", cores=TASKS, configs=configs)
        self.spark.dataSource.register(NothingSource)
        self._jvm = psutil.Process(self.spark.sparkContext._gateway.proc.pid)
        self._logs = (work / f"log-{number}" for number in itertools.count())
        self._used: dict[psutil.Process, float] = {}

    def rows(self, value_bytes: int, count: int) -> DataFrame:
        """Rows with a key and a JSON value of the given size."""
        rng = random.Random(value_bytes)
        filling = " ".join(rng.choice(WORDS) for _ in range(value_bytes))
        text = filling[: value_bytes - len(f'{{"id":{FIRST_ID},"text":""}}')]
        key = "CAST(id AS STRING)"
        value = f"""concat('{{"id":', {key}, ',"text":"{text}"}}')"""
        return self.spark.range(FIRST_ID, FIRST_ID + count, 1, TASKS).selectExpr(f"{key} AS key", f"{value} AS value")

    def write(self, rows: DataFrame, way: Way, visit: Visit) -> None:
        """Write the rows and return when the query has ended."""
        options = {"kafka.bootstrap.servers": visit.bootstrap, "topic": visit.topic, **way.options}
        if way.transactions:
            options |= {"transactional.id.prefix": "bench", "transactionLog": str(next(self._logs))}
        rows.write.format(way.source).options(**(options if way.writes else {})).mode("append").save()

    def cpu_seconds(self) -> float:
        """CPU seconds of JVM and Python workers so far; for ended workers, the last value seen.

        Spark's daemon does not wait for its forked workers, so their usage is not added to its own.
        """
        for process in (self._jvm, *self._jvm.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                self._used[process] = sum(process.cpu_times()[:2])
        return sum(self._used.values())


def run_once(run: Run, case: RowsCase, way: Way, session: Session, server: BrokerServer) -> Run:
    """Write once, and check what reached the broker."""
    usage, rows = MachineUsage(), session.rows(case.value_bytes, case.rows)
    with server.visit(case.codec, payload_bytes=case.rows * case.value_bytes) as visit:
        before = begin_partitions(visit)
        cpu_seconds, started = session.cpu_seconds(), time.perf_counter()
        session.write(rows, way, visit)
        seconds, cpu_seconds = time.perf_counter() - started, session.cpu_seconds() - cpu_seconds
        if way.transactions:
            found = committed_records(visit)
            expected = before + case.rows
            run.problems += [] if found == expected else [f"a reader sees {found} records, not {expected}"]
        else:
            visit.sent = before + (case.rows if way.writes else 0)
    run.problems += visit.problems
    run.figures = {"records_per_second": case.rows / seconds, "cpu_seconds_per_million": cpu_seconds / case.rows * 1e6}
    if visit.server_cpu_seconds is not None and way.writes and not way.transactions:
        run.figures["server_cpu_seconds_per_million"] = visit.server_cpu_seconds / case.rows * 1e6
    if not way.transactions:
        run.strangers_cores = usage.strangers_cores(cpu_seconds + (visit.server_cpu_seconds or 0.0))
    return run


def begin_partitions(visit: Visit) -> int:
    """Make the broker create each partition's files; returns the number of records written for that."""
    producer = Producer({"bootstrap.servers": visit.bootstrap})
    for _ in range(WARM_UP_RECORDS):
        for number in range(PARTITIONS):
            producer.produce(visit.topic, WARM_UP_VALUE, partition=number)
        producer.flush()
    return WARM_UP_RECORDS * PARTITIONS


def committed_records(visit: Visit) -> int:
    """How many records a read_committed reader gets."""
    reader = Consumer(
        {
            "bootstrap.servers": visit.bootstrap,
            "group.id": "aioproducer-bench",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    found, missing, deadline = 0, set(range(PARTITIONS)), time.monotonic() + READ_TIMEOUT_S
    try:
        reader.assign([TopicPartition(visit.topic, number, 0) for number in missing])
        while missing and time.monotonic() < deadline:
            for message in reader.consume(10_000, timeout=1):
                if (error := message.error()) is None:
                    found += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    missing.discard(message.partition())
    finally:
        reader.close()
    return found


def run_all(cases: Sequence[RowsCase], repeats: int, bootstrap: str | None, console: Console) -> report.Section:
    """Run every case in every way, round by round."""
    runs = []
    with tempfile.TemporaryDirectory() as work, broker(bootstrap) as server:
        session = Session(Path(work))
        try:
            for way in WAYS * WARM_UP_ROUNDS:
                console.print(f"warming up: {way.name}", markup=False)
                run_once(Run(BENCH.slug, cases[0].name, way.name, -1), cases[0], way, session, server)
            for repeat, case, way in itertools.product(range(repeats), cases, WAYS):
                run = run_once(Run(BENCH.slug, case.name, way.name, repeat), case, way, session, server)
                rate = run.figures["records_per_second"] / 1_000
                trouble = f" {run.problems}" if run.problems else ""
                console.print(f"{case.name}, {way.name}: {rate:,.0f} thousand rows/s{trouble}", markup=False)
                runs.append(run)
        finally:
            session.spark.stop()
        return report.section(replace(BENCH, cases=tuple(cases)), list(WAYS), server.describe(), runs)


def write(part: report.Section, directory: Path) -> list[Path]:
    """Write the document and its picture."""
    directory.mkdir(parents=True, exist_ok=True)
    introduction = INTRODUCTION.format(
        today=f"{datetime.now(UTC):%Y-%m-%d}",
        tasks=TASKS,
        memory=DRIVER_MEMORY,
        partitions=PARTITIONS,
        warm_up=WARM_UP_RECORDS,
    )
    versions = [*report.machine(), *report.versions(WAYS), ("connector", CONNECTOR.name)]
    lines = [introduction, *report.table(("what", "version"), versions), "", *part.markdown()]
    document = directory / "benchmarks-spark.md"
    document.write_text("\n".join(lines), encoding="utf-8")
    return [document, *part.draw(directory)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments select; 1 if a run could not be verified."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a million rows only, one round, written to out/")
    parser.add_argument("--repeats", type=int, help="rounds; a median and its spread need three")
    names = [case.name for case in BENCH.cases]
    parser.add_argument("--case", action="append", choices=names, help="this one; repeatable")
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a cluster that is there, instead of one of its own")
    parser.add_argument("--output", type=Path, help="folder to write to (docs for all cases, else out)")
    options = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    wanted = options.case or [case.name for case in BENCH.cases if case.quick or not options.quick]
    cases = [case for case in BENCH.cases if isinstance(case, RowsCase) and case.name in wanted]
    part = run_all(cases, options.repeats or (1 if options.quick else 3), options.bootstrap, console)
    for table in report.terminal_tables(part):
        console.print(table)
    console.print(part.verified())
    paths = write(part, options.output or REPOSITORY / ("out" if options.quick or options.case else "docs"))
    raw = (options.output or REPOSITORY / "out") / "benchmarks-spark.json"
    raw.parent.mkdir(exist_ok=True)
    raw.write_text(json.dumps(as_json(part.runs), indent=1))
    for path in (*paths, raw):
        console.print(f"written: {os.path.relpath(path)}", markup=False)
    return 1 if any(run.problems for run in part.runs) else 0


if __name__ == "__main__":
    from benchmarks.bench_spark import main as importable_main

    sys.exit(importable_main())
