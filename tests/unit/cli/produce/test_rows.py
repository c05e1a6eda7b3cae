"""What the parsers make of good and bad lines."""

from __future__ import annotations

import json

import pytest

from aioproducer.cli.outcome import CommandError
from aioproducer.cli.produce import rows as rows_module
from aioproducer.cli.produce.rows import Format, Row, format_of, parser_of
from aioproducer.cli.produce.source import split_lines


def parse(data: bytes, kind: Format, key: str | None = None) -> list[Row]:
    """All rows of a file with this content."""
    return list(parser_of(kind, key)(split_lines(iter([data]))))


def json_rows(data: bytes, key: str | None = None) -> list[Row]:
    return parse(data, Format.JSONL, key)


def csv_rows(data: bytes, key: str | None = None) -> list[Row]:
    return parse(data, Format.CSV, key)


def error_of(rows: list[Row]) -> str:
    """The error of the only row."""
    (row,) = rows
    assert row.error is not None
    assert row.value == b""
    assert row.key is None
    return row.error


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("a.jsonl", Format.JSONL),
        ("dir.csv/a.ndjson", Format.JSONL),
        ("a.JSON", Format.JSONL),
        ("a.csv", Format.CSV),
        ("a.csv.txt", Format.LINES),
        ("a", Format.LINES),
        ("-", Format.LINES),
    ],
)
def test_the_suffix_tells_the_format(path: str, kind: Format) -> None:
    assert format_of(path) is kind


# --- lines ------------------------------------------------------------------------------------------------------------


def test_lines_are_sent_as_they_stand() -> None:
    rows = parse(b" one \r\n\n\xff\x00\rtwo\nend", Format.LINES)
    assert rows == [
        Row(1, b" one ", b" one "),
        Row(2, b"", b""),
        Row(3, b"\xff\x00\rtwo", b"\xff\x00\rtwo"),
        Row(4, b"end", b"end"),
    ]


def test_lines_have_no_key() -> None:
    with pytest.raises(CommandError, match="--key needs rows with fields"):
        parser_of(Format.LINES, "id")


# --- JSON lines -------------------------------------------------------------------------------------------------------


def test_json_is_sent_as_it_stands() -> None:
    rows = json_rows(b'{"b":1.0,  "a":"\\u00e9"} \r\n\n  [1]\n"text"\nnull')
    assert rows == [
        Row(1, b'{"b":1.0,  "a":"\\u00e9"} ', b'{"b":1.0,  "a":"\\u00e9"}'),
        Row(3, b"  [1]", b"[1]"),
        Row(4, b'"text"', b'"text"'),
        Row(5, b"null", b"null"),
    ]


def test_a_byte_order_mark_is_left_out() -> None:
    assert json_rows(b'\xef\xbb\xbf{"a": 1}\n')[0].value == b'{"a": 1}'
    assert csv_rows(b"\xef\xbb\xbfa\n1\n")[0].value == b'{"a":"1"}'


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"a": }', "not JSON: Expecting value at character 7"),
        (b'{"a": 1', "not JSON: Expecting ',' delimiter at character 8"),
        (b"{} {}", "not JSON: Extra data at character 4"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b"-Infinity", "-Infinity is not JSON"),
        (b'{"a": "\xff"}', "not UTF-8 at byte 8"),
        (b"[" * 100_000, "not usable: nested too deeply"),
    ],
)
def test_bad_json_is_an_error_of_its_line(line: bytes, reason: str) -> None:
    assert error_of(json_rows(line)) == reason
    assert [row.error for row in json_rows(b"{}\n" + line + b"\n{}\n")] == [None, reason, None]


def test_numbers_of_any_length_are_json() -> None:
    assert json_rows(b"1" * 10_000)[0].error is None


