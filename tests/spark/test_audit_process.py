"""`aioproducer audit` as a long-running process, ended by Ctrl-C in a terminal or by SIGTERM from a supervisor."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aioproducer import Producer
from aioproducer.audit import Audit
from aioproducer.testing import KafkaCluster

RECORDS = 500
PATIENCE_S = 240.0


async def write_more(kafka: KafkaCluster, topic: str, audit: Audit) -> None:
    async with Producer(bootstrap_servers=kafka.bootstrap_servers, interceptors=[audit]) as producer:
        await producer.send_many(topic, (b"event" for _ in range(RECORDS)))


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
async def test_it_reports_as_the_topic_grows_and_once_more_at_the_end(
    kafka: KafkaCluster, topic: Callable[..., str], tmp_path: Path, number: signal.Signals
) -> None:
    name, statements = topic(), tmp_path / "statements"
    await write_more(kafka, name, Audit("first", statements=statements))
    options = ["--bootstrap", kafka.bootstrap_servers, "--statements", str(statements), "--lag=0", "--no-pictures"]
    process = await asyncio.create_subprocess_exec(
        *(str(Path(sys.executable).with_name("aioproducer")), "audit", name, *options),
        *("--state", str(tmp_path / "state"), "--every=1", "--output", str(tmp_path / "out")),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            found = f"{RECORDS} records from 1 producer: each is there, once, in order."
            for _ in range(2):  # also without new records
                line = (await process.stdout.readline()).decode()
                assert re.fullmatch(rf"\d\d:\d\d:\d\d {re.escape(found)}\n", line)
            await write_more(kafka, name, Audit("second", statements=statements))
            while f" {2 * RECORDS:,} records from 2 producers" not in line:
                line = (await process.stdout.readline()).decode()
            if number == signal.SIGINT:
                os.killpg(process.pid, number)  # to Spark's JVM too, as a terminal does
            else:
                process.send_signal(number)
            printed, complaints = await process.communicate()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    assert complaints.decode() == ""
    assert process.returncode == 0
    assert printed.decode().endswith(f"{2 * RECORDS:,} records from 2 producers: each is there, once, in order.\n")
    assert f"delivery audit of {name}" in printed.decode()
