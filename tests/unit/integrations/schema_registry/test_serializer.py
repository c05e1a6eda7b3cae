"""What all registry serializers share: which schema they use, and when a record has to wait for it."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import sys
import traceback
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from confluent_kafka.schema_registry import Rule, RuleKind, RuleMode, RuleSet, Schema, topic_subject_name_strategy

from aioproducer import Producer, Record, SendManyError
from aioproducer.errors import (
    ConfigError,
    SchemaRegistryError,
    SchemaRegistryUnavailableError,
    SchemaValidationError,
    SerializationError,
    SerializerNotReadyError,
)
from aioproducer.integrations import schema_registry
from aioproducer.integrations.schema_registry import (
    AvroSerializer,
    JsonSchemaSerializer,
    ProtobufSerializer,
    SchemaRegistry,
)
from aioproducer.integrations.schema_registry.lookups import Lookups
from aioproducer.testing import FakeCluster, FakeSchemaRegistry
from tests.unit.integrations.messages import Order

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "int"}],
}
NEWER: dict[str, Any] = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": "-"}]}
BYTES = b"\0\0\0\0\1\x0e"
ENCRYPT = Rule("hide", None, RuleKind.TRANSFORM, RuleMode.WRITEREAD, "ENCRYPT", ["PII"], None, None, None, None, False)
WITH_RULES = Schema(json.dumps(ORDER), "AVRO", rule_set=RuleSet(None, [ENCRYPT]))
PATIENCE_S = 60.0


def producer(cluster: FakeCluster, serializer: Any, **configs: Any) -> Producer:
    return Producer(bootstrap_servers=cluster.bootstrap_servers, value_serializer=serializer, **configs)


def registered(fake: FakeSchemaRegistry) -> int:
    """How often it was asked to register or find a schema."""
    return sum(method == "POST" for method, _ in fake.requests)


def values(cluster: FakeCluster, topic: str = "orders") -> list[bytes | None]:
    return [record.value for record in cluster.records(topic)]


# --- when a record waits ----------------------------------------------------------------------------------------------


async def test_a_hit_is_a_plain_call(registry: SchemaRegistry, fake_schema_registry: FakeSchemaRegistry) -> None:
    """The first record of a topic waits, all others are serialized at once."""
    bound = AvroSerializer(registry, ORDER).bind(is_key=False, max_block_ms=60_000)
    first = bound.serialize("orders", None, {"id": 7})
    assert inspect.isawaitable(first)
    assert await first == BYTES
    assert [bound.serialize("orders", None, {"id": 7}) for _ in range(3)] == [BYTES] * 3
    assert registered(fake_schema_registry) == 1


async def test_calls_that_wait(
    registry: SchemaRegistry, fake_schema_registry: FakeSchemaRegistry, fake_kafka_cluster: FakeCluster
) -> None:
    """send, submit and send_many wait for the lookup, which all of them share."""
    async with producer(fake_kafka_cluster, AvroSerializer(registry, ORDER)) as sending:
        with fake_schema_registry.held():
            calls = [
                asyncio.create_task(sending.send("orders", {"id": 7})),
                asyncio.create_task(sending.submit("orders", {"id": 7})),
                asyncio.create_task(sending.send_many("orders", [{"id": 7}] * 3)),
            ]
            while not fake_schema_registry.requests:
                await asyncio.sleep(0.001)
        await asyncio.gather(*calls)
    assert values(fake_kafka_cluster) == [BYTES] * 5
    assert registered(fake_schema_registry) == 1


async def test_submit_nowait(
    registry: SchemaRegistry, fake_schema_registry: FakeSchemaRegistry, fake_kafka_cluster: FakeCluster
) -> None:
    """It never waits: its error says what to do, and the lookup that it started serves the next call."""
    async with producer(fake_kafka_cluster, AvroSerializer(registry, ORDER)) as sending:
        await sending.partitions_for("orders")
        with pytest.raises(SerializerNotReadyError, match=r"prepare\('orders'\)") as raised:
            sending.submit_nowait("orders", {"id": 7})
        assert raised.value.retriable
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    sending.submit_nowait("orders", {"id": 7})
                    break
                except SerializerNotReadyError:
                    await asyncio.sleep(0.001)
    assert values(fake_kafka_cluster) == [BYTES]
    assert registered(fake_schema_registry) == 1


async def test_submit_nowait_after_a_refusal(
    registry: SchemaRegistry, fake_schema_registry: FakeSchemaRegistry, fake_kafka_cluster: FakeCluster
) -> None:
    """The error is the lookup's result, not that the lookup is still running."""
    fake_schema_registry.fail(409, error_code=409, times=None)
    registry.lookups = Lookups(clock=lambda: 0.0)  # the clock stands still, so the failure is remembered throughout
    serializer = AvroSerializer(registry, ORDER)
    async with producer(fake_kafka_cluster, serializer) as sending:
        await sending.partitions_for("orders")
        with pytest.raises(SchemaRegistryError):
            await serializer.prepare("orders")
        with pytest.raises(SchemaRegistryError, match="409"):
            sending.submit_nowait("orders", {"id": 7})


