"""FakeSchemaRegistry, by way of another client: what a registry answers, and what it is told to."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from aioproducer.testing import FakeSchemaRegistry

SCHEMA = '{"type": "record", "name": "Order", "fields": []}'
OTHER = '{"type": "record", "name": "Other", "fields": []}'


@pytest.fixture
def client(fake_schema_registry: FakeSchemaRegistry) -> Iterator[Any]:
    with SchemaRegistryClient({"url": fake_schema_registry.url, "max.retries": 0}) as made:
        yield made


def test_one_schema_has_one_id(client: Any, fake_schema_registry: FakeSchemaRegistry) -> None:
    """Whatever subjects it is under, and however its text is spaced; each subject counts its own versions."""
    assert client.register_schema("a", Schema(SCHEMA)) == 1
    assert client.register_schema("b", Schema(OTHER)) == 2
    assert client.register_schema("b", Schema(SCHEMA.replace(" ", ""))) == 1
    assert client.register_schema("b", Schema(SCHEMA)) == 1
    assert client.get_versions("b") == [1, 2]
    assert client.get_subjects() == ["a", "b"] == fake_schema_registry.subjects()
    latest = client.get_latest_version("b")
    assert (latest.schema_id, latest.version, latest.guid) == (1, 2, fake_schema_registry.latest("a")["guid"])
    assert client.get_schema_by_guid(latest.guid).schema_str == SCHEMA
    assert client.lookup_schema("b", Schema(OTHER)).version == 1
    assert client.get_schema(2).schema_str == OTHER
    assert client.get_schema_types() == ["AVRO", "JSON", "PROTOBUF"]


def test_deleted_subjects(client: Any) -> None:
    """Gone for writers, still there for readers of an id."""
    client.register_schema("a", Schema(SCHEMA))
    assert client.delete_subject("a") == [1]
    assert client.get_subjects() == []
    for look in (lambda: client.get_latest_version("a"), lambda: client.lookup_schema("a", Schema(SCHEMA))):
        with pytest.raises(SchemaRegistryError, match="40401"):
            look()
    assert client.lookup_schema("a", Schema(SCHEMA), deleted=True).version == 1
    assert client.get_schema(1).schema_str == SCHEMA


def test_references(client: Any) -> None:
    client.register_schema("a", Schema(SCHEMA))
    schema = Schema(OTHER, "AVRO", [SchemaReference("Order", "a", 1)])
    assert client.register_schema("b", schema) == 2
    assert client.get_schema(2).references == schema.references
    missing = Schema(OTHER, "AVRO", [SchemaReference("Order", "a", 2)])
    with pytest.raises(SchemaRegistryError, match="42201"):
        client.register_schema("b", missing)


@pytest.mark.parametrize(
    ("ask", "code"),
    [
        (lambda client: client.get_schema(9), 40403),
        (lambda client: client.get_schema_by_guid("x"), 40403),
        (lambda client: client.get_version("a", 9), 40402),
        (lambda client: client.get_version("a", "first"), 42202),
        (lambda client: client.lookup_schema("a", Schema(OTHER)), 40403),
        (lambda client: client.get_versions("b"), 40401),
        (lambda client: client.register_schema("a", Schema("{")), 42201),
        (lambda client: client.register_schema("a", Schema("")), 42201),
        (lambda client: client.register_schema("a", Schema(SCHEMA, "XML")), 42201),
        (lambda client: client.get_config("a"), 404),
    ],
)
def test_refusals(client: Any, ask: Any, code: int) -> None:
    client.register_schema("a", Schema(SCHEMA))
    with pytest.raises(SchemaRegistryError) as raised:
        ask(client)
    assert raised.value.error_code == code


def test_faults(client: Any, fake_schema_registry: FakeSchemaRegistry) -> None:
    """As often as told, on the paths that were named, in the order in which they were."""
    fake_schema_registry.fail(503, error_code=50003, message="busy", times=2, path="versions")
    fake_schema_registry.drop(path="versions")
    assert client.get_subjects() == []
    for _ in range(2):
        with pytest.raises(SchemaRegistryError, match="busy"):
            client.register_schema("a", Schema(SCHEMA))
    with pytest.raises(Exception, match="disconnected"):
        client.register_schema("a", Schema(SCHEMA))
    assert client.register_schema("a", Schema(SCHEMA)) == 1
    fake_schema_registry.fail(times=None)
    for _ in range(3):
        with pytest.raises(SchemaRegistryError):
            client.get_subjects()
    fake_schema_registry.recover()
    assert client.get_subjects() == ["a"]
    assert [method for method, _ in fake_schema_registry.requests] == ["GET", *["POST"] * 4, *["GET"] * 4]


def test_late_answers(fake_schema_registry: FakeSchemaRegistry) -> None:
    fake_schema_registry.delay(60.0, path="types")
    config = {"url": fake_schema_registry.url, "timeout": 0.2, "max.retries": 0}
    with SchemaRegistryClient(config) as impatient:
        with pytest.raises(Exception, match="timed out"):
            impatient.get_schema_types()
        assert impatient.get_subjects() == []


def test_stopped_and_started_again(client: Any, fake_schema_registry: FakeSchemaRegistry) -> None:
    """The port and what it holds stay."""
    client.register_schema("a", Schema(SCHEMA))
    fake_schema_registry.stop()
    fake_schema_registry.stop()
    with pytest.raises(Exception, match=r"[Cc]onnect|refused"):
        client.get_subjects()
    fake_schema_registry.start()
    assert client.get_subjects() == ["a"]


def test_bodies_that_are_no_json(fake_schema_registry: FakeSchemaRegistry) -> None:
    for body in (b"{", b"[]"):
        request = urllib.request.Request(f"{fake_schema_registry.url}/subjects/a/versions", body)
        with pytest.raises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(request)
        with raised.value as answer:
            assert json.load(answer) == {"error_code": 400, "message": "Unrecognized JSON"}
