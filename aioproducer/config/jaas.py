"""``sasl.jaas.config`` in the form of Java's clients: a login module and its options, on one line. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from aioproducer.errors import ConfigError

_TOKEN = re.compile(
    r"""\s*(?:(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<sign>[=;])|(?P<word>[^\s=;"']+))""", re.DOTALL
)
_CLASS = re.compile(r"[\w.$]{1,200}", re.ASCII)
_FLAGS = ("required", "requisite", "sufficient", "optional")


class Jaas(NamedTuple):
    """The parsed text."""

    module: str
    """The class name without its package, such as ``PlainLoginModule``."""
    options: dict[str, str]


def parse_jaas(text: str) -> Jaas:
    """Parse ``<class> required <name>=<value> ...;``; values may be quoted.

    Raises:
        ConfigError: the text has another form. No part of it is shown, as it contains a password.
    """
    tokens = _tokens(text)
    named = len(tokens) >= 3 and _CLASS.fullmatch(tokens[0]) and tokens[1].lower() in _FLAGS
    if not named or tokens[-1] != ";":
        raise ConfigError('sasl_jaas_config is not of the form: <class> required <name>="<value>" ... ;')
    options: dict[str, str] = {}
    rest = tokens[2:-1]
    if len(rest) % 3 or any(sign != "=" for sign in rest[1::3]):
        raise ConfigError('sasl_jaas_config has an option that is not of the form <name>="<value>"')
    for name, value in zip(rest[::3], rest[2::3], strict=True):
        options[name] = value
    return Jaas(tokens[0].rpartition(".")[2], options)


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    at = 0
    text = text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ConfigError("sasl_jaas_config has a quote that is not closed")
        at = match.end()
        quoted = match["quoted"]
        tokens.append(
            re.sub(r"\\(.)", r"\1", quoted[1:-1], flags=re.DOTALL) if quoted else match["sign"] or match["word"]
        )
    return tokens
