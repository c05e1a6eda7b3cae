"""The options and output of `aioproducer audit`; its findings are tested in tests/spark."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from rich.console import Console
from typer.testing import CliRunner

from aioproducer.cli import audit as cli_audit
from aioproducer.cli.app import app
from aioproducer.cli.audit import (
    COUNTS,
    LATENCIES,
    AuditOptions,
    _check_reachable,
    missing_table,
    moment_ms,
    notes,
    pairs,
    reason_of,
    run,
    source_options,
    table,
)
from aioproducer.cli.outcome import CommandError
from aioproducer.cli.spark_process import stderr_to
from aioproducer.spark import audit as spark_audit
from aioproducer.spark.audit.report import Totals
from aioproducer.spark.audit.run import from_the_beginning

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def shown(what: object) -> str:
    screen = io.StringIO()
    Console(file=screen, width=200).print(what)
    return screen.getvalue()


def row(**fields: Any) -> dict[str, Any]:
    return {
        "topic": "t",
        "partition": 0,
        **dict.fromkeys((*COUNTS, *LATENCIES)),
        **dict.fromkeys(COUNTS[3:], 0),
        **fields,
    }


def totals(**fields: Any) -> Totals:
    nothing = dict.fromkeys(Totals.__dataclass_fields__, 0)
    return Totals(**{**nothing, **fields})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("1970-01-01T00:00:01", 1_000),
        ("1970-01-01T01:00:01+01:00", 1_000),
        ("1970-01-02", 86_400_000),
        ("1970-01-01T00:00:01.5Z", 1_500),
    ],
)
def test_a_moment_may_lack_its_time_or_have_a_time_zone(text: str | None, expected: int | None) -> None:
    assert moment_ms(text, "--since") == expected


def test_moments_before_now() -> None:
    before = int(time.time() * 1000)
    found = moment_ms("-60", "--until")
    assert found is not None
    assert before - 60_000 <= found <= int(time.time() * 1000) - 60_000


@pytest.mark.parametrize("text", ["yesterday", "60", "", "-1h", "-" + "9" * 5000, "-9999999999999", "1969-12-31"])
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(CommandError, match="--since takes a time"):
        moment_ms(text, "--since")


def test_the_name_of_a_pair_ends_at_the_first_equals_sign() -> None:
    assert pairs(["a=1", "b=c=d"], "--spark-config") == {"a": "1", "b": "c=d"}
    with pytest.raises(CommandError, match="--spark-config takes name=value"):
        pairs(["secret"], "--spark-config")


def test_what_the_source_is_told() -> None:
    options = AuditOptions(["t"], {"bootstrap.servers": "x:1"}, source={"minPartitions": "8"})
    assert source_options(options) == {"kafka.bootstrap.servers": "x:1", "minPartitions": "8"}
    uncommitted = AuditOptions(["t"], {}, read_uncommitted=True)
    assert source_options(uncommitted) == {"kafka.isolation.level": "read_uncommitted"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, True),
        ({"minPartitions": "8"}, True),
        ({"startingOffsets": "earliest"}, True),
        ({"startingOffsets": '{"t": {"0": 5}}'}, False),
        ({"startingoffsets": '{"t": {"0": 5}}'}, False),
        ({"startingTimestamp": "1767225600000"}, False),
        ({"STARTINGTIMESTAMP": "1767225600000", "startingOffsets": "earliest"}, False),
        ({"startingOffsetsByTimestamp": '{"t": {"0": 1767225600000}}'}, False),
        ({"startingOffsetsByTimestampStrategy": "latest"}, True),
    ],
)
def test_where_the_source_begins(options: dict[str, str], expected: bool) -> None:
    assert from_the_beginning(options) is expected


@pytest.mark.parametrize(
    ("configs", "instead"),
    [
        ({"sasl.username": "alice", "sasl.password": "hunter2"}, "sasl.jaas.config"),
        ({"proxy.url": "socks5h://alice:hunter2@proxy:1080"}, "without a proxy"),
    ],
)
def test_configs_without_which_the_source_could_not_connect(configs: dict[str, str], instead: str) -> None:
    """It takes those of a Java consumer, and ignores others."""
    with pytest.raises(CommandError, match=next(iter(configs))) as refused:
        run(AuditOptions(["t"], {"bootstrap.servers": "x:1", **configs}))
    assert instead in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_topics_are_given_one_by_one() -> None:
    """Spark's source would take these for two, but no statement is about a topic of this name."""
    with pytest.raises(CommandError, match=r"'orders,payments' is not a valid topic name: .*: orders payments$"):
        run(AuditOptions(["orders,payments"], {"bootstrap.servers": "127.0.0.1:1"}))