async def test_a_refusal_that_many_records_meet_stays_small(
    registry: SchemaRegistry, fake_schema_registry: FakeSchemaRegistry
) -> None:
    """It is remembered, and raised again for each of them: its traceback would have frames of every one."""
    fake_schema_registry.fail(409, error_code=409, times=None)
    registry.lookups = lookups = Lookups(clock=lambda: 0.0)  # the failure is remembered throughout
    bound = AvroSerializer(registry, ORDER).bind(is_key=False, max_block_ms=60_000)
    for _ in range(100):
        with pytest.raises(SchemaRegistryError, match="409"):
            await bound.prepare("orders")
    assert registered(fake_schema_registry) == 1
    remembered = lookups.failure(bound._key("orders-value"))
    assert remembered is not None
    assert len(traceback.extract_tb(remembered.__traceback__)) <= 10


async def test_after_prepare_no_record_waits(
    registry: SchemaRegistry, fake_schema_registry: FakeSchemaRegistry, fake_kafka_cluster: FakeCluster
) -> None:
    """After prepare() no record waits, whether the producer uses the serializer for keys or for values."""
    serializer = AvroSerializer(registry, ORDER)
    async with producer(fake_kafka_cluster, serializer, key_serializer=serializer) as sending:
        await serializer.prepare("orders", "payments")
        await sending.partitions_for("orders")
        sending.submit_nowait("orders", {"id": 7}, key={"id": 7})
    assert fake_schema_registry.subjects() == [
        "orders-key", "orders-value", "payments-key", "payments-value",
    ]  # fmt: skip
    assert [(record.key, record.value) for record in fake_kafka_cluster.records("orders")] == [(BYTES, BYTES)]


async def test_cancelled_while_it_looks_up(
    registry: SchemaRegistry, fake_schema_registry: FakeSchemaRegistry, fake_kafka_cluster: FakeCluster
) -> None:
    """A cancelled send is not sent. The other one goes on, with the lookup that the first one started."""
    async with producer(fake_kafka_cluster, AvroSerializer(registry, ORDER)) as sending:
        with fake_schema_registry.held():
            first = asyncio.create_task(sending.send("orders", {"id": 1}))
            second = asyncio.create_task(sending.send("orders", {"id": 7}))
            while not fake_schema_registry.requests:
                await asyncio.sleep(0.001)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
        await second
    assert values(fake_kafka_cluster) == [BYTES]
    assert registered(fake_schema_registry) == 1


