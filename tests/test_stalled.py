"""The command that stops tests now and then."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from tests.stalled import candidates, stopped

HERE = Path(__file__).parent
TESTS = """
import signal

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCONT])


def test_it_is_continued():
    assert signal.sigtimedwait([signal.SIGCONT], 30)


def test_it_fails():
    assert False
"""


def test_a_run_is_stopped_and_continued(tmp_path: Path) -> None:
    """Its tests end as they would without, and the exit code is pytest's."""
    file = tmp_path / "test_waits.py"
    file.write_text(TESTS)
    command = [sys.executable, "-m", "tests.stalled", "--stop", "0.01-0.02", "--every", "0.05"]
    run = subprocess.run(
        [*command, "--", "-q", str(file)], cwd=HERE.parent, capture_output=True, text=True, check=False
    )
    assert "1 failed, 1 passed" in run.stdout, run.stdout + run.stderr
    assert run.returncode == pytest.ExitCode.TESTS_FAILED
    last = run.stdout.splitlines()[-1]
    assert last.startswith("tests.stalled: ")
    assert last.endswith(" stops of 0.01 to 0.02 s")
    assert int(last.split()[1]) >= 1


@contextmanager
def waiting(*command: str, program: str | None = None) -> Iterator[psutil.Process]:
    """A child process that prints a line, and then waits."""
    child = subprocess.Popen(command, executable=program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == b"ready\n"
        yield psutil.Process(child.pid)
    finally:
        child.kill()
        child.communicate()


@contextmanager
def python(*arguments: str) -> Iterator[psutil.Process]:
    with waiting(sys.executable, "-c", "import sys; print('ready', flush=True); sys.stdin.read()", *arguments) as one:
        yield one


@contextmanager
def java(*arguments: str) -> Iterator[psutil.Process]:
    """What has the command line of one."""
    with waiting("/usr/bin/java", "-c", "echo ready; read line", *arguments, program="/bin/sh") as one:
        yield one


def await_status(process: psutil.Process, *, is_stopped: bool) -> None:
    """Signals take effect a moment later."""
    deadline_s = time.monotonic() + 30
    while (process.status() == psutil.STATUS_STOPPED) != is_stopped:
        assert time.monotonic() < deadline_s
        time.sleep(0.001)


def test_what_may_be_stopped() -> None:
    """Tests and what they run; brokers if they are asked for; nothing that a test has stopped itself."""
    with ExitStack() as children:
        program = children.enter_context(python())
        supervisor = children.enter_context(python("/somewhere/_supervisor.py", "1"))
        broker = children.enter_context(java("kafka.Kafka", "server.properties"))
        spark = children.enter_context(java("org.apache.spark.deploy.SparkSubmit"))
        already = children.enter_context(python())
        children.enter_context(stopped(already))
        await_status(already, is_stopped=True)
        started = {program, supervisor, broker, spark, already}
        assert started.intersection(candidates(psutil.Process(), brokers=False)) == {program}
        assert started.intersection(candidates(psutil.Process(), brokers=True)) == {program, broker}


def test_a_process_is_continued_whatever_happens() -> None:
    """Also if it ends meanwhile, or has ended before."""
    with python() as process:

        def interrupted() -> None:
            with stopped(process):
                await_status(process, is_stopped=True)
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        await_status(process, is_stopped=False)
        with stopped(process):
            process.kill()
            process.wait()
    with stopped(process):
        assert not process.is_running()
