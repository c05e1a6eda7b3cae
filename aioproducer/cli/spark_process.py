"""Spark within a command: its output goes to a file, and a signal ends the command without breaking Spark midway.

Its JVM logs much that does not concern a command's user.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from aioproducer.cli.outcome import CommandError


@contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Processes started in the block write their standard error to a file for their whole life.

    Raises:
        CommandError: the file can't be created.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("wb")
    except OSError as error:
        raise CommandError(f"{path} can't be written: {error.strerror}") from error
    sys.stderr.flush()
    before = os.dup(2)
    try:
        with file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)


@contextmanager
def without_pandas_warning() -> Iterator[None]:
    """Ignore PySpark's warnings about untested pandas versions; nothing here uses pandas."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        yield


@contextmanager
def quiet_interrupts() -> Iterator[None]:
    """Turn Ctrl-C into a KeyboardInterrupt and nothing else.

    PySpark's own handler would ask Spark to cancel its jobs in the middle of another request, which breaks both. And
    py4j logs each interrupted request with its traceback.
    """
    log, unheard = logging.getLogger(), logging.NullHandler()
    log.addHandler(unheard)
    try:
        with _handler(signal.default_int_handler, signal.SIGINT):
            yield
    finally:
        log.removeHandler(unheard)


@contextmanager
def signals_set_event() -> Iterator[threading.Event]:
    """Make SIGINT and SIGTERM set an event, interrupting nothing."""
    told = threading.Event()
    with _handler(lambda *_: told.set(), signal.SIGINT, signal.SIGTERM):
        yield told


@contextmanager
def _handler(handler: Callable[[int, FrameType | None], object], *numbers: signal.Signals) -> Iterator[None]:
    """Handle signals this way in the block; no change outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, handled in before.items():
            signal.signal(number, handled)


def here(path: Path) -> str:
    """The path on this machine; without a scheme, Spark looks on the default file system of its Hadoop configs."""
    return f"file:{path}"
