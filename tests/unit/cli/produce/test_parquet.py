"""``aioproducer produce`` of Parquet files."""

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from typer.testing import CliRunner, Result

from aioproducer import BatchResult, Producer, ProducerFailedError
from aioproducer.cli.app import app
from aioproducer.cli.produce.parquet import BATCH_ROWS
from aioproducer.testing import FakeCluster

SCRIPT = Path(sys.executable).with_name("aioproducer")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.parquet"


def write(path: Path, **columns: Any) -> None:
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def produce(cluster: FakeCluster, path: Path, *options: str) -> Result:
    arguments = ["produce", str(path), "--topic", "t", "--bootstrap", cluster.bootstrap_servers, *options]
    return CliRunner().invoke(app, arguments)


def counts_of(result: Result) -> str:
    return result.stdout.splitlines()[-1].partition(" in ")[0]


def test_a_table_in_the_form_of_records(path: Path) -> None:
    headers = pyarrow.array([[{"key": "h", "value": b"1"}], None], pyarrow.list_(
        pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
    ))  # fmt: skip
    write(
        path, value=["a", None], key=[b"k", b"l"], partition=[1, 2], timestamp=[77, 78], headers=headers, other=[1, 2]
    )
    with FakeCluster() as cluster:
        cluster.create_topic("t", 3)
        result = produce(cluster, path)
        assert (result.exit_code, result.stderr) == (0, "")
        assert counts_of(result) == "read 2, acked 2, failed 0, rejected 0"
        (first,), (second,) = cluster.records("t", 1), cluster.records("t", 2)
        assert (first.key, first.value, first.timestamp_ms, first.headers) == (b"k", b"a", 77, (("h", b"1"),))
        assert (second.key, second.value) == (b"l", None)
        assert not path.with_suffix(".parquet.rejects").exists()


def test_columns_by_other_names(path: Path) -> None:
    write(path, body=[b"a", b"b"], id=[7, None], at=[datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)] * 2)
    with FakeCluster() as cluster:
        result = produce(cluster, path, "--value", "body", "--key", "id", "--timestamp", "at")
        assert result.exit_code == 0
        first, second = cluster.records("t")
        assert (first.key, first.value, first.timestamp_ms) == (b"7", b"a", 1_767_225_600_000)
        assert second.key is None


def test_rows_without_a_column_of_values_go_as_json(path: Path) -> None:
    write(path, id=["x", "y"], n=[1, None], day=[datetime.date(2026, 1, 1)] * 2, at=[0, 1])
    with FakeCluster() as cluster:
        cluster.create_topic("t", 2)
        assert produce(cluster, path, "--key", "id", "--partition", "at").exit_code == 0
        (first,), (second,) = cluster.records("t", 0), cluster.records("t", 1)
        assert json.loads(first.value or b"") == {"id": "x", "n": 1, "day": "2026-01-01"}
        assert json.loads(second.value or b"")["n"] is None
        assert (first.key, second.key) == (b"x", b"y")


def test_many_batches_in_order(path: Path) -> None:
    rows = 2 * BATCH_ROWS + 5
    write(path, value=[str(number) for number in range(rows)])
    with FakeCluster() as cluster:
        result = produce(cluster, path)
        assert counts_of(result) == f"read {rows}, acked {rows}, failed 0, rejected 0"
        assert [each.value for each in cluster.records("t")] == [b"%d" % number for number in range(rows)]


def test_rows_that_fail_are_named(path: Path) -> None:
    rows = BATCH_ROWS + 10
    write(path, value=["x" * (2_000 if number == BATCH_ROWS + 3 else 5) for number in range(rows)])
    with FakeCluster() as cluster:
        result = produce(cluster, path, "--config", "max.request.size=1000")
        assert result.exit_code == 1
        assert counts_of(result) == f"read {rows}, acked {rows - 1}, failed 1, rejected 0"
        (reject,) = map(json.loads, Path(f"{path}.rejects").read_text().splitlines())
        assert reject["row_number"] == BATCH_ROWS + 4
        assert "max_request_size" in reject["error"]


