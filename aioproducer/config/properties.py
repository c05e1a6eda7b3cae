"""Reader of Java ``.properties`` text.

Source: java.util.Properties.load.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_BLANK = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))")
_ENTRY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """The names and values in a file's text; if a name is given twice, the last value counts, as in Java.

    Handles comments (``#``, ``!``), lines continued by a backslash, the separators ``=``, ``:`` and blank, and Java's
    escapes, including ``\\uXXXX``.

    Raises:
        ValueError: a ``\\u`` without four hexadecimal digits, or half of a surrogate pair.
    """
    values = {}
    for line in _logical_lines(text):
        entry = _ENTRY.fullmatch(line)
        assert entry is not None  # the pattern matches every line
        key, value = entry.groups()
        values[_unescape(key)] = _unescape(value)
    return values


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without leading blanks; continued lines are joined, blank lines and comments left out."""
    joined = ""
    for line in _LINE_END.split(text):
        rest = line.lstrip(_BLANK)
        if not joined and (not rest or rest[0] in "#!"):
            continue
        joined += rest
        # An odd number: in an even one, each backslash escapes the next.
        if (len(rest) - len(rest.rstrip("\\"))) % 2 == 1:
            joined = joined[:-1]
        else:
            yield joined
            joined = ""
    if joined:
        yield joined


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_replacement, text).encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _replacement(escape: re.Match[str]) -> str:
    code_unit, character = escape.groups()
    if code_unit is not None:
        return chr(int(code_unit, 16))
    if character == "u":
        raise ValueError("\\u needs four hexadecimal digits")
    return _CONTROL.get(character, character)
