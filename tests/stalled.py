"""``python -m tests.stalled [--stop 0.2-1.2] [--every 1] [--brokers] -- PYTEST_ARGS``: tests on a machine that stalls.

Starts pytest and, again and again, stops one of the Python processes that run tests or were started by them, chosen at
random, as a busy or virtual machine does when it gives a process no processor for a while. Nothing that waits for an
event may notice. ``--brokers`` stops Kafka's brokers as well, as a pause of their garbage collection does; a test that
freezes a broker itself may then find that it has been continued too early.

Each process is stopped alone, and continued however the run ends. Prints how often that happened.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence

import psutil

BROKER = "kafka.Kafka"
SUPERVISOR = "_supervisor.py"
"""Runs no test and no producer: it only starts brokers and kills them at the end."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run pytest while its processes are stopped; returns its exit code."""
    made = argparse.ArgumentParser(prog="python -m tests.stalled", description="pytest on a machine that stalls")
    made.add_argument("--stop", type=_range, default=(0.2, 1.2), metavar="FROM-TO", help="seconds of a stop")
    made.add_argument("--every", type=float, default=1.0, help="seconds from one stop to the next, half to twice that")
    made.add_argument("--brokers", action="store_true", help="stop Kafka's brokers, too")
    made.add_argument("pytest", nargs="*", help="arguments of pytest, after --")
    options = made.parse_args(arguments)
    run = subprocess.Popen([sys.executable, "-m", "pytest", *options.pytest])
    _leave_signals_to(run)
    stops = 0
    while not _ends_within(random.uniform(options.every / 2, options.every * 2), run):
        if processes := candidates(psutil.Process(), brokers=options.brokers):
            with stopped(random.choice(processes)):
                _ends_within(random.uniform(*options.stop), run)
            stops += 1
    print(f"tests.stalled: {stops:,} stops of {options.stop[0]:g} to {options.stop[1]:g} s")
    return run.returncode


def candidates(root: psutil.Process, *, brokers: bool) -> list[psutil.Process]:
    """The descendants of a process that may be stopped."""
    return [one for one in root.children(recursive=True) if _may_stop(one, brokers)]


@contextlib.contextmanager
def stopped(process: psutil.Process) -> Iterator[None]:
    """Stop a process, unless it has ended, and continue it at the end."""
    try:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()
        yield
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()


def _may_stop(process: psutil.Process, brokers: bool) -> bool:
    try:
        # One that a test has stopped must not be continued here.
        if process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE):
            return False
        command = process.cmdline()
    except psutil.NoSuchProcess:
        return False
    program = os.path.basename(command[0]) if command else ""
    if program.startswith("java"):
        return brokers and BROKER in command
    return program.startswith("python") and not any(one.endswith(SUPERVISOR) for one in command)


def _leave_signals_to(run: subprocess.Popen[bytes]) -> None:
    """Nothing interrupts this process: it ends after pytest, with every process continued."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to both
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: run.send_signal(number))


def _ends_within(seconds: float, run: subprocess.Popen[bytes]) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        run.wait(seconds)
    return run.returncode is not None


def _range(text: str) -> tuple[float, float]:
    least, _, most = text.partition("-")
    return float(least), float(most or least)


if __name__ == "__main__":
    sys.exit(main())
