"""The commands and their options. What they do is in the packages beside this file, imported when a command runs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from aioproducer.cli.outcome import INTERRUPTED, CommandError
from aioproducer.cli.perf.load import Mode
from aioproducer.cli.produce.rows import Format, format_of
from aioproducer.version import VERSION

app = typer.Typer(
    help="An Apache Kafka producer for asyncio.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _finish(command: Callable[[], int]) -> NoReturn:
    """Run a command and end the process with its exit code; what it can't do is one line, not a traceback."""
    try:
        exit_code = command()
    except CommandError as error:
        print(f"aioproducer: {error}", file=sys.stderr)
        exit_code = error.exit_code
    except KeyboardInterrupt:
        print("aioproducer: interrupted", file=sys.stderr)
        exit_code = INTERRUPTED
    raise typer.Exit(exit_code)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"aioproducer {VERSION}")
        raise typer.Exit


def _show_logs(wanted: bool) -> None:
    """Without this Python would write warnings between the lines of a command, which says in the end what failed."""
    log = logging.getLogger("aioproducer")
    if wanted:
        handler: logging.Handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        log.setLevel(logging.INFO)
    else:
        handler = logging.NullHandler()
    log.addHandler(handler)


transactions = typer.Typer(
    help="Look at transactions of a cluster, and end those that a crashed program left open.", no_args_is_help=True
)
app.add_typer(transactions, name="transactions")

BootstrapOption = Annotated[
    str | None, typer.Option(metavar="HOST:PORT,...", help="Brokers to begin with; localhost:9092 by default.")
]
ConfigOption = Annotated[
    list[str] | None,
    typer.Option("--config", "-X", metavar="NAME=VALUE", help="A config of the connection; may be repeated."),
]
PropertiesOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Configs from a Java .properties file; other options win.")
]


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show what the producer logs: connections, retries, refreshes.")
    ] = False,
) -> None:
    _show_logs(verbose)


@app.command()
def demo(
    bootstrap: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="A Kafka you have; without it one is started and ended.")
    ] = None,
    records: Annotated[int | None, typer.Option(min=1, max=336_776, help="How many flights; all by default.")] = None,
    output: Annotated[Path, typer.Option(help="Directory of the picture.")] = Path("out"),
    keep_topic: Annotated[bool, typer.Option(help="Leave the topic in the Kafka of --bootstrap.")] = False,
) -> None:
    """Publish 336,776 real flights into a real Kafka, read them back with another client, and compare.

    Exit code 0: every record came back as it was sent; 1: not so; 2: it could not run; 130: interrupted.
    """
    from aioproducer.cli.demo.run import run

    _finish(lambda: run(bootstrap=bootstrap, records=records, output=output, keep_topic=keep_topic))


@app.command("demo-spark")
def demo_spark(
    bootstrap: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="A Kafka you have; without it one is started and ended.")
    ] = None,
    output: Annotated[Path, typer.Option(help="Directory of pictures and tables.")] = Path("out/demo-spark"),
) -> None:
    """Write 336,776 real flights from a CSV file through Spark into Kafka, exactly once, and prove it by an audit.

    Exit code 0: each record is there, once, in order; 1: not so; 2: it could not run; 130: interrupted.
    """

    def command() -> int:
        from aioproducer.cli.demo.spark import run

        return run(bootstrap=bootstrap, output=output)

    _finish(command)