async def test_each_waits_as_long_as_it_may(registry: SchemaRegistry, fake_schema_registry: FakeSchemaRegistry) -> None:
    """The end of a lookup with a short limit, such as that of a health check, does not end a longer wait."""
    fake_schema_registry.fail(503, times=None)
    serializer = AvroSerializer(registry, ORDER)
    short = asyncio.create_task(serializer.prepare("orders", timeout_ms=200))
    long = asyncio.create_task(serializer.prepare("orders", timeout_ms=60_000))
    with pytest.raises(SchemaRegistryUnavailableError, match="max_block_ms=200"):
        await short
    later = asyncio.create_task(serializer.prepare("orders", timeout_ms=60_000))
    fake_schema_registry.recover()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(long, later)


async def test_a_registry_that_is_gone_stops_send_many(
    fake_schema_registry: FakeSchemaRegistry, fake_kafka_cluster: FakeCluster
) -> None:
    """Like a missing topic: there is one wait of max_block_ms, not one per record."""
    fake_schema_registry.fail(503, times=None)
    async with SchemaRegistry(fake_schema_registry.url) as registry:
        sending = producer(fake_kafka_cluster, AvroSerializer(registry, ORDER), max_block_ms=500)
        async with sending:
            with pytest.raises(SendManyError) as raised:
                await sending.send_many("orders", ({"id": 7} for _ in range(1_000)))
    assert raised.value.result.failed == 1
    assert isinstance(raised.value.__cause__, SchemaRegistryUnavailableError)
    assert "max_block_ms=500" in str(raised.value.__cause__)


async def test_a_record_that_does_not_fit_fails_alone(
    registry: SchemaRegistry, fake_kafka_cluster: FakeCluster
) -> None:
    """Its error names topic, subject and field; neither it nor its cause quotes the value."""
    async with producer(fake_kafka_cluster, AvroSerializer(registry, ORDER)) as sending:
        with pytest.raises(SendManyError) as raised:
            await sending.send_many("orders", [{"id": 7}, {"id": "a secret"}, {"id": 7}])
        ((index, error),) = raised.value.result.errors
        with pytest.raises(SchemaValidationError) as alone:
            await sending.send("orders", {"id": "a secret"})
    assert index == 1
    for each in (error, alone.value):
        assert isinstance(each, SchemaValidationError)
        assert (each.topic, each.subject) == ("orders", "orders-value")
        assert each.problems == (("shop.Order.id", "str is not int"),)
        assert "topic 'orders'" in str(each)
        assert "'orders-value': shop.Order.id: str is not int" in str(each)
        assert each.__cause__ is None
        assert each.__context__ is None
    assert values(fake_kafka_cluster) == [BYTES] * 2


async def test_null_needs_no_schema(
    registry: SchemaRegistry, fake_schema_registry: FakeSchemaRegistry, fake_kafka_cluster: FakeCluster
) -> None:
    """A null value is a tombstone."""
    async with producer(fake_kafka_cluster, AvroSerializer(registry, ORDER)) as sending:
        await sending.send("orders", None, key=b"k")
    assert values(fake_kafka_cluster) == [None]
    assert not fake_schema_registry.requests


# --- which schema -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("topic", ["orders-key", "orders-value", "payments-key", "payments-value"]),
        ("record", ["shop.Order"]),
        ("topic_record", ["orders-shop.Order", "payments-shop.Order"]),
        (lambda topic, is_key, record: f"{topic}/{is_key:d}/{record}", [
            "orders/0/shop.Order", "orders/1/shop.Order", "payments/0/shop.Order", "payments/1/shop.Order",
        ]),
    ],
    ids=["topic", "record", "topic_record", "function"],
)  # fmt: skip
async def test_the_strategy_names_the_subjects(
    registry: SchemaRegistry, fake_schema_registry: FakeSchemaRegistry, strategy: Any, expected: list[str]
) -> None:
    serializer = AvroSerializer(registry, ORDER, subject_name_strategy=strategy)
    for is_key in (False, True):
        for topic in ("orders", "payments"):
            assert await serializer.to_bytes(topic, {"id": 7}, is_key=is_key) == BYTES
    assert fake_schema_registry.subjects() == expected
    assert registered(fake_schema_registry) == len(expected)


