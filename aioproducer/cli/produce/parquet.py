"""``aioproducer produce`` of a Parquet file: its row groups go through Arrow, batch by batch.

A file with a value column (``value``, or the one named by ``--value``) is sent unchanged, straight from Arrow's
buffers. The rows of any other file are sent as JSON objects, like those of a CSV file. One batch is sent while the next
one is read, so a file is never held whole. Every row read ends as acked, failed or rejected.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aioproducer import KafkaError, Producer, SendManyError
from aioproducer.cli.outcome import CommandError, one_line, require
from aioproducer.cli.produce.job import Counts
from aioproducer.cli.produce.rejects import Rejects
from aioproducer.cli.produce.run import STDIN, rejects_beside
from aioproducer.cli.produce.session import run_session
from aioproducer.producer_internals import send_columns
from aioproducer.strict_json import without_nan

BATCH_ROWS = 16_384
"""Rows per read, and per send_arrow."""
PARTS = ("key", "value", "headers", "partition", "timestamp")
"""Parts of a record that a column can be."""
VALUE = "value"


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns of a file form the records."""

    parts: Mapping[str, str]
    """Record part to column name."""
    as_json: tuple[str, ...]
    """Columns that become a JSON object as the value; empty if a column is the value."""

    @classmethod
    def choose(cls, names: list[str], wanted: Mapping[str, str]) -> Columns:
        """Choose a file's columns for the records.

        Args:
            names: names of all columns.
            wanted: requested columns, part to column.
        Raises:
            CommandError: a requested column is missing, or nothing is left for the values.
        """
        for part, name in wanted.items():
            if name not in names:
                raise CommandError(f"the file has no column {name!r} for --{part}: {', '.join(names)}")
        if VALUE in wanted or VALUE in names:
            # A table in record form: its other columns mean what their names say.
            own = {part: part for part in PARTS if part in names}
            return cls({**own, **wanted}, ())
        # The key stays in the object, as for rows of CSV and JSON.
        taken = {name for part, name in wanted.items() if part != "key"}
        left = tuple(name for name in names if name not in taken)
        if taken and not left:
            raise CommandError("no column is left for the records' values")
        return cls(dict(wanted), left)


class ParquetSource:
    """Batches of a file, read by one thread at a time; blocks.

    Raises:
        CommandError: it can't be read, is not Parquet, or its columns do not fit.
    """

    def __init__(self, path: str, wanted: Mapping[str, str]) -> None:
        import pyarrow
        import pyarrow.parquet

        self.bytes_read = 0
        """Rows, for the progress: the bytes read of a columnar file are unknown."""
        try:
            self._file = pyarrow.parquet.ParquetFile(path)
        except (OSError, UnicodeDecodeError, pyarrow.ArrowNotImplementedError) as error:
            reason = getattr(error, "strerror", None) or one_line(error)
            raise CommandError(f"{path} can't be read: {reason}") from error
        except pyarrow.ArrowInvalid as error:
            raise CommandError(f"{path} is not a Parquet file: {one_line(error)}") from error
        schema = self._file.schema_arrow
        self._columns = Columns.choose(schema.names, wanted)
        for name in {_JSON, _KEY, _UNUSED}.intersection(schema.names):
            raise CommandError(f"a column can't be named {name!r}")
        self.size_bytes: int | None = self._file.metadata.num_rows
        used = list(dict.fromkeys([*self._columns.parts.values(), *self._columns.as_json]))
        for name in used:
            if schema.names.count(name) > 1:
                raise CommandError(f"the file has two columns {name!r}")
        for name in self._columns.as_json:
            kind = schema.field(name).type
            if _has_bytes(kind):
                raise CommandError(f"column {name!r} holds bytes, which JSON can't: name it with --value")
            if _has_bytes_within(kind):
                raise CommandError(f"column {name!r} holds bytes, which JSON can't")
        self._batches = self._file.iter_batches(batch_size=BATCH_ROWS, columns=used)

    def arguments(self) -> dict[str, str]:
        """Column arguments for send_arrow; parts without a column get a name that no column has."""
        told = {part: self._columns.parts.get(part, _UNUSED) for part in PARTS}
        if self._columns.as_json:
            told[VALUE] = _JSON
        if "key" in self._columns.parts:
            told["key"] = _KEY
        return {**told, "topic_column": _UNUSED}

    def next(self) -> Any:
        """The next batch; None after the last."""
        import pyarrow

        try:
            batch = next(self._batches, None)
        except (OSError, pyarrow.ArrowException) as error:
            raise CommandError(f"reading the file failed: {one_line(error)}") from error
        if batch is None:
            return None
        self.bytes_read += batch.num_rows
        if self._columns.as_json:
            try:
                rows = _objects(batch.select(list(self._columns.as_json)))
            except (ValueError, OverflowError, pyarrow.ArrowException) as error:  # a date that Python can't hold
                raise CommandError(f"a value of the file can't be written as JSON: {one_line(error)}") from error
            values = list(map(_as_json, rows))
            batch = batch.append_column(_JSON, pyarrow.array(values, pyarrow.large_string()))
        if "key" in self._columns.parts:
            batch = batch.append_column(_KEY, _as_key(batch.column(self._columns.parts["key"])))
        return batch

    def close(self) -> None:
        """Close the file."""
        self._file.close()


_JSON, _KEY, _UNUSED = "(row as JSON)", "(key as text)", "(none)"
"""Names of columns created here, and of one that never exists."""


