"""The stages of ``aioproducer produce``, as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

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
