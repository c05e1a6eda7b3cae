"""``aioproducer produce`` for lines: its options and the run."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from aioproducer import Producer
from aioproducer.cli.outcome import CommandError
from aioproducer.cli.produce.feed import RowFeed
from aioproducer.cli.produce.job import Job
from aioproducer.cli.produce.rejects import STDOUT, Rejects
from aioproducer.cli.produce.rows import Format, Parser, format_of, parser_of
from aioproducer.cli.produce.session import run_session
from aioproducer.cli.produce.source import LineSource

STDIN = "-"


@dataclass(frozen=True, slots=True)
class Input:
    """The input and its format."""

    path: str
    """A file, or ``-``."""
    parse: Parser
    rejects: Path


def plan(path: str, kind: Format | None, key_field: str | None, rejects: Path | None) -> Input:
    """Fill in the options' defaults.

    Raises:
        CommandError: they contradict each other, or the rejects file would be the input.
    """
    if path == STDIN and rejects is None:
        raise CommandError("standard input needs --rejects FILE: rows that fail have to go somewhere")
    return Input(path, parser_of(kind or format_of(path), key_field), rejects_beside(path, rejects))


def rejects_beside(path: str, rejects: Path | None) -> Path:
    """Where the rejects go: to the requested file, or beside the input.

    Raises:
        CommandError: that would be the input.
    """
    chosen = Path(path + ".rejects") if rejects is None else rejects
    with suppress(OSError):
        read, written = os.stat(0 if path == STDIN else path), os.stat(1 if chosen == STDOUT else chosen)
        # A terminal can be both, and so can /dev/null.
        if os.path.samestat(read, written) and not stat.S_ISCHR(read.st_mode):
            raise CommandError(f"--rejects {chosen} is the input itself")
    return chosen


def run(producer: Producer, topic: str, what: Input) -> int:
    """Send everything, report the result, and return the exit code.

    Raises:
        CommandError: nothing was sent: the input can't be read, or the cluster or the topic can't be used.
    """
    with _open(what.path) as source:

        def begin(rejects: Rejects) -> Job:
            return Job(producer, topic, RowFeed(source, what.parse), rejects)

        return run_session(producer, topic, source, what.rejects, begin)


def _open(path: str) -> LineSource:
    try:
        # Unbuffered, see LineSource. Standard input stays open when its copy is closed.
        return LineSource(FileIO(os.dup(0)) if path == STDIN else FileIO(path))
    except OSError as error:
        raise CommandError(f"{path} can't be read: {error.strerror}") from error