async def test_without_registration(registry: SchemaRegistry, fake_schema_registry: FakeSchemaRegistry) -> None:
    """Only registered schemas are used; a missing one is an error, and is looked up again later."""
    serializer = AvroSerializer(registry, ORDER, auto_register_schemas=False)
    with pytest.raises(SchemaRegistryError, match="40401"):
        await serializer.prepare("orders")
    fake_schema_registry.register("orders-value", ORDER)
    registry.lookups._failures.clear()
    assert await serializer.to_bytes("orders", {"id": 7}) == BYTES
    assert fake_schema_registry.latest("orders-value")["version"] == 1


async def test_latest_version(registry: SchemaRegistry, fake_schema_registry: FakeSchemaRegistry) -> None:
    """Values are written with the registry's newest schema, not with the serializer's own."""
    fake_schema_registry.register("orders-value", ORDER)
    newest = fake_schema_registry.register("orders-value", NEWER)
    serializer = AvroSerializer(registry, use_latest_version=True)
    assert await serializer.to_bytes("orders", {"id": 7}) == bytes([0, 0, 0, 0, newest]) + b"\x0e\x02-"


async def test_latest_version_is_looked_for_again(
    registry: SchemaRegistry, fake_schema_registry: FakeSchemaRegistry
) -> None:
    """Records never wait for that: the old version is used until the new one arrives, even if the registry is down."""
    fake_schema_registry.register("orders-value", ORDER)
    serializer = AvroSerializer(registry, use_latest_version=True, latest_cache_ttl_sec=0.0)
    bound = serializer.bind(is_key=False, max_block_ms=60_000)
    await bound.prepare("orders")
    newest = fake_schema_registry.register("orders-value", NEWER)
    with fake_schema_registry.held():
        assert bound.serialize("orders", None, {"id": 7}) == BYTES
    async with asyncio.timeout(PATIENCE_S):
        while (written := bound.serialize("orders", None, {"id": 7})) == BYTES:
            await asyncio.sleep(0.001)
    assert written == bytes([0, 0, 0, 0, newest]) + b"\x0e\x02-"


