"""Finds in a broker's log why it ended. Pure, except for reading the file."""

from __future__ import annotations

import re
from pathlib import Path

TAIL_LINES = 30
MAX_READ_BYTES = 1024 * 1024

_FATAL = re.compile(
    r"\b(ERROR|FATAL)\b|^(Caused by: )?[\w.$]+(Exception|Error)\b|^Error:|^Unrecognized|^Could not|OutOfMemoryError"
)
_STARTED = "Kafka Server started"
_PORT_TAKEN = ("Address already in use", "Failed to bind")


def read_log(path: Path, begin: int = 0) -> str:
    """A log file from a byte position on, at most its last megabyte; empty if there is no file."""
    try:
        with path.open("rb") as file:
            file.seek(max(begin, path.stat().st_size - MAX_READ_BYTES))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


def has_started(log: str) -> bool:
    """Whether the broker has opened all its listeners and reports that it is up."""
    return _STARTED in log


def port_was_taken(log: str) -> bool:
    """Whether the broker ended because another process listens on one of its ports."""
    return any(sign in log for sign in _PORT_TAKEN)


def reasons(log: str) -> list[str]:
    """The lines that name errors, each once, without their stack traces."""
    found = dict.fromkeys(line.strip() for line in log.splitlines() if _FATAL.search(line))
    return list(found)[:8]


def describe(log: str) -> str:
    """The part of a message that shows why a broker ended: its errors, then the last lines of its log."""
    named = "".join(f"\n  {line[:500]}" for line in reasons(log))
    tail = "".join(f"\n  {line[:300]}" for line in log.splitlines()[-TAIL_LINES:])
    errors = f"\nIts errors:{named}" if named else ""
    return f"{errors}\nThe end of its log:{tail or ' (empty)'}"
