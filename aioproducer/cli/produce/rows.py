"""The parsers of the input formats. They run in the reading thread, never on the loop."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import PurePath
from typing import Any, NamedTuple, NoReturn

from aioproducer.cli.outcome import CommandError
from aioproducer.cli.produce.source import LONGEST_LINE_BYTES, Line


class Format(StrEnum):
    """How a file is split into records."""

    JSONL = "jsonl"
    """One JSON value per line, sent unchanged; blank lines are skipped."""
    CSV = "csv"
    """A header, then one JSON object of strings per row; blank lines are skipped."""
    LINES = "lines"
    """Each line unchanged, without its line end; a blank one is an empty value."""
    PARQUET = "parquet"
    """Read by columns, see ``parquet.py``."""


_SUFFIXES = {
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    ".json": Format.JSONL,
    ".csv": Format.CSV,
    ".parquet": Format.PARQUET,
}


def format_of(path: str) -> Format:
    """The format for a file name's suffix; lines if it is unknown."""
    return _SUFFIXES.get(PurePath(path).suffix.lower(), Format.LINES)


class Row(NamedTuple):
    """One record to send, or why there is none."""

    line_number: int
    """Of its first line, counted from 1."""
    original: bytes
    """The line without its end; all lines of a CSV row."""
    value: bytes = b""
    key: bytes | None = None
    error: str | None = None
    """Why the row can't be sent."""


Parser = Callable[[Iterator[Line]], Iterator[Row]]


def parser_of(kind: Format, key_field: str | None) -> Parser:
    """The parser of a format.

    Args:
        key_field: the field whose text becomes the record's key; None for records without key.
    Raises:
        CommandError: plain lines have no fields.
    """
    if kind is Format.LINES:
        if key_field is not None:
            raise CommandError("--key needs rows with fields: use --format jsonl or --format csv")
        return _plain_rows
    parse = _json_rows if kind is Format.JSONL else _csv_rows
    return lambda lines: parse(lines, key_field)


def _without_end(raw: bytes) -> bytes:
    return raw.removesuffix(b"\n").removesuffix(b"\r")


def _plain_rows(lines: Iterator[Line]) -> Iterator[Row]:
    for number, raw in lines:
        text = _without_end(raw)
        yield Row(number, text, text)


def _without_mark(lines: Iterator[Line]) -> Iterator[Line]:
    """Skip the byte order mark that some programs write first."""
    for line in lines:
        yield line if line.number > 1 else Line(1, line.raw.removeprefix(b"\xef\xbb\xbf"))


# --- JSON lines -------------------------------------------------------------------------------------------------------


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# Numbers keep their text: they only need to be valid, and a key must look as it does in the file.
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse_constant)


def _json_rows(lines: Iterator[Line], key_field: str | None) -> Iterator[Row]:
    for number, raw in _without_mark(lines):
        value = raw.strip()
        if not value:
            continue
        try:
            decoded = _decode(value)
            key = None if key_field is None else _key_of(decoded, key_field)
        except ValueError as error:
            yield Row(number, _without_end(raw), error=str(error))
        else:
            yield Row(number, _without_end(raw), value, key)


def _decode(value: bytes) -> Any:
    try:
        return _DECODER.decode(value.decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start + 1}") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos + 1}") from error
    except RecursionError as error:
        raise ValueError("not usable: nested too deeply") from error


def _key_of(decoded: object, field: str) -> bytes | None:
    if not isinstance(decoded, dict):
        raise ValueError(f"not a JSON object, so it has no key field {field!r}")
    if field not in decoded:
        raise ValueError(f"the key field {field!r} is missing")
    match decoded[field]:
        case None:
            return None
        case bool(truth):
            return b"true" if truth else b"false"
        case str(text):
            try:
                return text.encode()
            except UnicodeEncodeError as error:
                raise ValueError(f"the key field {field!r} can't be encoded as UTF-8") from error
        case _:
            raise ValueError(f"the key field {field!r} holds an object or a list")


# --- CSV --------------------------------------------------------------------------------------------------------------


class _CsvRows:
    """Rows with their source lines: a quoted field may span several."""

    def __init__(self, lines: Iterator[Line]) -> None:
        csv.field_size_limit(LONGEST_LINE_BYTES)
        self._lines = lines
        self._taken: list[Line] = []
        # Strict: malformed input becomes a reject, never a guess.
        self._reader = csv.reader(self._texts(), strict=True)

    def _texts(self) -> Iterator[str]:
        for line in self._lines:
            self._taken.append(line)
            # Invalid bytes must not end the reader; the row is refused afterwards.
            yield line.raw.decode("utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[tuple[Line, list[str], str | None]]:
        """The line without its end, the cells, and why there are none."""
        while True:
            self._taken.clear()
            cells: list[str] = []
            problem = None
            try:
                cells = next(self._reader)
            except StopIteration:
                return
            except csv.Error as error:
                problem = f"not CSV: {error}"
            raw = b"".join(line.raw for line in self._taken)
            if cells or problem:
                yield Line(self._taken[0].number, _without_end(raw)), cells, problem or _encoding_problem(raw)


def _encoding_problem(raw: bytes) -> str | None:
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8 at byte {error.start + 1}"
    return None


def _csv_rows(lines: Iterator[Line], key_field: str | None) -> Iterator[Row]:
    rows = iter(_CsvRows(_without_mark(lines)))
    header = next(rows, None)
    if header is None:
        return
    names = _header_names(header[1], header[2], key_field)
    for line, cells, problem in rows:
        if problem is None and len(cells) != len(names):
            problem = f"{len(cells)} fields where the header has {len(names)}"
        if problem is not None:
            yield Row(line.number, line.raw, error=problem)
            continue
        fields = dict(zip(names, cells, strict=True))
        value = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
        yield Row(line.number, line.raw, value, None if key_field is None else fields[key_field].encode())


def _header_names(names: list[str], problem: str | None, key_field: str | None) -> list[str]:
    """Check the header: without a valid one no row can be read."""
    twice = {name for name in names if names.count(name) > 1}
    if problem is not None:
        raise CommandError(f"the CSV header is unusable: {problem}")
    if twice:
        raise CommandError(f"the CSV header has two columns {min(twice)!r}")
    if key_field is not None and key_field not in names:
        raise CommandError(f"the CSV header has no column {key_field!r} for --key: {', '.join(names)}")
    return names
