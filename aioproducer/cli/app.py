"""The commands. Their work is in the modules beside this file, imported when a command runs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, NoReturn, ParamSpec

import typer

from aioproducer.cli import options
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

P = ParamSpec("P")


def _ends_process(command: Callable[P, int]) -> Callable[P, NoReturn]:
    """End the process with a command's exit code; a CommandError becomes one line, not a traceback.

    Its docstring is the help text; typer would keep the source's line breaks within paragraphs. It gets the option
    --verbose, which is then allowed on both sides of its name.
    """

    @wraps(command)
    def run(*arguments: P.args, **named: P.kwargs) -> NoReturn:
        if named.pop("verbose"):
            _show_logs(True)
        try:
            exit_code = command(*arguments, **named)
        except CommandError as error:
            print(f"aioproducer: {error}", file=sys.stderr)
            exit_code = error.exit_code
        except KeyboardInterrupt:
            print("aioproducer: interrupted", file=sys.stderr)
            exit_code = INTERRUPTED
        raise typer.Exit(exit_code)

    verbose = Parameter("verbose", Parameter.KEYWORD_ONLY, default=False, annotation=options.Verbose)
    given = signature(command, eval_str=True)
    told = given.replace(parameters=[*given.parameters.values(), verbose])
    # For typer, which reads both.
    run.__signature__ = told  # type: ignore[attr-defined]
    run.__annotations__ = {name: each.annotation for name, each in told.parameters.items()}
    run.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in (command.__doc__ or "").split("\n\n"))
    return run


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"aioproducer {VERSION}")
        raise typer.Exit


def _show_logs(wanted: bool) -> None:
    """Else Python would print warnings between a command's lines, although the command itself reports what failed."""
    log = logging.getLogger("aioproducer")
    if wanted:
        handler: logging.Handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        log.setLevel(logging.INFO)
    else:
        handler = logging.NullHandler()
    log.handlers[:] = [handler]  # one alone, even if the option is given before the command and after it


transactions = typer.Typer(
    help="List a cluster's transactions, and abort those that a crashed program left open.", no_args_is_help=True
)
app.add_typer(transactions, name="transactions")


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    verbose: options.Verbose = False,
) -> None:
    _show_logs(verbose)


@app.command()
@_ends_process
def demo(
    bootstrap: options.DemoBootstrap = None,
    records: options.Flights = None,
    output: options.PictureOutput = Path("out"),
    keep_topic: options.KeepTopic = False,
) -> int:
    """Publish 336,776 real flights to a real Kafka, read them back with another client, and compare.

    Exit code 0: every record came back as sent; 1: some did not; 2: the demo could not run; 130: interrupted.
    """
    from aioproducer.cli.demo.run import run

    return run(bootstrap=bootstrap, records=records, output=output, keep_topic=keep_topic)


@app.command("demo-spark")
@_ends_process
def demo_spark(
    bootstrap: options.DemoBootstrap = None,
    output: options.TablesOutput = Path("out/demo-spark"),
) -> int:
    """Write 336,776 real flights from a CSV file to Kafka through Spark, exactly once, and prove it with an audit.

    Exit code 0: every record is there, once, in order; 1: some are not; 2: the demo could not run; 130: interrupted.
    """
    from aioproducer.cli.demo.spark import run

    return run(bootstrap=bootstrap, output=output)


@app.command()
@_ends_process
def produce(
    file: options.InputFile,
    topic: options.Topic,
    bootstrap: options.Bootstrap = None,
    format: options.InputFormat = None,
    key: options.KeyField = None,
    value: options.ValueColumn = None,
    headers: options.HeadersColumn = None,
    partition: options.PartitionColumn = None,
    timestamp: options.TimestampColumn = None,
    config: options.ProducerConfig = None,
    properties: options.Properties = None,
    compression: options.Compression = None,
    rejects: options.RejectsFile = None,
) -> int:
    """Send the rows of a file (JSON lines, CSV, plain lines, Parquet), or of standard input, to a topic.

    Every row read ends as acked, failed (given to the producer, not acknowledged) or rejected (never sent). Ctrl-C
    stops reading; rows already read are still sent and counted. Exit code 0: all acked; 1: some not; 2: nothing could
    be sent; 130: interrupted.
    """
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
        raise CommandError(f"--{next(iter(given))} names a column of a Parquet file, and the input is not one")
    what = plan(file, format, key, rejects)
    return run(make_producer(properties, config or (), bootstrap=bootstrap, compression=compression), topic, what)


