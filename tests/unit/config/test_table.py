"""The config table equals Kafka's own, except for the differences listed here."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from aioproducer.config.definition import REQUIRED, ConfigDef
from aioproducer.config.docs import configuration_page
from aioproducer.config.keywords import ProducerConfigs
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.config.table import CONFIGS, JVM_ONLY
from aioproducer.config.values import ACKS, INT, LONG, PASSWORD, SERIALIZER, OneOf, Range
from aioproducer.errors import ConfigError

ROOT = Path(__file__).parents[3]
JAVA: dict[str, dict[str, str]] = {
    config["name"]: config
    for config in json.loads((ROOT / "tests" / "golden" / "producer_config.json").read_text())["configs"]
}
NOT_LISTED = {
    "auto.include.jmx.reporter",  # removed in Kafka 4.0, but still in old files
    "buffer.memory.allocation.strategy",  # of Kafka 4.4, which accepts it but does not tell of it yet
}
SHARED = [definition for definition in CONFIGS if definition.in_java]


def test_knows_every_name_of_java() -> None:
    ours = [definition.java_name for definition in SHARED] + [name.replace("_", ".") for name in JVM_ONLY]
    assert len(ours) == len(set(ours))
    assert set(ours) - set(JAVA) == NOT_LISTED
    assert set(JAVA) <= set(ours)


def java_default(definition: ConfigDef) -> Any:
    java = JAVA[definition.java_name]
    text = java["default"]
    if text == "null":
        return None
    if text in ("", '""'):
        return REQUIRED if text == "" else {"list": (), "string": ""}[java["type"]]
    return definition.parse(text)


@pytest.mark.parametrize("definition", SHARED, ids=lambda definition: definition.name)
def test_default_is_javas_or_says_why_not(definition: ConfigDef) -> None:
    expected = java_default(definition)
    if definition.name == "client_id":
        expected = ""
    assert (definition.default != expected) == bool(definition.departs)


@pytest.mark.parametrize("definition", SHARED, ids=lambda definition: definition.name)
def test_range_and_importance_are_javas(definition: ConfigDef) -> None:
    java = JAVA[definition.java_name]
    assert definition.importance == java["importance"]
    assert definition.secret == (java["type"] == "password")
    assert (definition.type is INT) == (java["type"] in ("int", "short"))
    assert (definition.type is LONG) == (java["type"] == "long")
    text = java["valid"].removeprefix("(case insensitive) ")
    valid = definition.valid
    if isinstance(valid, OneOf):
        assert sorted(str(valid).removeprefix("one of ").upper().split(", ")) == sorted(text[1:-1].upper().split(", "))
    elif isinstance(valid, Range) and text:
        bounds = text.split("]")[0][1:].removesuffix(",2147483647").split(",...")
        assert [float(bound.strip(",")) for bound in bounds if bound] == [
            bound for bound in (valid.minimum, valid.maximum) if bound is not None
        ]
        assert (valid.also == -1) == text.endswith("or -1")
    elif text:
        assert text in ("non-empty string", "[all, -1, 0, 1]")
        assert str(valid).startswith("1 to ") or definition.type is ACKS


def test_every_default_is_allowed() -> None:
    for definition in CONFIGS:
        if definition.default is not REQUIRED:
            assert definition.parse(definition.default) == definition.default, definition.name


def test_names_and_texts() -> None:
    names = [name for definition in CONFIGS for name in (definition.name, definition.alias) if name]
    assert len(names) == len(set(names))
    for definition in CONFIGS:
        assert definition.name.isidentifier()
        assert definition.doc.endswith("."), definition.name
        assert definition.unit == "ms" or not definition.name.endswith("_ms")


def test_attributes_are_the_table() -> None:
    """The dataclass is spelled out for type checkers, but the table is the source."""
    annotations = {field.name: field.type for field in fields(ProducerConfig)}
    expected = {
        definition.name: definition.type.annotation + (" | None" if definition.nullable else "")
        for definition in CONFIGS
    }
    assert list(annotations.items()) == [*expected.items(), ("given", "frozenset[str]")]
    assert typing.get_type_hints(ProducerConfig)["acks"] is int


NAMES = {name: definition for definition in CONFIGS for name in (definition.name, definition.alias) if name}


def test_keywords_are_the_table() -> None:
    """Like the attributes, spelled out for type checkers, with the table's names and types, aliases included."""
    expected = {}
    for name, definition in NAMES.items():
        accepts = definition.type.accepts
        if definition.type is SERIALIZER:
            accepts = f"Serializer[{'Key' if name == 'key_serializer' else 'Value'}_contra] | str"
        nullable = definition.nullable or definition.default == ""
        expected[name] = accepts + (" | None" if nullable else "")
    written = {name: hint.__forward_arg__.replace("'", '"') for name, hint in ProducerConfigs.__annotations__.items()}
    assert list(written.items()) == list(expected.items())
    assert not ProducerConfigs.__required_keys__


def fits(value: object, hint: Any) -> bool:
    """Whether a value matches one of the types that configs have."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, branch) for branch in arguments)
    if origin is Callable:
        return callable(value)
    if origin is list:
        return isinstance(value, list) and all(fits(each, arguments[0]) for each in value)
    if origin is tuple:
        return isinstance(value, tuple) and all(fits(each, arguments[0]) for each in value)
    if origin is typing.Literal:
        return value in arguments
    return hint is Any or isinstance(value, (int, float) if hint is float else origin or hint)


@pytest.mark.parametrize("name", NAMES)
def test_keywords_take_what_the_table_takes(name: str) -> None:
    """The default, and each of several values of all types that the table does not refuse."""
    hint, definition = typing.get_type_hints(ProducerConfigs)[name], NAMES[name]
    if definition.default is not REQUIRED:
        assert fits(definition.default, hint)
    for value in (None, 1, 0.5, True, "1", (), [], [1], object(), b"1", Path("1"), print):
        try:
            definition.parse(value)
        except ConfigError:
            continue
        assert fits(value, hint), value


PATHS = [definition for definition in CONFIGS if definition.name.endswith(("_file", "_location"))]


@pytest.mark.parametrize("definition", PATHS, ids=lambda definition: definition.name)
def test_paths_may_be_path_objects(definition: ConfigDef) -> None:
    assert definition.parse(Path("/etc/my ca.pem")) == "/etc/my ca.pem"
    assert definition.parse(" /etc/ca.pem ") == "/etc/ca.pem"
    with pytest.raises(ConfigError, match="is refused; allowed: path of a file"):
        definition.parse(b"/etc/ca.pem")


def test_secrets_are_marked() -> None:
    for definition in CONFIGS:
        if any(word in definition.name for word in ("password", "secret", "passphrase", "jaas", "keystore_key")):
            assert definition.type is PASSWORD, definition.name


def test_page_is_up_to_date() -> None:
    """To update it: python -m aioproducer.config.docs > docs/configuration.md."""
    assert (ROOT / "docs" / "configuration.md").read_text() == configuration_page()


def test_page_names_every_config() -> None:
    page = configuration_page()
    for definition in CONFIGS:
        assert f"\n| `{definition.name}`" in page
    for name in JVM_ONLY:
        assert f"\n| `{name.replace('_', '.')}` |" in page
    rows = [line for line in page.splitlines() if line.startswith("| `") and line.count(" | ") > 2]
    assert len(rows) == len(CONFIGS)
    assert "| `acks` | `all` |" in page
    assert "| `enable_idempotence` | `true` |" in page
    assert "| `bootstrap_servers` | required |" in page
    assert "| `ssl_enabled_protocols` | `TLSv1.2,TLSv1.3` |" in page
