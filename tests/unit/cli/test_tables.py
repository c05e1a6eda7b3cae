"""Tables that are wider than the terminal."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console
from rich.table import Table
from typer.testing import CliRunner

from aioproducer.cli import audit
from aioproducer.cli.app import app
from aioproducer.cli.perf.latency import Histogram
from aioproducer.cli.perf.load import Stats
from aioproducer.cli.perf.report import Result, show
from aioproducer.cli.tables import print_table
from aioproducer.testing import FakeCluster

NARROW = 30


def terminal() -> tuple[io.StringIO, Console]:
    written = io.StringIO()
    return written, Console(file=written, force_terminal=True, width=NARROW, color_system=None, highlight=False)


@pytest.mark.parametrize("justify", ["left", "right"])
def test_no_cell_is_cut_or_broken(justify: str) -> None:
    written, console = terminal()
    table = Table("name", box=None)
    table.add_column("numbers", justify=justify)  # type: ignore[arg-type]
    table.add_row("orders-from-spark-9c1f0e5d7a3b-0-3-0-1", "1 2 3 1,234,567")
    print_table(console, table)
    header, row = written.getvalue().splitlines()
    assert header.split() == ["name", "numbers"]
    assert row.split() == ["orders-from-spark-9c1f0e5d7a3b-0-3-0-1", "1", "2", "3", "1,234,567"]


def test_a_table_that_fits_is_no_wider_than_its_cells() -> None:
    written, console = terminal()
    table = Table("name", "state", box=None)
    table.add_row("orders", "ok")
    print_table(console, table)
    assert written.getvalue().splitlines() == [" name    state ", " orders  ok    "]


def test_topics_with_long_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe has no width either."""
    monkeypatch.setenv("COLUMNS", str(NARROW))
    name = "x" * 249
    with FakeCluster() as cluster:
        cluster.create_topic(name)
        for arguments in (("topics",), ("describe", name)):
            result = CliRunner().invoke(app, [*arguments, "--bootstrap", cluster.bootstrap_servers])
            assert name in result.stdout
            assert "…" not in result.stdout
        (line,) = (line for line in result.stdout.splitlines() if cluster.bootstrap_servers in line)
        assert line.split() == ["0", "1", "0", cluster.bootstrap_servers, "1", "1"]


def test_the_findings_of_an_audit() -> None:
    written, console = terminal()
    row = dict.fromkeys((*audit.COUNTS, *audit.LATENCIES), 1_234_567)
    print_table(
        console, audit.table("audit", [{"topic": "orders", "partition": 0, "bucket": datetime.now(UTC), **row}])
    )
    line = written.getvalue().splitlines()[-1]
    assert line.count("1,234,567") == len(row)


def test_the_latencies_of_a_run() -> None:
    written, console = terminal()
    latencies = Histogram()
    latencies.add(1_234_567_000)
    show(console, Result(options={}, stats=Stats(sent=1, acked=1, latencies=latencies), took_s=1.0))
    (line,) = (line for line in written.getvalue().splitlines() if line.startswith("ms"))
    assert line.split().count("1,234,567") == len(["min", "avg", "max"])
    assert len(line.split()) == 10
