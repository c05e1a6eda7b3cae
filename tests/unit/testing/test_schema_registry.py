"""FakeSchemaRegistry, used by another client: normal answers and injected faults."""

from __future__ import annotations

import gc
import http.client
import json
import urllib.error
import urllib.request
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, ServerConfig
from confluent_kafka.schema_registry.error import SchemaRegistryError

from aioproducer.testing import FakeSchemaRegistry, ports
from tests.unit.testing.test_ports import OfferedPorts

SCHEMA = '{"type": "record", "name": "Order", "fields": []}'
OTHER = '{"type": "record", "name": "Other", "fields": []}'


@pytest.fixture
def client(fake_schema_registry: FakeSchemaRegistry) -> Iterator[Any]:
    with SchemaRegistryClient({"url": fake_schema_registry.url, "max.retries": 0}) as made:
        yield made


def test_one_schema_has_one_id(client: Any, fake_schema_registry: FakeSchemaRegistry) -> None:
    """Under whatever subjects, and with whatever spacing; each subject counts its own versions."""
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


def test_deleted_versions(client: Any, fake_schema_registry: FakeSchemaRegistry) -> None:
    """First soft-deleted, still found by its id; then for good, and a schema goes with its last version."""
    for schema in (SCHEMA, OTHER):
        fake_schema_registry.register("a", schema)
    fake_schema_registry.register("b", SCHEMA)
    assert client.delete_version("a", 1) == 1
    assert client.get_versions("a") == [2]
    with pytest.raises(SchemaRegistryError, match="40402"):
        client.get_version("a", 1)
    assert client.get_version("a", 1, deleted=True).schema_id == 1
    with pytest.raises(SchemaRegistryError, match="40406"):
        client.delete_version("a", 1)
    with pytest.raises(SchemaRegistryError, match="40407"):
        client.delete_version("a", 2, permanent=True)
    assert client.delete_version("a", "latest") == 2
    assert client.get_subjects() == ["b"]
    assert client.delete_version("a", 2, permanent=True) == 2
    assert client.get_versions("a", deleted=True) == [1]
    assert client.get_schema(1).schema_str == SCHEMA
    with pytest.raises(SchemaRegistryError, match="40403"):
        client.get_schema(2)
    assert fake_schema_registry.register("a", OTHER) == 3
    assert client.get_versions("a", deleted=True) == [1, 2]


def test_subjects_deleted_for_good(client: Any, fake_schema_registry: FakeSchemaRegistry) -> None:
    for schema in (SCHEMA, OTHER):
        fake_schema_registry.register("a", schema)
    with pytest.raises(SchemaRegistryError, match="40405"):
        client.delete_subject("a", permanent=True)
    assert client.delete_subject("a") == [1, 2]
    with pytest.raises(SchemaRegistryError, match="40404"):
        client.delete_subject("a")
    assert client.delete_subject("a", permanent=True) == [1, 2]
    with pytest.raises(SchemaRegistryError, match="40401"):
        client.delete_subject("a", permanent=True)
    with pytest.raises(SchemaRegistryError, match="40403"):
        client.get_schema(1)
    assert fake_schema_registry.register("a", SCHEMA) == 3
    assert client.get_versions("a") == [1]


def test_what_others_refer_to_is_not_deleted(client: Any) -> None:
    client.register_schema("a", Schema(SCHEMA))
    client.register_schema("b", Schema(OTHER, "AVRO", [SchemaReference("Order", "a", 1)]))
    for delete in (lambda: client.delete_version("a", 1), lambda: client.delete_subject("a")):
        with pytest.raises(SchemaRegistryError, match=r"subject=a,version=1.*42206"):
            delete()
    client.delete_subject("b")
    assert client.delete_version("a", 1) == 1


def test_where_a_schema_is(client: Any, fake_schema_registry: FakeSchemaRegistry) -> None:
    for subject in ("b", "a", "gone"):
        fake_schema_registry.register(subject, OTHER if subject == "b" else SCHEMA)
    fake_schema_registry.register("b", SCHEMA)
    client.delete_subject("gone")

    def places(**asked: Any) -> list[tuple[str, int]]:
        return [(each.subject, each.version) for each in client.get_schema_versions(2, **asked)]

    assert places() == [("a", 1), ("b", 2)]
    assert places(deleted=True) == [("a", 1), ("b", 2), ("gone", 1)]
    assert places(subject_name="b") == [("b", 2)]
    with pytest.raises(SchemaRegistryError, match="40403"):
        client.get_schema_versions(9)