@app.command()
def produce(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="What to send; - is standard input.")],
    topic: Annotated[str, typer.Option(help="Where to.")],
    bootstrap: Annotated[
        str | None, typer.Option(metavar="HOST:PORT,...", help="Brokers to begin with; localhost:9092 by default.")
    ] = None,
    format: Annotated[
        Format | None,
        typer.Option(
            help="JSON lines, CSV with a header, lines or Parquet; by default what the file's suffix says, else lines."
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="FIELD", help="The field of each row that becomes the record's key.")
    ] = None,
    value: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Parquet: the column of values; else 'value', else rows go as JSON."),
    ] = None,
    headers: Annotated[str | None, typer.Option(metavar="COLUMN", help="Parquet: the column of headers.")] = None,
    partition: Annotated[str | None, typer.Option(metavar="COLUMN", help="Parquet: the column of partitions.")] = None,
    timestamp: Annotated[str | None, typer.Option(metavar="COLUMN", help="Parquet: the column of timestamps.")] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-X", metavar="NAME=VALUE", help="A config of the producer; may be repeated."),
    ] = None,
    properties: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Configs from a Java .properties file; other options win.")
    ] = None,
    compression: Annotated[str | None, typer.Option(metavar="CODEC", help="none, gzip, snappy, lz4 or zstd.")] = None,
    rejects: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where rows that fail go, with the reason, as JSON lines; by default FILE.rejects. Needed with -.",
        ),
    ] = None,
) -> None:
    """Send the rows of a file (JSON lines, CSV, lines, Parquet), or of standard input, to a topic.

    Every row that is read ends as acked, failed (given to the producer, not acknowledged) or rejected (never sent).
    Ctrl-C ends the reading; what was read is still sent, and counted. Exit code 0: all acked; 1: some not; 2: nothing
    could be sent at all; 130: interrupted.
    """

    def command() -> int:
        from aioproducer.cli.produce import parquet
        from aioproducer.cli.produce.run import plan, run
        from aioproducer.cli.settings import make_producer

        columns = {"value": value, "headers": headers, "partition": partition, "timestamp": timestamp}
        given = {part: name for part, name in columns.items() if name is not None}
        if (format or format_of(file)) is Format.PARQUET:
            producer = make_producer(properties, config or (), bootstrap=bootstrap, compression=compression)
            wanted = given if key is None else {"key": key, **given}
            return parquet.run(producer, topic, file, wanted, rejects)
        if given:
            raise CommandError(f"--{next(iter(given))} names a column of a Parquet file, and this is none")
        what = plan(file, format, key, rejects)
        return run(make_producer(properties, config or (), bootstrap=bootstrap, compression=compression), topic, what)

    _finish(command)


@app.command()
def doctor(
    bootstrap: BootstrapOption = None,
    topic: Annotated[str | None, typer.Option(help="Look at this topic too.")] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write one marked record to the topic; without this nothing is written.")
    ] = False,
    timeout: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="For each step.")] = 10.0,
    config: ConfigOption = None,
    properties: PropertiesOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """Find out what keeps a producer from its cluster, and what to do about it.

    Looks at every bootstrap address and at every address that a broker advertises: name, TCP, TLS, login, versions;
    and at a topic: is it there, may it be written to, are leaders and replicas there. Exit code 0: a producer can
    work; 1: it can't; 2: the options or configs are not usable; 130: interrupted.
    """

    def command() -> int:
        from aioproducer.cli.doctor import examine
        from aioproducer.cli.settings import configs_of

        configs = configs_of(properties, config or (), bootstrap=bootstrap)
        return examine(configs, topic=topic, write=write, timeout_s=timeout, as_json=as_json)

    _finish(command)


