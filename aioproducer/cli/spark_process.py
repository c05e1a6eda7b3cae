"""Spark within a command: what it says goes to a file, and a signal ends the command and not Spark in its midst.

Its JVM has much to say that is no matter of a command's user.
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
    """Processes that are started in the block write their standard error to a file, as long as they live.

    Raises:
        CommandError: the file can't be made.
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
    """PySpark warns of versions of pandas that it does not know well; nothing here makes use of pandas."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        yield


@contextmanager
def quiet_interrupts() -> Iterator[None]:
    """Make of Ctrl-C a KeyboardInterrupt and nothing else.

    PySpark's own handler would ask Spark to cancel its jobs, in the midst of another question to it, which breaks both.
    And py4j logs each interrupted question with its traceback.
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
    """Let SIGINT and SIGTERM set an event and interrupt nothing."""
    told = threading.Event()
    with _handler(lambda *_: told.set(), signal.SIGINT, signal.SIGTERM):
        yield told


@contextmanager
def _handler(handler: Callable[[int, FrameType | None], object], *numbers: signal.Signals) -> Iterator[None]:
    """Handle signals so in the block; they stay as they are where it does not run in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, handled in before.items():
            signal.signal(number, handled)
