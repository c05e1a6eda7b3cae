"""Every message against the bytes that Kafka's own classes write, both ways."""

from __future__ import annotations

import base64
import importlib
import json
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aioproducer.protocol.schema import Message, Request, Struct

GOLDEN = Path(__file__).parents[2] / "golden"

NOT_SPOKEN = {
    ("InitProducerId", 6): "unstable on a 4.3 broker: it is not offered there",
    ("DescribeTopicPartitions", 0): "the producer asks Metadata instead",
}

APIS = {
    "ApiVersions",
    "Metadata",
    "InitProducerId",
    "Produce",
    "FindCoordinator",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "TxnOffsetCommit",
    "SaslHandshake",
    "SaslAuthenticate",
    "GetTelemetrySubscriptions",
    "PushTelemetry",
}


def snake(name: str) -> str:
    """Kafka's camelCase as snake_case, without the V3AndBelow of AddPartitionsToTxn."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", re.sub("v3AndBelow|V3AndBelow", "", name)).lower()


def message_class(api: str, kind: str) -> type[Message]:
    module = importlib.import_module(f"aioproducer.protocol.{snake(api)}")
    cls: type[Message] = getattr(module, api + kind)
    return cls


def golden(kind: str) -> list[Any]:
    entries = json.loads((GOLDEN / f"{kind.lower()}s.json").read_text())[f"{kind.lower()}s"]
    return [
        pytest.param(entry, id=f"{entry['name']}-v{entry['version']}")
        for entry in entries
        if (entry["api"], entry["version"]) not in NOT_SPOKEN
    ]


def from_json(cls: type[Struct], fields: dict[str, Any], batches: Iterator[bytes]) -> Struct:
    """A message built from the JSON of Kafka's own converter; ``batches`` go where it says records."""
    hints = typing.get_type_hints(cls)
    names = {snake(name): value for name, value in fields.items()}
    return cls(**{name: value_of(name, hints[name], value, batches) for name, value in names.items()})


def value_of(name: str, hint: Any, value: Any, batches: Iterator[bytes]) -> Any:
    if name == "records":
        return next(batches)
    kinds = [hint, *typing.get_args(hint)]
    kinds += [each for kind in kinds for each in typing.get_args(kind)]
    if isinstance(value, dict):
        return from_json(next(kind for kind in kinds if is_struct(kind)), value, batches)
    if isinstance(value, list):
        struct = next((kind for kind in kinds if is_struct(kind)), None)
        return [from_json(struct, each, batches) if struct else each for each in value]
    if isinstance(value, str) and bytes in kinds:
        return base64.b64decode(value + "==", altchars=b"-_" if set(value) & set("-_") else None)
    return value


def is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def built(cls: type[Message], entry: dict[str, Any]) -> Message:
    batches = iter([(GOLDEN / name).read_bytes() for name in re.findall(r"\w+\.bin", entry.get("note", ""))])
    message = from_json(cls, entry["fields"], batches)
    assert isinstance(message, Message)
    assert not list(batches), "the note names more batches than the message has records"
    return message


def check(entry: dict[str, Any], kind: str) -> None:
    cls, version, body = message_class(entry["api"], kind), entry["version"], bytes.fromhex(entry["body_hex"])
    message = built(cls, entry)
    assert message.encode(version) == body
    assert cls.decode(body, version) == message
    assert cls.decode(memoryview(body), version).encode(version) == body


@pytest.mark.parametrize("entry", golden("Request"))
def test_requests_have_kafkas_bytes(entry: dict[str, Any]) -> None:
    """A request built from the fields gives Kafka's bytes, and Kafka's bytes give the fields."""
    check(entry, "Request")


@pytest.mark.parametrize("entry", golden("Response"))
def test_responses_have_kafkas_bytes(entry: dict[str, Any]) -> None:
    """A response built from the fields gives Kafka's bytes, and Kafka's bytes give the fields."""
    check(entry, "Response")


@pytest.mark.parametrize("kind", ["Request", "Response"])
def test_all_versions_are_covered(kind: str) -> None:
    """There is at least one message by Kafka of every API in each supported version, and none in others."""
    versions: dict[str, set[int]] = {}
    for entry in (parameter.values[0] for parameter in golden(kind)):
        versions.setdefault(entry["api"], set()).add(entry["version"])
    spoken = {api: message_class(api, kind) for api in APIS}
    assert versions == {api: set(range(cls.MIN_VERSION, cls.MAX_VERSION + 1)) for api, cls in spoken.items()}


@pytest.mark.parametrize("api", sorted(APIS))
def test_request_declares_what_the_headers_say(api: str) -> None:
    """Key, versions and flexible versions are those of Kafka's headers; the response inherits them."""
    request = message_class(api, "Request")
    assert issubclass(request, Request)
    assert request.RESPONSE is message_class(api, "Response")
    assert (request.RESPONSE.MIN_VERSION, request.RESPONSE.MAX_VERSION) == (request.MIN_VERSION, request.MAX_VERSION)
    for entry in (parameter.values[0] for parameter in golden("Request")):
        if entry["api"] == api:
            assert entry["api_key"] == request.API_KEY
            assert (entry["header_version"] == 2) == (entry["version"] >= request.FLEXIBLE_FROM)
    for entry in (parameter.values[0] for parameter in golden("Response")):
        if entry["api"] == api:
            assert (entry["header_version"] == 1) == request.response_header_is_flexible(entry["version"])
