"""``aioproducer transactions``: what it prints, and how it exits."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from aioproducer import Producer
from aioproducer.cli.app import app
from aioproducer.cli.transactions import _time
from aioproducer.testing import FakeCluster


def transactions(cluster: FakeCluster, *arguments: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(app, ["transactions", *arguments, "--bootstrap", cluster.bootstrap_servers], input=answer)


async def run(cluster: FakeCluster, *arguments: str, answer: str | None = None) -> Result:
    """A command runs its own loop, so it needs another thread."""
    return await asyncio.to_thread(transactions, cluster, *arguments, answer=answer)


async def leave_open(cluster: FakeCluster, transactional_id: str) -> None:
    """Leave a transaction open, as a crashed program does."""
    cluster.create_topic("t")
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=transactional_id)
    await producer.start()
    await producer.begin_transaction()
    await producer.send("t", b"row")
    cluster.faults.drop("EndTxn", times=None)
    await producer.close(timeout=0)
    cluster.faults.clear()


@pytest.mark.parametrize(
    ("transactional_id", "shown"),
    [("[/x]", "[/x]"), ("[red]a", "[red]a"), ("a\n\x1b[31mb", "a??[31mb"), ("x" * 250, "x" * 250)],
)
async def test_ids_are_shown_in_full_and_without_control_characters(transactional_id: str, shown: str) -> None:
    with FakeCluster() as cluster:
        await leave_open(cluster, transactional_id)
        listed = await run(cluster, "list")
        assert listed.exit_code == 0
        assert shown in listed.stdout
        assert "\x1b" not in listed.stdout
        aborted = await run(cluster, "abort", "--prefix", transactional_id[0], "--yes")
        assert aborted.stdout == f"{shown}\naborted 1\n"


@pytest.mark.parametrize("answer", ["", "n\n"])
async def test_without_a_yes_nothing_is_aborted(answer: str) -> None:
    with FakeCluster() as cluster:
        await leave_open(cluster, "orders")
        result = await run(cluster, "abort", "--prefix", "orders", answer=answer)
        assert result.exit_code == 2
        assert result.stderr == "aioproducer: nothing was aborted\n"
        assert "Ongoing" in (await run(cluster, "list")).stdout


async def test_a_closed_standard_input_confirms_nothing() -> None:
    with FakeCluster() as cluster:
        await leave_open(cluster, "orders")
        command = f'exec "$0" transactions abort --prefix orders --bootstrap {cluster.bootstrap_servers} <&-'
        script = Path(sys.executable).with_name("aioproducer")
        finished = await asyncio.to_thread(
            subprocess.run, ["/bin/sh", "-c", command, script], capture_output=True, text=True
        )
        assert (finished.returncode, finished.stderr) == (2, "aioproducer: nothing was aborted\n")
        assert "Ongoing" in (await run(cluster, "list")).stdout


async def test_a_state_that_is_none_is_an_error() -> None:
    with FakeCluster() as cluster:
        result = await run(cluster, "list", "--state", "ongoing")
        assert result.exit_code == 2
        assert result.stderr == "aioproducer: no broker knows the states 'ongoing'; Kafka's names look like Ongoing\n"


@pytest.mark.parametrize(
    ("started_ms", "shown"),
    [(0, "1970-01-01 00:00:00+00:00"), (-1, ""), (-(2**63), ""), (2**63 - 1, "9223372036854775807 ms")],
)
def test_a_time_that_no_calendar_has_hides_nothing(started_ms: int, shown: str) -> None:
    """A broker may answer anything; the other transactions are shown all the same."""
    assert _time(started_ms) == shown