@app.command()
@_ends_process
def doctor(
    bootstrap: options.Bootstrap = None,
    topic: options.ExaminedTopic = None,
    write: options.WriteProbe = False,
    timeout: options.StepTimeout = 10.0,
    config: options.Config = None,
    properties: options.Properties = None,
    as_json: options.AsJson = False,
) -> int:
    """Find out what keeps a producer from its cluster, and what to do about it.

    Checks every bootstrap address and every address that a broker advertises: name, TCP, TLS, login, versions. With
    --topic, also whether the topic exists, may be written to, and has its leaders and replicas. Exit code 0: a producer
    can work; 1: it can't; 2: the options or configs are invalid; 130: interrupted.
    """
    from aioproducer.cli.doctor import examine
    from aioproducer.cli.settings import configs_of

    configs = configs_of(properties, config or (), bootstrap=bootstrap, sends=False)
    return examine(configs, topic=topic, write=write, timeout_s=timeout, as_json=as_json)


@app.command()
@_ends_process
def perf(
    topic: options.Topic,
    num_records: options.NumRecords,
    record_size: options.RecordSize = None,
    payload_file: options.PayloadFile = None,
    payload_delimiter: options.PayloadDelimiter = "\n",
    key_size: options.KeySize = 0,
    throughput: options.Throughput = -1,
    mode: options.SendMode = Mode.SUBMIT_NOWAIT,
    concurrency: options.Concurrency = None,
    chunk: options.Chunk = 10_000,
    compression: options.Compression = None,
    warmup_records: options.WarmupRecords = 0,
    transactional: options.Transactional = False,
    transactional_id: options.TransactionalId = None,
    transaction_duration_ms: options.TransactionDurationMs = None,
    reporting_interval: options.ReportingInterval = 5_000,
    live: options.Live = True,
    print_metrics: options.PrintMetrics = False,
    json_file: options.JsonFile = None,
    picture: options.PictureFile = None,
    bootstrap: options.PerfBootstrap = None,
    config: options.PerfConfig = None,
    properties: options.PerfProperties = None,
    more_config: options.MorePerfConfig = None,
) -> int:
    """Send records to a topic, and measure throughput and latency. The options are those of kafka-producer-perf-test.

    With --throughput, a record's latency counts from when it was due, so waiting shows. Ctrl-C stops sending and shows
    what was measured so far. Exit code 0: all records were acknowledged; 1: some were not; 2: nothing could be sent;
    130: interrupted.
    """
    from aioproducer.cli.perf.run import PerfOptions, run
    from aioproducer.cli.settings import configs_of

    configs = configs_of(properties, [*(config or ()), *(more_config or ())], bootstrap=bootstrap)
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
            transactional=transactional or transaction_duration_ms is not None,
            transactional_id=transactional_id,
            transaction_duration_ms=transaction_duration_ms or 3_000,
            reporting_interval_ms=reporting_interval,
            print_metrics=print_metrics,
            live=live,
            json_file=json_file,
            picture_file=picture,
        )
    )


@app.command()
@_ends_process
def topics(
    words: options.TopicWords = None,
    internal: options.Internal = False,
    bootstrap: options.Bootstrap = None,
    config: options.Config = None,
    properties: options.Properties = None,
    as_json: options.AsJson = False,
) -> int:
    """List the topics that a producer sees: partitions, replicas, and missing leaders.

    Exit code 0: listed; 1: no topic found; 2: the cluster can't be queried; 130: interrupted.
    """
    from aioproducer.cli.settings import configs_of
    from aioproducer.cli.topics import list_topics

    configs = configs_of(properties, config or (), bootstrap=bootstrap, sends=False)
    return list_topics(configs, words or (), internal=internal, as_json=as_json)