async def test_a_failed_look_for_a_newer_version_is_logged(
    registry: SchemaRegistry, fake_schema_registry: FakeSchemaRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, no matter how many records were written meanwhile."""
    fake_schema_registry.register("orders-value", ORDER)
    serializer = AvroSerializer(registry, use_latest_version=True, latest_cache_ttl_sec=0.0)
    bound = serializer.bind(is_key=False, max_block_ms=60_000)
    await bound.prepare("orders")
    fake_schema_registry.fail(403, error_code=40301, message="not any more")
    assert [bound.serialize("orders", None, {"id": 7}) for _ in range(100)] == [BYTES] * 100
    async with asyncio.timeout(PATIENCE_S):
        while "not any more" not in caplog.text:
            await asyncio.sleep(0.001)
    assert caplog.text.count("not any more") == 1
    assert bound.serialize("orders", None, {"id": 7}) == BYTES


async def test_schema_by_id(registry: SchemaRegistry, fake_schema_registry: FakeSchemaRegistry) -> None:
    number = fake_schema_registry.register("elsewhere", NEWER)
    serializer = AvroSerializer(registry, use_schema_id=number)
    assert await serializer.to_bytes("orders", {"id": 7}) == BYTES + b"\x02-"
    with pytest.raises(SchemaRegistryError, match="40403"):
        await AvroSerializer(registry, use_schema_id=99).prepare("orders")


async def test_ids_belong_to_a_context(registry: SchemaRegistry, fake_schema_registry: FakeSchemaRegistry) -> None:
    """The registry is asked for the id in the context of the subject, and in the default one without naming it."""
    number = fake_schema_registry.register("elsewhere", ORDER)
    await AvroSerializer(
        registry, use_schema_id=number, subject_name_strategy=lambda *_: ":.staging:orders-value"
    ).prepare("orders")
    async with SchemaRegistry(fake_schema_registry.url) as other:  # with nothing in its cache
        await AvroSerializer(other, use_schema_id=number).prepare("orders")
    urls = [urlsplit(path) for _, path in fake_schema_registry.requests]
    assert [(url.path, parse_qs(url.query)) for url in urls] == [
        (f"/schemas/ids/{number}", {"subject": [":.staging:"]}), (f"/schemas/ids/{number}", {}),
    ]  # fmt: skip


async def test_a_normalized_schema_is_found_whatever_the_order_of_its_attributes(
    registry: SchemaRegistry, fake_schema_registry: FakeSchemaRegistry
) -> None:
    """The registry is asked to ignore the order of attributes."""
    fake_schema_registry.register("orders-value", dict(reversed(ORDER.items())))
    assert await AvroSerializer(registry, ORDER, normalize_schemas=True).to_bytes("orders", {"id": 7}) == BYTES
    assert await AvroSerializer(registry, ORDER).to_bytes("orders", {"id": 7}) == b"\0\0\0\0\2\x0e"


async def test_another_type_of_schema(registry: SchemaRegistry, fake_schema_registry: FakeSchemaRegistry) -> None:
    fake_schema_registry.register("orders-value", {"type": "object"}, "JSON")
    with pytest.raises(SchemaRegistryError, match="schema 1 is of type JSON; this serializer writes AVRO"):
        await AvroSerializer(registry, use_latest_version=True).prepare("orders")


async def test_rules_for_writers_are_not_passed_over(registry: SchemaRegistry) -> None:
    """A schema may demand that a field be encrypted: better no record than an unencrypted one."""
    with pytest.raises(SchemaRegistryError, match=r"rules for writers \(hide\)"):
        await AvroSerializer(registry, WITH_RULES).prepare("orders")


@pytest.mark.parametrize("registers", [True, False])
async def test_rules_that_only_the_registry_knows(
    registry: SchemaRegistry, fake_schema_registry: FakeSchemaRegistry, registers: bool
) -> None:
    """The program has the schema's text, the registry has its rules; the serializer looks at what is registered."""
    await (await registry.client()).register_schema("orders-value", WITH_RULES)
    serializer = AvroSerializer(registry, ORDER, auto_register_schemas=registers)
    with pytest.raises(SchemaRegistryError, match=r"schema 1 has rules for writers \(hide\)"):
        await serializer.to_bytes("orders", {"id": 7})
    # The client now has the program's text for this subject and id.
    with pytest.raises(SchemaRegistryError, match=r"schema 1 has rules for writers \(hide\)"):
        await AvroSerializer(registry, use_schema_id=1).to_bytes("orders", {"id": 7})


async def test_to_dict(registry: SchemaRegistry) -> None:
    """The program's own objects are converted to what the format accepts."""
    serializer = AvroSerializer(registry, ORDER, to_dict=lambda number: {"id": number})
    assert await serializer.to_bytes("orders", 7) == BYTES


# --- headers ----------------------------------------------------------------------------------------------------------


async def test_the_schema_in_a_header(
    registry: SchemaRegistry, fake_schema_registry: FakeSchemaRegistry, fake_kafka_cluster: FakeCluster
) -> None:
    """Payloads have no prefix, and each record gets its headers once; the caller's list is not changed."""
    serializer = AvroSerializer(registry, ORDER, framing="header")
    given = [("trace", b"1")]
    async with producer(fake_kafka_cluster, serializer, key_serializer=serializer) as sending:
        await sending.send("orders", {"id": 7}, key={"id": 7}, headers=given)
        await sending.send_many("orders", [Record({"id": 7}, headers=given)] * 2)
        sending.submit_nowait("orders", {"id": 7})
        sending.submit_nowait("orders", {"id": 7}, headers={"trace": b"1"})
    guid = b"\1" + bytes.fromhex(fake_schema_registry.latest("orders-value")["guid"].replace("-", ""))
    trace, key, value = ("trace", b"1"), ("__key_schema_id", guid), ("__value_schema_id", guid)
    assert [tuple(record.headers) for record in fake_kafka_cluster.records("orders")] == [
        (trace, key, value), (trace, value), (trace, value), (value,), (trace, value),
    ]  # fmt: skip
    assert values(fake_kafka_cluster) == [b"\x0e"] * 5
    assert given == [trace]


async def test_the_header_of_an_old_schema(
    registry: SchemaRegistry, fake_schema_registry: FakeSchemaRegistry, fake_kafka_cluster: FakeCluster
) -> None:
    """A record that is passed on with its headers has one for its value's schema, the new one; others are kept."""
    old = [("__value_schema_id", b"old"), ("trace", b"1"), ("__value_schema_id", b"older"), ("__key_schema_id", b"key")]
    async with producer(fake_kafka_cluster, AvroSerializer(registry, ORDER, framing="header")) as sending:
        await sending.send("orders", {"id": 7}, headers=old)
        sending.submit_nowait("orders", {"id": 7}, headers=old)
    guid = b"\1" + bytes.fromhex(fake_schema_registry.latest("orders-value")["guid"].replace("-", ""))
    expected = [("trace", b"1"), ("__key_schema_id", b"key"), ("__value_schema_id", guid)]
    assert [list(record.headers) for record in fake_kafka_cluster.records("orders")] == [expected] * 2
    assert len(old) == 4


@pytest.mark.parametrize("options", [{"use_latest_version": True}, {"use_schema_id": 1}])
async def test_the_header_of_a_schema_that_was_there(
    registry: SchemaRegistry, fake_schema_registry: FakeSchemaRegistry, options: dict[str, Any]
) -> None:
    fake_schema_registry.register("orders-value", ORDER)
    headers: list[tuple[str, bytes]] = []
    bound = AvroSerializer(registry, framing="header", **options).bind(is_key=False, max_block_ms=60_000)
    await bound.prepare("orders")
    assert bound.serialize_nowait("orders", headers, {"id": 7}) == b"\x0e"
    assert [name for name, _ in headers] == ["__value_schema_id"]


async def test_a_registry_without_guids() -> None:
    """Older registries have none: the first record's error says so, with a remedy."""
    async with SchemaRegistry("mock://") as without:
        client = await without.client()
        register = client.register_schema_full_response

        async def answer(*fields: Any, **options: Any) -> Any:
            found = await register(*fields, **options)
            return type(found)(found.subject, found.version, found.schema_id, None, found.schema)

        client.register_schema_full_response = answer
        with pytest.raises(SchemaRegistryError, match=r"no GUID for schema 1.*use framing='prefix'"):
            await AvroSerializer(without, ORDER, framing="header").prepare("orders")


async def test_an_answer_without_an_id(registry: SchemaRegistry, fake_schema_registry: FakeSchemaRegistry) -> None:
    """An answer of a proxy, with its own JSON and status 200."""
    fake_schema_registry.fail(200)
    with pytest.raises(SchemaRegistryError, match="its answer has no id of a schema"):
        await AvroSerializer(registry, ORDER).prepare("orders")


# --- what can't be ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"use_latest_version": True, "auto_register_schemas": True}, "contradicts use_latest_version"),
        ({"use_schema_id": 1, "auto_register_schemas": True}, "contradicts use_schema_id"),
        ({"use_schema_id": 1, "use_latest_version": True}, "contradict each other"),
        ({"use_schema_id": "7"}, "use_schema_id is '7'; a schema's id, a number from 0 to 4294967295, is needed"),
        ({"use_schema_id": 7.0}, r"use_schema_id is 7\.0; a schema's id"),
        ({"use_schema_id": -1}, "use_schema_id is -1; a schema's id"),
        ({"use_schema_id": 1 << 32}, "use_schema_id is 4294967296; a schema's id"),
        ({"latest_cache_ttl_sec": 5.0}, "needs use_latest_version"),
        ({"use_latest_version": True, "latest_cache_ttl_sec": "300"}, "ttl_sec is '300'; seconds from 0 on"),
        ({"use_latest_version": True, "latest_cache_ttl_sec": math.nan}, "ttl_sec is nan; seconds from 0 on"),
        ({"use_latest_version": True, "latest_cache_ttl_sec": -1}, "ttl_sec is -1; seconds from 0 on"),
        ({"use_schema_id": True}, "use_schema_id is True; a schema's id"),
        ({"use_schema_id": -1}, "use_schema_id is -1; a schema's id, a number from 0 to 4294967295, is needed"),
        (
            {"use_schema_id": 2**32},
            "use_schema_id is 4294967296; a schema's id, a number from 0 to 4294967295, is needed",
        ),
        ({"auto_register_schemas": "false"}, "auto_register_schemas='false': True or False is needed"),
        ({"use_latest_version": "false"}, "use_latest_version='false': True or False is needed"),
        ({"normalize_schemas": 0}, "normalize_schemas=0: True or False is needed"),
        ({"framing": "footer"}, "prefix, header"),
        ({"subject_name_strategy": "table"}, "topic, record, topic_record"),
        ({"subject_name_strategy": 5}, "subject_name_strategy is a int; topic, record, topic_record or a function of"),
        ({"subject_name_strategy": topic_subject_name_strategy}, "takes other arguments; topic, record, topic_record"),
        ({"to_dict": lambda value, context: value}, "to_dict has to be a function of the value alone"),
        ({"to_dict": "vars"}, "to_dict has to be a function"),
    ],
)
def test_options_that_can_not_be(options: dict[str, Any], message: str) -> None:
    registry = SchemaRegistry("http://127.0.0.1:1")
    for make in (
        lambda: AvroSerializer(registry, ORDER, **options),
        lambda: JsonSchemaSerializer(registry, {"title": "Order"}, **options),
        lambda: ProtobufSerializer(registry, Order, **options),
    ):
        with pytest.raises(ConfigError, match=message):
            make()