@app.command()
def perf(
    topic: Annotated[str, typer.Option(help="Where to.")],
    num_records: Annotated[int, typer.Option(min=1, help="How many records, those to warm up included.")],
    record_size: Annotated[
        int | None, typer.Option(min=0, metavar="BYTES", help="Of each record's value, which is random letters.")
    ] = None,
    payload_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Take the values from this file instead.")
    ] = None,
    payload_delimiter: Annotated[str, typer.Option(help="What stands between the values of the file.")] = "\n",
    key_size: Annotated[int, typer.Option(min=0, metavar="BYTES", help="Of keys; 0 for records without key.")] = 0,
    throughput: Annotated[
        float, typer.Option(metavar="RECORDS/S", help="How many records a second; -1 for as many as go.")
    ] = -1,
    mode: Annotated[Mode, typer.Option(help="By which call of the producer.")] = Mode.SUBMIT_NOWAIT,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="How many calls at a time; 100 for send, 2 for send_many.")
    ] = None,
    chunk: Annotated[int, typer.Option(min=1, metavar="RECORDS", help="Of one send_many.")] = 10_000,
    compression: Annotated[str | None, typer.Option(metavar="CODEC", help="none, gzip, snappy, lz4 or zstd.")] = None,
    warmup_records: Annotated[int, typer.Option(min=0, help="So many are sent first, and not measured.")] = 0,
    transactional: Annotated[bool, typer.Option("--transactional", help="Send in transactions.")] = False,
    transactional_id: Annotated[str | None, typer.Option(help="The same, with this id.")] = None,
    transaction_duration_ms: Annotated[int, typer.Option(min=1, help="How long each of them goes on.")] = 3_000,
    reporting_interval: Annotated[
        int, typer.Option(min=1, metavar="MS", help="How often there is a line, where there are no live bars.")
    ] = 5_000,
    live: Annotated[bool, typer.Option(help="Live bars on a terminal.")] = True,
    print_metrics: Annotated[bool, typer.Option("--print-metrics", help="Show the producer's metrics too.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write everything here.")] = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE", help="Draw it, as .svg, .png or .pdf.")
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap", "--bootstrap-server", metavar="HOST:PORT,...", help="Brokers; localhost:9092 by default."
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            "-X",
            "--producer-props",
            metavar="NAME=VALUE",
            help="A config of the producer; may be repeated.",
        ),
    ] = None,
    properties: Annotated[
        Path | None,
        typer.Option("--properties", "--producer.config", metavar="FILE", help="Configs from a Java .properties file."),
    ] = None,
) -> None:
    """Measure: send records to a topic, and show rate and latencies. Options as of kafka-producer-perf-test.

    With --throughput a record's latency counts from the moment when it was due, so that waiting shows. Ctrl-C ends the
    sending, and shows what was measured so far. Exit code 0: all were acknowledged; 1: some not; 2: nothing could be
    sent; 130: interrupted.
    """

    def command() -> int:
        from aioproducer.cli.perf.run import PerfOptions, run
        from aioproducer.cli.settings import configs_of

        configs = configs_of(properties, config or (), bootstrap=bootstrap)
        if compression is not None:
            configs["compression.type"] = compression
        return run(
            PerfOptions(
                configs=configs,
                topic=topic,
                num_records=num_records,
                record_size=record_size,
                payload_file=payload_file,
                payload_delimiter=payload_delimiter.replace("\\n", "\n").replace("\\t", "\t"),
                key_size=key_size,
                throughput=throughput,
                mode=mode,
                concurrency=concurrency,
                chunk=chunk,
                warmup_records=warmup_records,
                transactional=transactional,
                transactional_id=transactional_id,
                transaction_duration_ms=transaction_duration_ms,
                reporting_interval_ms=reporting_interval,
                print_metrics=print_metrics,
                live=live,
                json_file=json_file,
                picture_file=picture,
            )
        )

    _finish(command)


JsonOption = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]


@app.command()
def topics(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[WORD]...", help="Show only topics with all these in their names.")
    ] = None,
    internal: Annotated[bool, typer.Option("--internal", help="Also those that Kafka made for itself.")] = False,
    bootstrap: BootstrapOption = None,
    config: ConfigOption = None,
    properties: PropertiesOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the topics that a producer sees: partitions, replicas, and whether leaders are there.

    Exit code 0: listed; 1: there is none; 2: the cluster can't be asked; 130: interrupted.
    """

    def command() -> int:
        from aioproducer.cli.settings import configs_of
        from aioproducer.cli.topics import list_topics

        configs = configs_of(properties, config or (), bootstrap=bootstrap)
        return list_topics(configs, words or (), internal=internal, as_json=as_json)

    _finish(command)


@app.command("describe")
def describe_topics(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="What to describe.")],
    bootstrap: BootstrapOption = None,
    config: ConfigOption = None,
    properties: PropertiesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show topics as a producer sees them: leaders, replicas, offsets, and the limits that concern it.

    Exit code 0: shown; 1: one is not there, or may not be seen; 2: the cluster can't be asked; 130: interrupted.
    """

    def command() -> int:
        from aioproducer.cli.settings import configs_of
        from aioproducer.cli.topics import describe

        return describe(configs_of(properties, config or (), bootstrap=bootstrap), names, as_json=as_json)

    _finish(command)