def test_rows_that_fail_are_named_however_many_they_are(path: Path) -> None:
    rows = BATCH_ROWS + 10
    write(path, value=["x" * (2_000 if number % 4 else 5) for number in range(rows)])
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        result = produce(cluster, path, "--config", "max.request.size=1000")
        acked = len(range(0, rows, 4))
        assert counts_of(result) == f"read {rows}, acked {acked}, failed {rows - acked}, rejected 0"
        rejects = [json.loads(line) for line in Path(f"{path}.rejects").read_text().splitlines()]
        assert [each["row_number"] for each in rejects] == [number + 1 for number in range(rows) if number % 4]
        assert all("max_request_size" in each["error"] for each in rejects)
        assert not any("maybe_written" in each for each in rejects)  # they were refused by the client


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_rejects_that_are_missing_in_their_file_are_told(path: Path) -> None:
    write(path, value=["x" * 2_000])
    with FakeCluster() as cluster:
        result = produce(cluster, path, "--config", "max.request.size=1000", "--rejects", "/dev/full")
        assert result.exit_code == 1
        assert result.stderr == "aioproducer: rejects are missing from /dev/full: No space left on device\n"


def test_a_producer_that_fails_between_two_batches_is_told_with_the_counts(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows sent before are in the counts, and the rest does not count as read."""
    send_columns, calls = Producer._send_columns, iter([None, ProducerFailedError("its loop is gone")])

    async def failing(producer: Producer, *arguments: Any, **named: Any) -> BatchResult:
        error = next(calls)
        if error is not None:
            raise error
        return await send_columns(producer, *arguments, **named)

    monkeypatch.setattr(Producer, "_send_columns", failing)
    write(path, value=["x"] * (BATCH_ROWS + 1))
    with FakeCluster() as cluster:
        result = produce(cluster, path)
        assert result.exit_code == 1
        assert counts_of(result) == f"read {BATCH_ROWS}, acked {BATCH_ROWS}, failed 0, rejected 0"
        assert result.stderr == f"aioproducer: stopped after row {BATCH_ROWS}: its loop is gone\n"


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ({"a": [1]}, ("--value", "b"), "no column 'b' for --value: a"),
        ({"a": [1]}, ("--key", "b"), "no column 'b' for --key: a"),
        ({"a": [1]}, ("--partition", "a"), "no column is left for the records' values\n"),
        ({"a": [b"1"]}, (), "column 'a' holds bytes, which JSON can't: name it with --value"),
        ({"a": [{"b": [{"c": b"1"}]}]}, (), "column 'a' holds bytes, which JSON can't\n"),
        ({"a": [[b"1"]]}, (), "column 'a' holds bytes"),
        ({"a": pyarrow.array([[("k", b"1")]], pyarrow.map_("string", "binary"))}, (), "column 'a' holds bytes"),
        ({"a": pyarrow.array([b"1"]).dictionary_encode()}, (), "column 'a' holds bytes"),
        ({"day": pyarrow.array([2**62], pyarrow.timestamp("us"))}, (), "written as JSON: date value out of range"),
        ({"value": [1.5]}, (), "value"),
        ({"value": ["a"], "p": ["x"]}, ("--partition", "p"), "p"),
        ({"a": [1], "k": [[1]]}, ("--key", "k"), "has no text"),
    ],
)
def test_columns_that_do_not_fit_are_errors_before_anything_is_sent(
    columns: dict[str, Any], options: tuple[str, ...], said: str, path: Path
) -> None:
    write(path, **columns)
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        result = produce(cluster, path, *options)
        assert (result.exit_code, result.stdout) == (2, "")
        assert said in result.stderr
        assert cluster.records("t") == []


def test_columns_of_one_name_are_refused_where_they_are_needed(path: Path) -> None:
    table = pyarrow.table([["x"], [1], [2]], names=["value", "a", "a"])
    pyarrow.parquet.write_table(table, path)
    with FakeCluster() as cluster:
        result = produce(cluster, path, "--key", "a")
        assert (result.exit_code, result.stderr) == (2, "aioproducer: the file has two columns 'a'\n")
        assert produce(cluster, path).exit_code == 0
        pyarrow.parquet.write_table(table.select([1, 2]), path)
        result = produce(cluster, path)
        assert (result.exit_code, result.stderr) == (2, "aioproducer: the file has two columns 'a'\n")


def test_numbers_that_json_has_not_are_null(path: Path) -> None:
    write(path, id=[1, 2], at=[float("nan"), 1.5], deep=[{"a": [float("inf")]}, {"a": []}])
    with FakeCluster() as cluster:
        assert produce(cluster, path).exit_code == 0
        first, second = cluster.records("t")
        assert first.value == b'{"id": 1, "at": null, "deep": {"a": [null]}}'
        assert second.value == b'{"id": 2, "at": 1.5, "deep": {"a": []}}'


def test_maps_are_objects(path: Path) -> None:
    days = pyarrow.map_(pyarrow.date32(), pyarrow.list_(pyarrow.map_(pyarrow.int32(), pyarrow.float64())))
    write(
        path,
        tags=pyarrow.array([[("a", 1), ("b", None)], [], None], pyarrow.map_("string", "int64")),
        deep=pyarrow.array([[(datetime.date(2026, 1, 1), [[(7, 0.5)], None])], [], None], days),
        row=pyarrow.array(
            [{"x": [("k", float("nan"))], "y": 1}, {"x": None, "y": 2}, None],
            pyarrow.struct([("x", pyarrow.map_("string", "float64")), ("y", "int64")]),
        ),
        pairs=[[[1, 2]], [], None],
    )
    with FakeCluster() as cluster:
        assert produce(cluster, path).exit_code == 0
        assert [json.loads(each.value or b"") for each in cluster.records("t")] == [
            {
                "tags": {"a": 1, "b": None},
                "deep": {"2026-01-01": [{"7": 0.5}, None]},
                "row": {"x": {"k": None}, "y": 1},
                "pairs": [[1, 2]],
            },
            {"tags": {}, "deep": {}, "row": {"x": None, "y": 2}, "pairs": []},
            {"tags": None, "deep": None, "row": None, "pairs": None},
        ]


def test_files_that_are_none(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeCluster() as cluster:
        assert "can't be read" in produce(cluster, path).stderr
        path.write_text("no columns here")
        assert "is not a Parquet file" in produce(cluster, path).stderr
        assert "standard input" in produce(cluster, Path("-"), "--format", "parquet").stderr
        lines = tmp_path / "rows.jsonl"
        lines.write_text("{}\n")
        assert "--value names a column of a Parquet file" in produce(cluster, lines, "--value", "x").stderr
        assert "is the input itself" in produce(cluster, path, "--rejects", str(path)).stderr
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        assert produce(cluster, path).stderr == (
            "aioproducer: pyarrow must be installed: pip install 'aioproducer[arrow]'\n"
        )


def test_a_damaged_file(path: Path) -> None:
    """One line, as for any input that can't be read."""
    write(path, column=["x"])
    path.write_bytes(path.read_bytes().replace(b"column", b"colum\xff"))
    with FakeCluster() as cluster:
        result = produce(cluster, path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"aioproducer: {path} can't be read: 'utf-8' codec can't decode")


def test_an_interrupt_sends_what_was_read(path: Path) -> None:
    rows = 40 * BATCH_ROWS
    pyarrow.parquet.write_table(pyarrow.table({"value": ["x" * 50] * rows}), path)
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        cluster.faults.delay("Produce", 20, times=None)
        command = [SCRIPT, "produce", path, "--topic", "t", "--bootstrap", cluster.bootstrap_servers]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            while not cluster.end_offsets("t")[0]:
                os.sched_yield()
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=60)
        assert process.returncode == 130
        acked = cluster.end_offsets("t")[0]
        assert 0 < acked < rows
        assert out.startswith(f"read {acked}, acked {acked}, failed 0, rejected 0 in ")
