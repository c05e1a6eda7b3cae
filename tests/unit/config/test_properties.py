"""The .properties reader: equal to java.util.Properties."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.config.properties import parse_properties

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "properties.json").read_text())["cases"]


def test_equal_to_java_on_random_text() -> None:
    """250 texts as java.util.Properties read them; null where it refused."""
    assert len(GOLDEN) == 250
    for case in GOLDEN:
        if case["values"] is None:
            with pytest.raises(ValueError, match="hexadecimal"):
                parse_properties(case["text"])
        else:
            assert parse_properties(case["text"]) == case["values"], case["text"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("# note\n! note\n\n   \t\n", {}),
        ("acks=all", {"acks": "all"}),
        ("  acks : all  ", {"acks": "all  "}),
        ("acks all", {"acks": "all"}),
        ("acks\t=\fall", {"acks": "all"}),
        ("acks==all", {"acks": "=all"}),
        ("acks", {"acks": ""}),
        ("a=1\r\nb=2\rc=3\n", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("bootstrap.servers=a:9092,\\\n    b:9092", {"bootstrap.servers": "a:9092,b:9092"}),
        ("a=1,\\\r\n  2\r\nb=3", {"a": "1,2", "b": "3"}),
        ("a=1\\\n# no comment", {"a": "1# no comment"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\\\\\n  2\nb=3", {"a": "1\\2", "b": "3"}),
        ("a=1\\", {"a": "1"}),
        ("# note \\\na=1", {"a": "1"}),
        ("a\\ b\\=c\\:d=e", {"a b=c:d": "e"}),
        ("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
        ("a=\\u00e9\\u4E2D", {"a": "é中"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("\\u0061=1", {"a": "1"}),
    ],
)
def test_one_rule_each(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "a=\\u", "a=\\ud83d", "a=\\ude00x"])
def test_bad_escapes(text: str) -> None:
    with pytest.raises(ValueError, match=r"hexadecimal|surrogate|utf-16"):
        parse_properties(text)


@given(st.dictionaries(st.text(), st.text()))
def test_what_is_escaped_comes_back(values: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        data = text.encode("utf-16-be")
        return "".join(f"\\u{data[i]:02x}{data[i + 1]:02x}" for i in range(0, len(data), 2))

    text = "\n".join(f"{escaped(key)}={escaped(value)}" for key, value in values.items() if key)
    assert parse_properties(text) == {key: value for key, value in values.items() if key}


@given(st.text(alphabet="ab=: \t\f#!\\\n\ru0"))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        values = parse_properties(text)
    except ValueError:
        return
    assert all(isinstance(name, str) and isinstance(value, str) for name, value in values.items())