@pytest.mark.parametrize(("subject", "told"), [(None, "a NoneType"), (5, "a int"), (["orders"], "a list"), ("", "''")])
async def test_a_subject_that_is_none(registry: SchemaRegistry, subject: Any, told: str) -> None:
    serializer = AvroSerializer(registry, ORDER, subject_name_strategy=lambda *_: subject)
    with pytest.raises(
        SerializationError, match=rf"subject_name_strategy gave {told} for topic 'orders'; the name of a subject is"
    ):
        await serializer.prepare("orders")


def test_no_schema_and_no_registry() -> None:
    registry = SchemaRegistry("http://127.0.0.1:1")
    with pytest.raises(ConfigError, match="a schema is needed"):
        AvroSerializer(registry)
    with pytest.raises(ConfigError, match="SchemaRegistry is needed"):
        AvroSerializer("http://127.0.0.1:1", ORDER)  # type: ignore[arg-type]
    for strategy in ("record", "topic_record"):
        with pytest.raises(ConfigError, match="needs the name of the record"):
            AvroSerializer(registry, "string", subject_name_strategy=strategy)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    monkeypatch.delitem(sys.modules, "aioproducer.integrations.schema_registry.avro")
    with pytest.raises(
        ImportError, match=r"AvroSerializer needs fastavro: pip install 'aioproducer\[schema-registry\]'"
    ):
        schema_registry.AvroSerializer  # noqa: B018
    with pytest.raises(AttributeError, match="Nothing"):
        schema_registry.Nothing  # noqa: B018
