"""The options and arguments of the commands: their types, their limits and what ``--help`` says of them.

Defaults stand with the commands, in ``app``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aioproducer.cli.perf.load import Mode
from aioproducer.cli.produce.rows import Format

# --- of several commands ----------------------------------------------------------------------------------------------

Bootstrap = Annotated[
    str | None, typer.Option(metavar="HOST:PORT,...", help="Brokers to begin with; localhost:9092 by default.")
]
Config = Annotated[
    list[str] | None,
    typer.Option("--config", "-X", metavar="NAME=VALUE", help="A config of the connection; may be repeated."),
]
Properties = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Configs from a Java .properties file; other options win.")
]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]
TablesOutput = Annotated[Path, typer.Option(help="Directory of pictures and tables.")]
Topic = Annotated[str, typer.Option(help="Where to.")]
Compression = Annotated[str | None, typer.Option(metavar="CODEC", help="none, gzip, snappy, lz4 or zstd.")]

# --- demo, demo-spark -------------------------------------------------------------------------------------------------

DemoBootstrap = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="A Kafka you have; without it one is started and ended.")
]
Flights = Annotated[int | None, typer.Option(min=1, max=336_776, help="How many flights; all by default.")]
PictureOutput = Annotated[Path, typer.Option(help="Directory of the picture.")]
KeepTopic = Annotated[bool, typer.Option(help="Leave the topic in the Kafka of --bootstrap.")]

# --- produce ----------------------------------------------------------------------------------------------------------

InputFile = Annotated[str, typer.Argument(metavar="FILE|-", help="What to send; - is standard input.")]
InputFormat = Annotated[
    Format | None,
    typer.Option(
        help="JSON lines, CSV with a header, lines or Parquet; by default what the file's suffix says, else lines."
    ),
]
KeyField = Annotated[
    str | None, typer.Option(metavar="FIELD", help="The field of each row that becomes the record's key.")
]
ValueColumn = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Parquet: the column of values; else 'value', else rows go as JSON."),
]
HeadersColumn = Annotated[str | None, typer.Option(metavar="COLUMN", help="Parquet: the column of headers.")]
PartitionColumn = Annotated[str | None, typer.Option(metavar="COLUMN", help="Parquet: the column of partitions.")]
TimestampColumn = Annotated[str | None, typer.Option(metavar="COLUMN", help="Parquet: the column of timestamps.")]
ProducerConfig = Annotated[
    list[str] | None,
    typer.Option("--config", "-X", metavar="NAME=VALUE", help="A config of the producer; may be repeated."),
]
RejectsFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Where rows that fail go, with the reason, as JSON lines; by default FILE.rejects. Needed with -.",
    ),
]

# --- doctor -----------------------------------------------------------------------------------------------------------

ExaminedTopic = Annotated[str | None, typer.Option(help="Look at this topic too.")]
WriteProbe = Annotated[
    bool, typer.Option("--write", help="Write one marked record to the topic; without this nothing is written.")
]
StepTimeout = Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="For each step.")]

# --- perf -------------------------------------------------------------------------------------------------------------

NumRecords = Annotated[int, typer.Option(min=1, help="How many records, those to warm up included.")]
RecordSize = Annotated[
    int | None, typer.Option(min=0, metavar="BYTES", help="Of each record's value, which is random letters.")
]
PayloadFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Take the values from this file instead.")]
PayloadDelimiter = Annotated[str, typer.Option(help="What stands between the values of the file.")]
KeySize = Annotated[int, typer.Option(min=0, metavar="BYTES", help="Of keys; 0 for records without key.")]
Throughput = Annotated[
    float, typer.Option(metavar="RECORDS/S", help="How many records a second; -1 for as many as go.")
]
SendMode = Annotated[Mode, typer.Option(help="By which call of the producer.")]
Concurrency = Annotated[
    int | None, typer.Option(min=1, help="How many calls at a time; 100 for send, 2 for send_many.")
]
Chunk = Annotated[int, typer.Option(min=1, metavar="RECORDS", help="Of one send_many.")]
WarmupRecords = Annotated[int, typer.Option(min=0, help="So many are sent first, and not measured.")]
Transactional = Annotated[bool, typer.Option("--transactional", help="Send in transactions.")]
TransactionalId = Annotated[str | None, typer.Option(help="The same, with this id.")]
TransactionDurationMs = Annotated[
    int | None, typer.Option(min=1, help="The same, each going on for so long; 3000 by default.")
]
ReportingInterval = Annotated[
    int, typer.Option(min=1, metavar="MS", help="How often there is a line, where there are no live bars.")
]
Live = Annotated[bool, typer.Option(help="Live bars on a terminal.")]
PrintMetrics = Annotated[bool, typer.Option("--print-metrics", help="Show the producer's metrics too.")]
JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write everything here.")]
PictureFile = Annotated[Path | None, typer.Option("--picture", metavar="FILE", help="Draw it, as .svg, .png or .pdf.")]
PerfBootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap", "--bootstrap-server", metavar="HOST:PORT,...", help="Brokers; localhost:9092 by default."
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
        help="A config of the producer; may be repeated.",
    ),
]
MorePerfConfig = Annotated[
    list[str] | None, typer.Argument(metavar="NAME=VALUE", help="Further configs, behind the first of an option.")
]
PerfProperties = Annotated[
    Path | None,
    typer.Option(
        "--properties",
        "--command-config",
        "--producer.config",
        metavar="FILE",
        help="Configs from a Java .properties file.",
    ),
]

# --- topics, describe, config -----------------------------------------------------------------------------------------

TopicWords = Annotated[
    list[str] | None, typer.Argument(metavar="WORD", help="Show only topics with all these in their names.")
]
Internal = Annotated[bool, typer.Option("--internal", help="Also those that Kafka made for itself.")]
TopicNames = Annotated[list[str], typer.Argument(metavar="TOPIC", help="What to describe.")]
ConfigWords = Annotated[
    list[str] | None, typer.Argument(metavar="WORD", help="Show only configs with all these words.")
]

# --- audit ------------------------------------------------------------------------------------------------------------

AuditedTopics = Annotated[list[str], typer.Argument(metavar="TOPIC", help="What to audit.")]
Statements = Annotated[
    list[str] | None,
    typer.Option(metavar="PATH", help="What producers have stated: a file, directory or URI; may be repeated."),
]
TablesUri = Annotated[
    str | None, typer.Option(metavar="URI", help="Where the tables go instead, as Parquet; for clusters.")
]
BucketSeconds = Annotated[int, typer.Option(min=1, metavar="SECONDS", help="Length of a time bucket.")]
Since = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only what was sent from then on; ISO 8601, or -SECONDS.")
]
Until = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only what was sent before; -60 where producers are at work.")
]
ReadUncommitted = Annotated[bool, typer.Option(help="Also what aborted transactions have written.")]
StateUri = Annotated[
    str | None,
    typer.Option(metavar="URI", help="Directory of what was found; the next call goes on from there."),
]
EverySeconds = Annotated[
    int | None,
    typer.Option(min=1, metavar="SECONDS", help="With --state: go on until Ctrl-C, and look so often."),
]
LagSeconds = Annotated[
    int, typer.Option(min=0, metavar="SECONDS", help="With --state: what is younger is not missing yet.")
]
Master = Annotated[
    str | None, typer.Option(metavar="URL", help="A Spark cluster; by default Spark runs in this process.")
]
SparkConfig = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="A config of Spark; may be repeated.")
]
SourceOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="An option of Spark's Kafka source; may be repeated."),
]
Pictures = Annotated[bool, typer.Option(help="Draw.")]

# --- transactions -----------------------------------------------------------------------------------------------------

ListedPrefix = Annotated[str, typer.Option(help="Only transactional ids that begin with this.")]
TransactionStates = Annotated[
    list[str] | None, typer.Option(help="Only those in this state, such as Ongoing; may be repeated.")
]
AbortedPrefix = Annotated[str, typer.Option(help="Of the transactional ids.")]
KeptIds = Annotated[
    list[str] | None, typer.Option(metavar="ID", help="A transactional id to be left alone; may be repeated.")
]
WithoutAsking = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