@app.command("describe")
@_ends_process
def describe_topics(
    names: options.TopicNames,
    bootstrap: options.Bootstrap = None,
    config: options.Config = None,
    properties: options.Properties = None,
    as_json: options.AsJson = False,
) -> int:
    """Describe topics as a producer sees them: leaders, replicas, offsets, and the limits that apply to it.

    Exit code 0: shown; 1: a topic does not exist, or may not be seen; 2: no topic can have such a name, or the cluster
    can't be queried; 130: interrupted.
    """
    from aioproducer.cli.settings import configs_of
    from aioproducer.cli.topics import describe

    configs = configs_of(properties, config or (), bootstrap=bootstrap, sends=False)
    return describe(configs, names, as_json=as_json)


@app.command("config")
@_ends_process
def show_configs(
    words: options.ConfigWords = None,
    as_json: options.AsJson = False,
) -> int:
    """Show every config with its default, range and meaning. Words narrow the list; librdkafka's names work too.

    Exit code 0: shown; 1: nothing matches.
    """
    from aioproducer.cli.configs import show

    return show(words or (), as_json=as_json)


@app.command()
@_ends_process
def audit(
    topics: options.AuditedTopics,
    bootstrap: options.Bootstrap = None,
    statements: options.Statements = None,
    output: options.TablesOutput = Path("out/audit"),
    tables: options.TablesUri = None,
    bucket: options.BucketSeconds = 60,
    since: options.Since = None,
    until: options.Until = None,
    read_uncommitted: options.ReadUncommitted = False,
    state: options.StateUri = None,
    every: options.EverySeconds = None,
    lag: options.LagSeconds = 60,
    master: options.Master = None,
    spark_config: options.SparkConfig = None,
    source_option: options.SourceOption = None,
    config: options.Config = None,
    properties: options.Properties = None,
    pictures: options.Pictures = True,
) -> int:
    """Prove what arrived: a Spark job reads topics whose records carry marks of aioproducer.audit, and checks them.

    Exit code 0: every record is there, once, in order; 1: some are not; 2: the audit could not run; 130: interrupted.
    """
    from aioproducer.cli.audit import AuditOptions, moment_ms, pairs, run
    from aioproducer.cli.settings import configs_of

    if state is None and every is not None:
        raise CommandError("--every needs --state: the directory that keeps the findings")
    if state is not None and until is not None:
        raise CommandError("--until can't be used with --state, which has --lag")
    since_ms, until_ms = moment_ms(since, "--since"), moment_ms(until, "--until")
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise CommandError("--since has to be before --until")
    return run(
        AuditOptions(
            topics=topics,
            configs=configs_of(properties, config or (), bootstrap=bootstrap, sends=False),
            statements=statements or (),
            output=output,
            tables=tables,
            bucket_s=bucket,
            since_ms=since_ms,
            until_ms=until_ms,
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


@transactions.command("list")
@_ends_process
def list_transactions(
    prefix: options.ListedPrefix = "",
    state: options.TransactionStates = None,
    bootstrap: options.Bootstrap = None,
    config: options.Config = None,
    properties: options.Properties = None,
) -> int:
    """List transactional ids: state, producer id, epoch, start of the latest transaction, and partitions if open.

    Exit code 0: listed; 2: the cluster can't be queried; 130: interrupted.
    """
    from aioproducer.cli.settings import configs_of
    from aioproducer.cli.transactions import show

    configs = configs_of(properties, config or (), bootstrap=bootstrap, sends=False)
    return show(configs, prefix=prefix, states=state or ())


@transactions.command("abort")
@_ends_process
def abort_transactions(
    prefix: options.AbortedPrefix,
    keep: options.KeptIds = None,
    yes: options.WithoutAsking = False,
    bootstrap: options.Bootstrap = None,
    config: options.Config = None,
    properties: options.Properties = None,
) -> int:
    """Abort every open transaction whose transactional id starts with a prefix. Live producers with such an id are
    fenced.

    Exit code 0: all are aborted; 2: the cluster can't be queried, or nobody confirmed; 130: interrupted.
    """
    from aioproducer.cli.settings import configs_of
    from aioproducer.cli.transactions import abort

    configs = configs_of(properties, config or (), bootstrap=bootstrap, sends=False)
    return abort(configs, prefix=prefix, keep=keep or (), ask=not yes)
