"""What the driver does with the tasks' messages about a batch."""

from __future__ import annotations

import importlib.util
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aioproducer import BootstrapError
from aioproducer.spark import background, driver
from aioproducer.spark.columns import Columns
from aioproducer.spark.errors import SparkWriteError
from aioproducer.spark.options import SinkOptions
from aioproducer.spark.outcome import Outcome, TaskMessage
from aioproducer.spark.task import Sink
from aioproducer.testing import FakeCluster
from aioproducer.transactions import TransactionClient

ROOT = Path(__file__).parents[3]
HAS_WORKER_LOGGING = importlib.util.find_spec("pyspark.logger.worker_io") is not None
SINK = Sink(SinkOptions({"bootstrap.servers": "127.0.0.1:1"}), Columns(frozenset({"value"})))


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(1) as running:
        yield running


def sink(cluster: FakeCluster, tmp_path: Path, *, is_stream: bool = False, **more: str) -> Sink:
    """The sink of a batch or micro-batch with transactions, before its tasks."""
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "topic": "t",
        "transactional.id.prefix": "p",
        "transactionLog": str(tmp_path / "log"),
        **more,
    }
    return driver.prepare(Sink(SinkOptions.parse(options), Columns(frozenset({"value"})), is_stream=is_stream))


@pytest.mark.parametrize("others", [[], [TaskMessage(Outcome(), 0)]])
def test_a_batch_is_not_committed_if_a_task_has_told_nothing(others: list[TaskMessage]) -> None:
    """The task was not called, so its rows are missing, but Spark would record them as written."""
    with pytest.raises(SparkWriteError, match=r"micro-batch 7: .*the continuous trigger"):
        driver.commit(SINK, [*others, None], "micro-batch 7")


def test_a_job_that_was_done_before_warns_of_the_rows_that_are_dropped(
    cluster: FakeCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They may be those of another job that was given the same name by mistake."""
    first = sink(cluster, tmp_path, jobId="x")
    driver.commit(first, [TaskMessage(Outcome(), 0, first.batch, first.claim)], "batch write")
    again = sink(cluster, tmp_path, jobId="x")
    assert again.committed == {"job:x"}
    caplog.clear()
    messages = [TaskMessage(Outcome(), 0, again.batch, again.claim, skipped=rows) for rows in (1_000, 500)]
    driver.commit(again, messages, "batch write")
    assert caplog.record_tuples == [
        (
            "aioproducer.spark",
            logging.WARNING,
            "batch job:x was committed before: 1,500 rows are not written again; each job needs a jobId of its own",
        )
    ]


def test_a_cluster_that_can_not_be_reached_yet_is_waited_for(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the tasks and after them: brokers that restart only delay the batch."""
    tries: list[TransactionClient] = []
    start = TransactionClient.start

    async def start_late(self: TransactionClient) -> None:
        tries.append(self)
        if len(tries) % 3:
            raise BootstrapError
        await start(self)

    monkeypatch.setattr(TransactionClient, "start", start_late)
    monkeypatch.setattr(background, "TRY_AGAIN_S", 0.001)
    one = sink(cluster, tmp_path)
    assert len(tries) == 3
    driver.commit(one, [TaskMessage(Outcome(), 0, one.batch, one.claim)], "batch write")
    assert len(tries) == 6


def test_a_cluster_that_can_not_be_reached_is_an_error(cluster: FakeCluster, tmp_path: Path) -> None:
    with pytest.raises(BootstrapError, match=r"127\.0\.0\.1:1"):
        sink(cluster, tmp_path, **{"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.max.block.ms": "100"})


def micro_batch_again(cluster: FakeCluster, tmp_path: Path, before: Outcome, skipped: int) -> None:
    """A micro-batch is committed, and Spark repeats it."""
    one = sink(cluster, tmp_path, is_stream=True)
    driver.commit(one, [TaskMessage(before, 0, "q:7", one.claim)], "micro-batch 7")
    one = sink(cluster, tmp_path, is_stream=True)
    driver.commit(one, [TaskMessage(Outcome(), 0, "q:7", one.claim, skipped=skipped)], "micro-batch 7")


def test_a_micro_batch_that_is_repeated_says_so(
    cluster: FakeCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aioproducer.spark")
    micro_batch_again(cluster, tmp_path, Outcome(records=1_400, dead_letters=100), 1_500)
    assert [text for _, _, text in caplog.record_tuples] == [
        "micro-batch 7: 1,400 records, 0 bytes, 100 dead letters: nothing",
        "batch q:7 was committed before: 1,500 rows are not written again",
    ]


def test_a_micro_batch_that_is_repeated_with_other_rows_is_refused(cluster: FakeCluster, tmp_path: Path) -> None:
    """The checkpoint is older than the log: the rows that the micro-batch did not have before would be lost."""
    with pytest.raises(
        SparkWriteError, match=r"q:7 was committed before, with 1,400 rows, and now has 1,500:.*/log/q%3A7\.committed"
    ):
        micro_batch_again(cluster, tmp_path, Outcome(records=1_400), 1_500)
    (tmp_path / "log" / "q%3A7.committed").write_bytes(b"")
    one = sink(cluster, tmp_path, is_stream=True)
    driver.commit(one, [TaskMessage(Outcome(), 0, "q:7", one.claim, skipped=1_500)], "micro-batch 7")


@pytest.mark.skipif(not HAS_WORKER_LOGGING, reason="PySpark 4.1 and newer log what their workers log")
@pytest.mark.parametrize("captured", [True, False])
def test_the_line_about_a_batch_is_logged(captured: bool) -> None:
    """By the handler that Spark gives its workers, or else by one of its own."""
    code = """
from pyspark.logger.worker_io import capture_outputs
from tests.unit.spark.test_driver import SINK, Outcome, TaskMessage, driver

with capture_outputs():
    driver.commit(SINK, [TaskMessage(Outcome(5, 50), 0)], "micro-batch 7")
"""
    environment = {**os.environ, "PYSPARK_SPARK_SESSION_UUID": "x"} if captured else os.environ
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=ROOT)
    line, empty = (ran.stdout, ran.stderr) if captured else (ran.stderr, ran.stdout)
    assert line.count("micro-batch 7: 5 records, 50 bytes: nothing") == 1
    assert empty == ""
