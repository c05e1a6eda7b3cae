"""The options and arguments of the commands: their types, their limits and their ``--help`` texts.

Defaults are with the commands, in ``app``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aioproducer.cli.perf.load import Mode
from aioproducer.cli.produce.rows import Format

# --- shared by commands -----------------------------------------------------------------------------------------------

Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Show the producer's log: connections, retries, refreshes."),
]
Bootstrap = Annotated[
    str | None, typer.Option(metavar="HOST:PORT,...", help="Bootstrap servers; localhost:9092 by default.")
]
Config = Annotated[
    list[str] | None,
    typer.Option("--config", "-X", metavar="NAME=VALUE", help="A connection config; may be repeated."),
]
Properties = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Read a Java .properties file; other options override it."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
TablesOutput = Annotated[Path, typer.Option(help="Directory for pictures and tables.")]
Topic = Annotated[str, typer.Option(help="Topic to send to.")]
Compression = Annotated[str | None, typer.Option(metavar="CODEC", help="none, gzip, snappy, lz4 or zstd.")]

# --- demo, demo-spark -------------------------------------------------------------------------------------------------

DemoBootstrap = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="A running Kafka; by default one is started for the demo.")
]
Flights = Annotated[int | None, typer.Option(min=1, max=336_776, help="Number of flights; all by default.")]
PictureOutput = Annotated[Path, typer.Option(help="Directory for the picture.")]
KeepTopic = Annotated[bool, typer.Option(help="Keep the topic in the Kafka of --bootstrap.")]

# --- produce ----------------------------------------------------------------------------------------------------------

InputFile = Annotated[str, typer.Argument(metavar="FILE|-", help="File to send; - is standard input.")]
InputFormat = Annotated[
    Format | None,
    typer.Option(
        help="JSON lines, CSV with a header, plain lines or Parquet; by default as the file's suffix says, else lines."
    ),
]
KeyField = Annotated[str | None, typer.Option(metavar="FIELD", help="Field of each row that becomes the record's key.")]
ValueColumn = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Parquet: column of values; by default 'value' if present, else rows as JSON."),
]
HeadersColumn = Annotated[str | None, typer.Option(metavar="COLUMN", help="Parquet: column of headers.")]
PartitionColumn = Annotated[str | None, typer.Option(metavar="COLUMN", help="Parquet: column of partitions.")]
TimestampColumn = Annotated[str | None, typer.Option(metavar="COLUMN", help="Parquet: column of timestamps.")]
ProducerConfig = Annotated[
    list[str] | None,
    typer.Option("--config", "-X", metavar="NAME=VALUE", help="A producer config; may be repeated."),
]
RejectsFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Where to write rows that fail, with the reason, as JSON lines; FILE.rejects by default, - for standard "
        "output. Required with -.",
    ),
]

# --- doctor -----------------------------------------------------------------------------------------------------------

ExaminedTopic = Annotated[str | None, typer.Option(help="Check this topic too.")]
WriteProbe = Annotated[
    bool, typer.Option("--write", help="Write one marked record to the topic; otherwise nothing is written.")
]
StepTimeout = Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Timeout for each step.")]

# --- perf -------------------------------------------------------------------------------------------------------------

NumRecords = Annotated[int, typer.Option(min=1, help="Number of records, warm-up included.")]
RecordSize = Annotated[
    int | None, typer.Option(min=0, metavar="BYTES", help="Size of each record's value, in random letters.")
]
PayloadFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Take the values from this file instead.")]
PayloadDelimiter = Annotated[str, typer.Option(show_default=r"\n", help="Delimiter between the values in the file.")]
KeySize = Annotated[int, typer.Option(min=0, metavar="BYTES", help="Size of each key; 0 for records without a key.")]
Throughput = Annotated[float, typer.Option(metavar="RECORDS/S", help="Target rate; -1 for no limit.")]
SendMode = Annotated[Mode, typer.Option(help="The producer call to use.")]
Concurrency = Annotated[
    int | None, typer.Option(min=1, help="Concurrent calls; by default 100 for send, 2 for send_many.")
]
Chunk = Annotated[int, typer.Option(min=1, metavar="RECORDS", help="Records per send_many call.")]
WarmupRecords = Annotated[int, typer.Option(min=0, help="Records to send first, unmeasured.")]
Transactional = Annotated[bool, typer.Option("--transactional", help="Send in transactions.")]
TransactionalId = Annotated[str | None, typer.Option(help="Send in transactions, with this id.")]
TransactionDurationMs = Annotated[
    int | None, typer.Option(min=1, help="Send in transactions, each this long; 3000 by default.")
]
ReportingInterval = Annotated[
    int, typer.Option(min=1, metavar="MS", help="How often to print a line, where there are no live bars.")
]
Live = Annotated[bool, typer.Option(help="Show live bars on a terminal.")]
PrintMetrics = Annotated[bool, typer.Option("--print-metrics", help="Show the producer's metrics too.")]
JsonFile = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write the full report to this file; to standard output with -."),
]
PictureFile = Annotated[
    Path | None, typer.Option("--picture", metavar="FILE", help="Draw the report as a .svg, .png or .pdf file.")
]
PerfBootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "--bootstrap-server",
        metavar="HOST:PORT,...",
        help="Bootstrap servers; localhost:9092 by default.",
    ),
]
PerfConfig = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        "-X",
        "--command-property",
        "--producer-props",
        metavar="NAME=VALUE",
        help="A producer config; may be repeated.",
    ),
]
MorePerfConfig = Annotated[
    list[str] | None, typer.Argument(metavar="NAME=VALUE", help="More configs, as in --producer-props A=1 B=2.")
]
PerfProperties = Annotated[
    Path | None,
    typer.Option(
        "--properties",
        "--command-config",
        "--producer.config",
        metavar="FILE",
        help="Read a Java .properties file.",
    ),
]

# --- topics, describe, config -----------------------------------------------------------------------------------------

TopicWords = Annotated[
    list[str] | None, typer.Argument(metavar="WORD", help="Show only topics whose names contain all these words.")
]
Internal = Annotated[bool, typer.Option("--internal", help="Include Kafka's internal topics.")]
TopicNames = Annotated[list[str], typer.Argument(metavar="TOPIC", help="Topics to describe.")]
ConfigWords = Annotated[
    list[str] | None, typer.Argument(metavar="WORD", help="Show only configs that contain all these words.")
]

# --- audit ------------------------------------------------------------------------------------------------------------

AuditedTopics = Annotated[list[str], typer.Argument(metavar="TOPIC", help="Topics to audit.")]
Statements = Annotated[
    list[str] | None,
    typer.Option(metavar="PATH", help="Statements of the producers: a file, directory or URI; may be repeated."),
]
TablesUri = Annotated[
    str | None, typer.Option(metavar="URI", help="Write the Parquet tables here instead; for Spark clusters.")
]
BucketSeconds = Annotated[int, typer.Option(min=1, metavar="SECONDS", help="Length of a time bucket.")]
Since = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only records sent from then on; ISO 8601, or -SECONDS.")
]
Until = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only records sent before; use -60 while producers are running.")
]
ReadUncommitted = Annotated[bool, typer.Option(help="Include records of aborted transactions.")]
StateUri = Annotated[
    str | None,
    typer.Option(metavar="URI", help="Directory that keeps the findings; the next run continues from there."),
]
EverySeconds = Annotated[
    int | None,
    typer.Option(min=1, metavar="SECONDS", help="With --state: repeat at this interval, until Ctrl-C."),
]
LagSeconds = Annotated[
    int, typer.Option(min=0, metavar="SECONDS", help="With --state: younger records do not count as missing yet.")
]
Master = Annotated[
    str | None, typer.Option(metavar="URL", help="Spark cluster to use; by default Spark runs in this process.")
]
SparkConfig = Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A Spark config; may be repeated.")]
SourceOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="An option of Spark's Kafka source; may be repeated."),
]
Pictures = Annotated[bool, typer.Option(help="Draw pictures.")]

# --- transactions -----------------------------------------------------------------------------------------------------

ListedPrefix = Annotated[str, typer.Option(help="Only transactional ids that start with this.")]
TransactionStates = Annotated[
    list[str] | None, typer.Option(help="Only ids in this state, such as Ongoing; may be repeated.")
]
AbortedPrefix = Annotated[str, typer.Option(help="Prefix of the transactional ids.")]
KeptIds = Annotated[
    list[str] | None, typer.Option(metavar="ID", help="A transactional id to leave alone; may be repeated.")
]
WithoutAsking = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
