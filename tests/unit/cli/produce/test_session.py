"""The stages of ``aioproducer produce``, as a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from aioproducer.testing import FakeCluster

SCRIPT = Path(sys.executable).with_name("aioproducer")


def test_an_interrupt_that_nobody_reads_of_still_sends_what_was_read(tmp_path: Path) -> None:
    """Ctrl-C also ends a ``tee`` to which the command's messages are piped."""
    reading, writing = os.pipe()
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        cluster.faults.delay("Produce", 300)
        command = [SCRIPT, "produce", "-", "--rejects", tmp_path / "rejects", "--topic", "t"]
        command += ["--bootstrap", cluster.bootstrap_servers]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=writing, text=True
        ) as process:
            os.close(writing)
            assert process.stdin is not None
            process.stdin.write("row\n")
            process.stdin.flush()
            while not cluster.end_offsets("t")[0]:
                os.sched_yield()
            os.close(reading)
            process.send_signal(signal.SIGINT)
            process.wait(60)
            assert process.stdout is not None
            assert process.stdout.read().startswith("read 1, acked 1, failed 0, rejected 0 in ")


@pytest.mark.parametrize("ended", ["acked", "rejected"])
@pytest.mark.parametrize("output", ["nobody reads", "full"])
def test_the_exit_code_is_about_the_rows_even_if_the_counts_can_not_be_written(
    ended: str, output: str, tmp_path: Path
) -> None:
    """Whoever repeats a command that fails would send every row again."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"id": 1}\n' if ended == "acked" else "x\n")
    reading, writing = os.pipe()
    os.close(reading)
    with FakeCluster() as cluster, open("/dev/full", "w") as full:
        command = [SCRIPT, "produce", rows, "--topic", "t", "--bootstrap", cluster.bootstrap_servers]
        stdout = writing if output == "nobody reads" else full
        finished = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert finished.returncode == (0 if ended == "acked" else 1)
    counts, *more = finished.stderr.splitlines()
    assert counts.startswith(
        f"read 1, acked {int(ended == 'acked')}, failed 0, rejected {int(ended == 'rejected')} in "
    )
    assert len(more) == (ended == "rejected")


def test_the_exit_code_is_about_the_rows_even_if_nothing_at_all_can_be_written(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"id": 1}\n')
    reading, writing = os.pipe()
    os.close(reading)
    with FakeCluster() as cluster:
        command = [SCRIPT, "produce", rows, "--topic", "t", "--bootstrap", cluster.bootstrap_servers]
        finished = subprocess.run(command, stdout=writing, stderr=writing)
    os.close(writing)
    assert finished.returncode == 0


def test_rejects_on_standard_output_have_it_to_themselves(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"id": 1}\nx\n')
    with FakeCluster() as cluster:
        command = [SCRIPT, "produce", rows, "--topic", "t", "--rejects", "-", "--bootstrap", cluster.bootstrap_servers]
        finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert finished.returncode == 1
    (reject,) = map(json.loads, finished.stdout.splitlines())
    assert (reject["line_number"], reject["line"]) == (2, "x")
    assert finished.stderr.startswith("read 2, acked 1, failed 0, rejected 1 in ")
    assert list(tmp_path.iterdir()) == [rows]