@pytest.mark.parametrize(
    ("field", "key"),
    [
        ('"N14228"', b"N14228"),
        ('"\\u00e9"', "é".encode()),
        ('""', b""),
        ("7", b"7"),
        ("1.50", b"1.50"),
        ("1e3", b"1e3"),
        ("123456789012345678901234567890", b"123456789012345678901234567890"),
        ("true", b"true"),
        ("false", b"false"),
        ("null", None),
    ],
)
def test_the_key_is_the_text_of_its_field(field: str, key: bytes | None) -> None:
    (row,) = json_rows(f'{{"other": 1, "id": {field}}}'.encode(), "id")
    assert row.error is None
    assert row.key == key


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"Id": 1}', "the key field 'id' is missing"),
        (b"[1]", "not a JSON object, so it has no key field 'id'"),
        (b'"id"', "not a JSON object, so it has no key field 'id'"),
        (b'{"id": {}}', "the key field 'id' holds an object or a list"),
        (b'{"id": []}', "the key field 'id' holds an object or a list"),
        (b'{"id": "\\ud800"}', "the key field 'id' can't be encoded as UTF-8"),
    ],
)
def test_rows_without_a_usable_key_are_errors(line: bytes, reason: str) -> None:
    assert error_of(json_rows(line, "id")) == reason


# --- CSV --------------------------------------------------------------------------------------------------------------


def test_csv_rows_become_objects_of_strings() -> None:
    rows = csv_rows('name,n\r\n"a, ""b""",1\r\n\r\nÄ,\n'.encode())
    assert [json.loads(row.value) for row in rows] == [{"name": 'a, "b"', "n": "1"}, {"name": "Ä", "n": ""}]
    assert rows[1].value == '{"name":"Ä","n":""}'.encode()
    assert [(row.line_number, row.original) for row in rows] == [(2, b'"a, ""b""",1'), (4, "Ä,".encode())]


def test_a_quoted_field_may_go_over_lines() -> None:
    first, second = csv_rows(b'a,b\n1,"x\ny\r\nz"\n2,w\n', "a")
    assert json.loads(first.value) == {"a": "1", "b": "x\ny\r\nz"}
    assert (first.line_number, first.original, first.key) == (2, b'1,"x\ny\r\nz"', b"1")
    assert (second.line_number, second.key) == (5, b"2")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"1,2,3", "3 fields where the header has 2"),
        (b"1", "1 fields where the header has 2"),
        (b'"1"x,2', "not CSV: ',' expected after '\"'"),
        (b"1,\xff", "not UTF-8 at byte 3"),
    ],
)
def test_bad_rows_are_errors_of_their_own(line: bytes, reason: str) -> None:
    before, bad, after = csv_rows(b"a,b\n0,0\n" + line + b"\n4,5\n")
    assert (bad.line_number, bad.original, bad.error) == (3, line, reason)
    assert before.value == b'{"a":"0","b":"0"}'
    assert after.value == b'{"a":"4","b":"5"}'


def test_a_quote_that_never_ends_is_an_error_with_all_it_took() -> None:
    good, bad = csv_rows(b'a,b\n1,2\n3,"4\n5,6\n')
    assert good.error is None
    assert (bad.line_number, bad.original) == (3, b'3,"4\n5,6')
    assert bad.error == "not CSV: unexpected end of data"


def test_a_field_that_never_ends_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "LONGEST_LINE_BYTES", 1000)
    bad, *_ = csv_rows(b'a\n"' + b"x\n" * 10_000)
    assert bad.error is not None
    assert bad.error.startswith("not CSV: field larger than field limit")
    assert len(bad.original) < 1010


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"a,b,a\n", "the CSV header has two columns 'a'"),
        (b"a,c\n", "the CSV header has no column 'b' for --key: a, c"),
        (b'"a"x,b\n', "the CSV header is unusable: not CSV"),
        (b"a,\xff\n", "the CSV header is unusable: not UTF-8"),
    ],
)
def test_an_unusable_header_ends_it_all(header: bytes, reason: str) -> None:
    with pytest.raises(CommandError, match=reason):
        csv_rows(header + b"1,2\n", "b")


def test_no_rows_are_no_error() -> None:
    assert csv_rows(b"") == []
    assert csv_rows(b"a,b\n") == []
    assert json_rows(b"\n \n") == []
    assert parse(b"", Format.LINES) == []