def test_a_cluster_that_is_not_there_is_told_at_once() -> None:
    """Before Spark starts, whose source would ask it for three minutes; one address that can be reached is enough."""
    with socket.socket() as closed, socket.socket() as listening:
        for each in (closed, listening):
            each.bind(("127.0.0.1", 0))
        listening.listen()
        nobody, somebody = (f"127.0.0.1:{each.getsockname()[1]}" for each in (closed, listening))
        with pytest.raises(CommandError, match=f"no bootstrap server can be reached: {nobody}: Connection refused"):
            run(AuditOptions(["t"], {"bootstrap.servers": nobody}))
        _check_reachable(f"{nobody},{somebody}")


def test_an_address_without_a_port() -> None:
    with pytest.raises(CommandError, match="'kafka' is not host:port"):
        run(AuditOptions(["t"], {"bootstrap.servers": "kafka"}))


def test_the_table_leaves_out_what_nobody_knows() -> None:
    text = shown(table("title", [row(found=1_234, missing=5), row(partition=None, found=0)]))
    assert "1,234" in text
    assert "t-0" in text
    assert "t-?" in text
    assert "out of order" in text
    assert "acked" not in text
    assert "p99" not in text


def test_the_table_of_what_is_missing() -> None:
    gap = {"topic": "t", "partition": 2, "producer": "p", "first": 10, "last": 1_009, "records": 1_000}
    text = shown(missing_table([{**gap, "acknowledged": True}, {**gap, "partition": None, "acknowledged": False}]))
    assert [line.split() for line in text.splitlines()[1:]] == [
        ["t-2", "p", "10", "1,009", "1,000", "yes"],
        ["t-?", "p", "10", "1,009", "1,000", "unknown"],
    ]


def test_names_are_shown_as_they_are() -> None:
    gap = {"topic": "t", "partition": 2, "producer": "[/x]", "first": 1, "last": 2, "records": 2, "acknowledged": True}
    assert "[/x]" in shown(missing_table([gap]))
    text = shown(missing_table([{**gap, "producer": "\x1b]0;title\x07a\nb"}]))
    assert "?]0;title?a?b" in text
    assert "\x1b" not in text


def test_notes_say_what_is_not_known() -> None:
    assert notes(totals(producers=3, stated=3, closed=3), 0, True) == []
    text = "\n".join(notes(totals(producers=3, stated=2, closed=1), 7, True))
    for part in ("7 more records", "1 of 3 producers stated nothing", "1 producers did not state their end"):
        assert part in text
    assert "without --statements" in "\n".join(notes(totals(producers=3), None, False))


@pytest.mark.parametrize(
    ("fields", "clean"),
    [({"found": 5}, True), ({"missing": 1}, False), ({"duplicated": 1}, False), ({"out_of_order": 1}, False)],
)
def test_what_is_clean(fields: dict[str, int], clean: bool) -> None:
    assert totals(**fields).clean is clean


def test_of_sparks_errors_the_last_cause_is_told() -> None:
    text = (
        "An error occurred while calling o90.count.\n: org.apache.spark.SparkException: Job aborted\n\tat x.y(z)\n"
        "Caused by: java.util.concurrent.ExecutionException: it failed\n\tat x.y(z)\n"
        "Caused by: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: There is no such topic\n\tat x.y"
    )
    assert reason_of(text) == "UnknownTopicOrPartitionException: There is no such topic"
    assert (
        reason_of("[PATH_NOT_FOUND] Path does not exist.\n\nJVM stacktrace:\nat x")
        == "[PATH_NOT_FOUND] Path does not exist."
    )