def _objects(batch: Any) -> list[dict[str, Any]]:
    """The rows of a batch, in JSON types."""
    columns = [map(_from_arrow(field.type), batch.column(at).to_pylist()) for at, field in enumerate(batch.schema)]
    return [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _from_arrow(kind: Any) -> Callable[[Any], Any]:
    """A function that converts a column's Python values: Arrow gives maps as lists of pairs, which are objects in JSON.

    If a map has a name twice the last one counts, as for JSON readers.
    """
    import pyarrow

    if not _has_maps(kind):
        return _as_it_is
    parts = list(map(_from_arrow, _parts(kind)))
    if pyarrow.types.is_map(kind):
        return lambda pairs: None if pairs is None else {_name(key): parts[1](value) for key, value in pairs}
    if pyarrow.types.is_struct(kind):
        return lambda fields: (
            fields and {name: part(value) for part, (name, value) in zip(parts, fields.items(), strict=True)}
        )
    return lambda values: values and [parts[0](value) for value in values]


def _has_maps(kind: Any) -> bool:
    import pyarrow

    return bool(pyarrow.types.is_map(kind)) or any(map(_has_maps, _parts(kind)))


def _as_it_is(value: Any) -> Any:
    return value


def _name(key: Any) -> Any:
    return key if isinstance(key, (str, int, float)) else str(key)


def _as_json(row: Mapping[str, Any]) -> str:
    """A row as a JSON object, with null for numbers that JSON lacks, like JavaScript."""
    try:
        return json.dumps(row, default=str, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(without_nan(row), default=str, ensure_ascii=False)


def _as_key(column: Any) -> Any:
    """Text and bytes unchanged, anything else as text."""
    import pyarrow

    kind = column.type.value_type if pyarrow.types.is_dictionary(column.type) else column.type
    if _has_bytes(kind) or pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind):
        return column
    try:
        return column.cast(pyarrow.string())
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError) as error:
        raise CommandError(f"--key: a column of {column.type} has no text") from error


def _has_bytes(kind: Any) -> bool:
    import pyarrow

    types = pyarrow.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


def _has_bytes_within(kind: Any) -> bool:
    """Whether a struct, list, map or dictionary contains bytes."""
    return any(_has_bytes(part) or _has_bytes_within(part) for part in _parts(kind))


def _parts(kind: Any) -> list[Any]:
    """The component types of a type; keys and values for a map."""
    import pyarrow

    if pyarrow.types.is_dictionary(kind):
        return [kind.value_type]
    if pyarrow.types.is_map(kind):
        return [kind.key_type, kind.item_type]
    return [kind.field(index).type for index in range(kind.num_fields)] if pyarrow.types.is_nested(kind) else []


def run(producer: Producer, topic: str, path: str, wanted: Mapping[str, str], rejects: Path | None) -> int:
    """Send every row, report the result, and return the exit code.

    Raises:
        CommandError: nothing was sent: the file, its columns, the cluster or the topic can't be used.
    """
    require({"pyarrow": "pyarrow"}, "arrow")
    if path == STDIN:
        raise CommandError("Parquet can't be read from standard input: its end has to be read first")
    rejects = rejects_beside(path, rejects)
    source = ParquetSource(path, wanted)
    try:
        return run_session(
            producer, topic, source, rejects, lambda rejected: ParquetJob(producer, topic, source, rejected)
        )
    finally:
        source.close()


class ParquetJob:
    """Sends the rows of a file to a topic, one batch while the next one is read."""

    def __init__(self, producer: Producer, topic: str, source: ParquetSource, rejects: Rejects) -> None:
        self._producer = producer
        self._topic = topic
        self._source = source
        self._rejects = rejects
        self._stopped = False
        self.counts = Counts()
        self.trouble: str | None = None
        """Why the run ended before its input did; None if it did not."""

    @property
    def place(self) -> str:
        """The last row read."""
        return f"row {self.counts.read}"

    def stop(self) -> None:
        """Send no further batch; waits for the current one."""
        self._stopped = True

    async def run(self) -> None:
        """Send every row, and wait until each has ended. On cancellation it fails those of the current batch.

        Raises:
            CommandError: the file can't be read, or its first batch can't be sent.
        """
        loop = asyncio.get_running_loop()
        coming = loop.run_in_executor(None, self._source.next)
        try:
            while (batch := await coming) is not None and self.trouble is None:
                coming = loop.run_in_executor(None, self._source.next)
                await self._send(batch)
                if self._stopped:
                    return
        except CommandError as error:
            if not self.counts.read:
                raise
            self.trouble = one_line(error)
        finally:
            # The thread uses the file, which is closed after this.
            await asyncio.wait([coming])
            coming.cancelled() or coming.exception()

    async def _send(self, batch: Any) -> None:
        first, rows = self.counts.read + 1, batch.num_rows
        self.counts.read += rows
        try:
            # Like send_arrow, whose result lists at most the first thousand failed rows.
            result = await send_columns(self._producer, self._topic, batch, self._source.arguments(), most_errors=rows)
        except SendManyError as error:
            result, self.trouble = error.result, one_line(error.exceptions[0])
        except KafkaError as error:  # unsuitable columns, or a failed producer: nothing of the batch was sent
            self.counts.read -= rows
            raise CommandError(one_line(error)) from error
        except asyncio.CancelledError:
            self.counts.failed += rows
            for number in range(first, first + rows):
                self._rejects.write_row(number, "given up: interrupted twice", maybe_written=True)
            raise
        self.counts.acked += result.acked
        self.counts.failed += result.failed
        left = rows - result.acked - result.failed
        self.counts.rejected += left
        for index, refusal in result.errors:
            maybe = getattr(refusal, "maybe_written", False)
            self._rejects.write_row(first + index, one_line(refusal), maybe_written=maybe)
        for number in range(first + rows - left, first + rows):
            self._rejects.write_row(number, f"not sent: {self.trouble}")