@app.command("config")
def show_configs(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[WORD]...", help="Show only configs with all these words.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """Show every config with default, range and meaning; found by words, and by librdkafka's names too.

    Exit code 0: shown; 1: no config has these words.
    """

    def command() -> int:
        from aioproducer.cli.configs import show

        return show(words or (), as_json=as_json)

    _finish(command)


@app.command()
def audit(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="What to audit.")],
    bootstrap: BootstrapOption = None,
    statements: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="What producers have stated: a file, directory or URI; may be repeated."),
    ] = None,
    output: Annotated[Path, typer.Option(help="Directory of pictures and tables.")] = Path("out/audit"),
    tables: Annotated[
        str | None, typer.Option(metavar="URI", help="Where the tables go instead, as Parquet; for clusters.")
    ] = None,
    bucket: Annotated[int, typer.Option(min=1, metavar="SECONDS", help="Length of a time bucket.")] = 60,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only what was sent from then on; ISO 8601, or -SECONDS.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only what was sent before; -60 where producers are at work.")
    ] = None,
    read_uncommitted: Annotated[bool, typer.Option(help="Also what aborted transactions have written.")] = False,
    state: Annotated[
        str | None,
        typer.Option(metavar="URI", help="Directory of what was found; the next call goes on from there."),
    ] = None,
    every: Annotated[
        int | None,
        typer.Option(min=1, metavar="SECONDS", help="With --state: go on until Ctrl-C, and look so often."),
    ] = None,
    lag: Annotated[
        int, typer.Option(min=0, metavar="SECONDS", help="With --state: what is younger is not missing yet.")
    ] = 60,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="A Spark cluster; by default Spark runs in this process.")
    ] = None,
    spark_config: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A config of Spark; may be repeated.")
    ] = None,
    source_option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="An option of Spark's Kafka source; may be repeated."),
    ] = None,
    config: ConfigOption = None,
    properties: PropertiesOption = None,
    pictures: Annotated[bool, typer.Option(help="Draw.")] = True,
) -> None:
    """Prove what arrived: read topics whose records have marks of aioproducer.audit, and compare, by a job of Spark.

    Exit code 0: each record is there, once, in order; 1: not so; 2: it could not be found out; 130: interrupted.
    """

    def command() -> int:
        from aioproducer.cli.audit import AuditOptions, moment_ms, pairs, run
        from aioproducer.cli.settings import configs_of

        if state is None and every is not None:
            raise CommandError("--every needs --state: a directory for what was found")
        if state is not None and (since is not None or until is not None):
            raise CommandError("--since and --until are for audits without --state")
        return run(
            AuditOptions(
                topics=topics,
                configs=configs_of(properties, config or (), bootstrap=bootstrap),
                statements=statements or (),
                output=output,
                tables=tables,
                bucket_s=bucket,
                since_ms=moment_ms(since, "--since"),
                until_ms=moment_ms(until, "--until"),
                read_uncommitted=read_uncommitted,
                state=state,
                every_s=every,
                lag_s=lag,
                master=master,
                source=pairs(source_option or (), "--source-option"),
                spark=pairs(spark_config or (), "--spark-config"),
                pictures=pictures,
            )
        )

    _finish(command)


@transactions.command("list")
def list_transactions(
    prefix: Annotated[str, typer.Option(help="Only transactional ids that begin with this.")] = "",
    state: Annotated[
        list[str] | None, typer.Option(help="Only those in this state, such as Ongoing; may be repeated.")
    ] = None,
    bootstrap: BootstrapOption = None,
    config: ConfigOption = None,
    properties: PropertiesOption = None,
) -> None:
    """List transactional ids: state, producer id and epoch, when the latest transaction began, partitions if open.

    Exit code 0: listed; 2: the cluster can't be asked; 130: interrupted.
    """

    def command() -> int:
        from aioproducer.cli.settings import configs_of
        from aioproducer.cli.transactions import show

        return show(configs_of(properties, config or (), bootstrap=bootstrap), prefix=prefix, states=state or ())

    _finish(command)


@transactions.command("abort")
def abort_transactions(
    prefix: Annotated[str, typer.Option(help="Of the transactional ids.")],
    keep: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="A transactional id to be left alone; may be repeated.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: BootstrapOption = None,
    config: ConfigOption = None,
    properties: PropertiesOption = None,
) -> None:
    """Abort every open transaction whose transactional id begins with a prefix. Live producers of it are fenced.

    Exit code 0: all of them are aborted; 2: the cluster can't be asked, or nobody confirmed; 130: interrupted.
    """

    def command() -> int:
        from aioproducer.cli.settings import configs_of
        from aioproducer.cli.transactions import abort

        return abort(
            configs_of(properties, config or (), bootstrap=bootstrap), prefix=prefix, keep=keep or (), ask=not yes
        )

    _finish(command)