def test_of_deleted_records_it_is_told_what_to_do() -> None:
    """The last cause would be an offset that is out of range."""
    text = (
        "[STREAM_FAILED] Query [id = 5] terminated with exception: Job aborted due to stage failure: org.apache.spark."
        "sql.kafka010.KafkaIllegalStateException: Some data may have been lost because they are not available in Kafka "
        "any more;\neither the data was aged out by Kafka or the topic may have been deleted\n\tat x.y(z)\n"
        "Caused by: org.apache.kafka.clients.consumer.OffsetOutOfRangeException: Fetch position {offset=20}"
    )
    assert "failOnDataLoss=false" in reason_of(text)
    assert "--state" in reason_of(text)


@pytest.mark.parametrize("reason", ["[STREAM_FAILED] Query [id = 5] terminated with exception: it failed", "it failed"])
def test_of_a_failed_query_its_plan_is_not_told(reason: str) -> None:
    text = (
        f"{reason}\n=== Streaming Query ===\nIdentifier: [id = 5]\nCurrent Committed Offsets: {{}}\n\n"
        "Current State: ACTIVE\nLogical Plan:\nWriteToMicroBatchDataSource"
    )
    assert reason_of(text) == reason


def passing(monkeypatch: pytest.MonkeyPatch, found: object, every_s: int | None) -> int:
    """The exit code of the command with --state, if its pass is interrupted; ``found`` is from earlier ones."""
    monkeypatch.setattr(spark_audit, "audit_stream", lambda *_, **__: False)
    monkeypatch.setattr(spark_audit, "stream_findings", lambda *_, **__: found)
    monkeypatch.setattr(cli_audit, "publish", lambda published, *_: 0 if published is found else 1)
    options, spark = AuditOptions(["t", "u"], {}, state="state", every_s=every_s), cast("SparkSession", None)
    return cli_audit._stream(spark, options, Console())


@pytest.mark.parametrize(("every_s", "found"), [(None, None), (None, object()), (60, None)])
def test_a_pass_that_is_interrupted_is_no_answer(
    every_s: int | None, found: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever ends a single pass early must not take what earlier ones have found for its result."""
    with pytest.raises(CommandError, match=r"^interrupted before all of t, u was read$") as ended:
        passing(monkeypatch, found, every_s)
    assert ended.value.exit_code == 130


def test_the_last_of_many_passes_may_be_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert passing(monkeypatch, object(), 60) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["t", "--every", "5"], "--every needs --state"),
        (["t", "--state", "s", "--until", "-5"], "with --state"),
        (["t", "--source-option", "x"], "--source-option takes name=value"),
        (["t", "--since", "2026-01-02", "--until", "2026-01-02"], "--since has to be before --until"),
    ],
)
def test_options_that_do_not_go_together(arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    result = CliRunner().invoke(app, ["audit", *arguments])
    assert result.exit_code == 2
    assert message in result.output + capfd.readouterr().err


def test_what_processes_say_goes_to_a_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Including their output after the block; this process's own output no longer does."""
    code = "import sys; sys.stderr.write('begins '); sys.stderr.flush(); sys.stdin.read(); sys.stderr.write('ends')"
    with stderr_to(tmp_path / "new" / "log"):
        child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
        assert child.stdin is not None
    os.write(2, b"ours")
    child.communicate()
    assert (tmp_path / "new" / "log").read_text() == "begins ends"
    assert capfd.readouterr().err == "ours"


def test_a_place_that_can_not_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "spark.log"
    with pytest.raises(CommandError, match=f"{place} can't be written: File exists"), stderr_to(place):
        raise AssertionError("nothing is to be done")