def test_configs_are_stored_without_effect(client: Any, fake_schema_registry: FakeSchemaRegistry) -> None:
    """They are stored, for a subject or globally, but have no effect."""
    assert client.get_compatibility() == "BACKWARD"
    with pytest.raises(SchemaRegistryError, match="40408"):
        client.get_compatibility("a")
    assert client.set_compatibility("a", "full_transitive") == {"compatibility": "FULL_TRANSITIVE"}
    client.set_config("a", ServerConfig(compatibility_group="major"))
    config = client.get_config("a")
    assert (config.compatibility_level, config.compatibility_group) == ("FULL_TRANSITIVE", "major")
    assert client.get_compatibility() == "BACKWARD"
    client.set_compatibility(level="NONE")
    assert client.get_compatibility() == "NONE"
    with urllib.request.urlopen(f"{fake_schema_registry.url}/config/b?defaultToGlobal=true") as answer:
        assert json.load(answer) == {"compatibilityLevel": "NONE"}
    assert client.delete_config("a").compatibility_group == "major"
    with pytest.raises(SchemaRegistryError, match="40401"):
        client.delete_config("a")
    client.delete_config()
    assert client.get_compatibility() == "BACKWARD"
    with pytest.raises(SchemaRegistryError, match="42203"):
        client.set_compatibility("a", "sideways")
    request = urllib.request.Request(f"{fake_schema_registry.url}/config", b"{}", method="POST")
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(request)


def test_the_config_of_a_subject_goes_with_its_last_version(client: Any) -> None:
    for subject in ("a", "b"):
        client.set_compatibility(subject, "FULL")
        client.register_schema(subject, Schema(SCHEMA))
    client.delete_version("a", "latest")
    client.delete_subject("b")
    for subject in ("a", "b"):
        with pytest.raises(SchemaRegistryError, match="40408"):
            client.get_config(subject)


def test_a_reference_must_exist(client: Any) -> None:
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
        (lambda client: client.get_config("a"), 40408),
        (lambda client: client.get_mode("a"), 404),
        (lambda client: client.test_compatibility("a", Schema(SCHEMA)), 404),
        (lambda client: client.delete_version("a", 9), 40402),
        (lambda client: client.delete_version("b", 1), 40401),
    ],
)
def test_a_refusal_has_the_code_of_a_real_registry(client: Any, ask: Any, code: int) -> None:
    client.register_schema("a", Schema(SCHEMA))
    with pytest.raises(SchemaRegistryError) as raised:
        ask(client)
    assert raised.value.error_code == code


def test_faults_happen_where_and_as_often_as_requested(client: Any, fake_schema_registry: FakeSchemaRegistry) -> None:
    """As often as requested, on the given paths, in the given order."""
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
    """It keeps its port and its content."""
    client.register_schema("a", Schema(SCHEMA))
    fake_schema_registry.stop()
    fake_schema_registry.stop()
    with pytest.raises(Exception, match=r"[Cc]onnect|refused"):
        client.get_subjects()
    fake_schema_registry.start()
    assert client.get_subjects() == ["a"]


def test_its_port_is_none_that_an_outgoing_connection_gets() -> None:
    """Or it could not come back while such a connection exists. Without the registry, others may have the port."""
    with FakeSchemaRegistry() as registry:
        port = int(registry.url.rpartition(":")[2])
        assert ports.FIRST <= port <= ports.LAST
    held = weakref.ref(registry)
    assert port not in ports.free_ports(1, OfferedPorts(port))
    del registry
    gc.collect()
    assert held() is None
    assert ports.free_ports(1, OfferedPorts(port)) == [port]


def test_bodies_that_are_no_json(fake_schema_registry: FakeSchemaRegistry) -> None:
    for body in (b"{", b"[]"):
        request = urllib.request.Request(f"{fake_schema_registry.url}/subjects/a/versions", body)
        with pytest.raises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(request)
        with raised.value as answer:
            assert json.load(answer) == {"error_code": 400, "message": "Unrecognized JSON"}


@pytest.mark.parametrize(
    "references",
    [["Order"], [{}], [{"name": "Order", "subject": "a"}], [{"name": "a", "subject": "a", "version": "x"}], 5],
)
def test_references_that_are_none(fake_schema_registry: FakeSchemaRegistry, references: Any) -> None:
    body = json.dumps({"schema": SCHEMA, "references": references}).encode()
    request = urllib.request.Request(f"{fake_schema_registry.url}/subjects/a/versions", body)
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(request)
    with raised.value as answer:
        assert (answer.code, json.load(answer)["error_code"]) == (422, 42201)


def test_a_body_in_chunks(fake_schema_registry: FakeSchemaRegistry) -> None:
    """As clients send one whose size they don't know."""
    connection = http.client.HTTPConnection(fake_schema_registry.url.removeprefix("http://"))
    for path in ("/subjects/a/versions", "/subjects/b/versions"):
        text = json.dumps({"schema": SCHEMA}).encode()
        connection.request("POST", path, iter((text[:9], text[9:])), encode_chunked=True)
        with connection.getresponse() as answer:
            assert json.load(answer)["id"] == 1
    connection.close()
    assert fake_schema_registry.subjects() == ["a", "b"]
