"""The API of aiokafka's producer, as far as no broker is needed."""

from __future__ import annotations

import asyncio
import gc
import random
import ssl
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aioproducer import BootstrapError, ConfigError, ProducerClosedError, ProducerState, Record, TopicPartition
from aioproducer._delivery import Delivery
from aioproducer.compat.aiokafka import AIOKafkaProducer
from aioproducer.errors import InvalidTimestampError
from aioproducer.net.sasl.oauthbearer import OAuthBearer
from aioproducer.testing import FakeCluster
from aioproducer.testing.fake.groups import CommittedOffset
from tests.reference.record_batch import PlainRecord, encoded
from tests.unit.core import end, filled, make_accumulator
from tests.unit.lifetimes import goes_by_itself


async def test_a_batch_ends_with_the_record_that_ends_last() -> None:
    """An abort drops unsent records before those in flight have ended."""
    accumulator = make_accumulator(loop=asyncio.get_running_loop())
    first, (early,) = filled(accumulator, 1)
    second, (late,) = filled(accumulator, 1)
    deliveries = iter((early, late))

    async def submit(*_: Any, **__: Any) -> Delivery:
        return next(deliveries)

    producer: Any = AIOKafkaProducer(bootstrap_servers="unused:1")
    producer.native = SimpleNamespace(submit=submit)
    batch = producer.create_batch()
    for value in (b"early", b"late"):
        batch.append(timestamp=None, key=None, value=value)
    future = await producer.send_batch(batch, "orders", partition=0)
    end(accumulator, second, 8)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not future.done()
    end(accumulator, first, 7)
    async with asyncio.timeout(1):
        assert (await future).offset == 7


async def test_a_batch_that_has_ended_leaves_nothing_for_the_garbage_collector() -> None:
    async with FakeCluster(1) as cluster, AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        batch = producer.create_batch()
        batch.append(timestamp=None, key=None, value=b"value")
        future = await producer.send_batch(batch, "orders", partition=0)
        await future
        reference = weakref.ref(future)
        del future
        assert await goes_by_itself(reference)


async def test_aiokafkas_default_partitioner_is_the_built_in_one() -> None:
    """Programs that give it by name, as Faust does, keep the speed of those that do not."""
    theirs = pytest.importorskip("aiokafka.partitioner")

    class Own(theirs.DefaultPartitioner):  # type: ignore[name-defined, misc]
        pass

    def config_of(partitioner: Any) -> object:
        return AIOKafkaProducer(bootstrap_servers="unused:1", partitioner=partitioner).native._config.partitioner_class

    assert config_of(theirs.DefaultPartitioner()) is None
    assert callable(config_of(Own()))
    assert callable(config_of(lambda key, everything, available: 0))


def test_what_append_returns() -> None:
    """It has all of aiokafka's attributes."""
    metadata: Any = AIOKafkaProducer().create_batch().append(timestamp=5, key=None, value=b"value")
    assert (metadata.offset, metadata.timestamp, metadata.crc) == (0, 5, None)


def test_a_batch_takes_what_fits() -> None:
    """The first record always does; one that does not closes the batch."""
    batch = AIOKafkaProducer(max_batch_size=200).create_batch()
    sizes = []
    while (metadata := batch.append(timestamp=5, key=b"key", value=b"v" * 20)) is not None:
        assert metadata.offset == len(sizes)
        sizes.append(metadata.size)
        assert not batch.closed()
    assert sizes == [30] * 4
    assert (batch.closed(), batch.record_count(), batch.size()) == (True, 4, 61 + 4 * 30)
    assert batch.append(timestamp=5, key=None, value=b"") is None
    exact = AIOKafkaProducer(max_batch_size=61 + 2 * 30).create_batch()
    assert [exact.append(timestamp=5, key=b"key", value=b"v" * 20) is None for _ in range(3)] == [False, False, True]
    large = AIOKafkaProducer(max_batch_size=200).create_batch()
    assert large.append(timestamp=5, key=None, value=bytes(1_000)) is not None
    assert large.append(timestamp=5, key=None, value=b"") is None


def test_a_batch_that_is_closed_takes_nothing() -> None:
    batch = AIOKafkaProducer().create_batch()
    batch.close()
    assert batch.append(timestamp=None, key=None, value=b"value") is None
    assert (batch.closed(), batch.record_count(), batch.size()) == (True, 0, 61)


def test_the_size_of_a_batch_is_that_of_its_bytes() -> None:
    batch = AIOKafkaProducer(max_batch_size=1_000_000).create_batch()
    records = [
        PlainRecord(1_000_000, None, b"value"),
        PlainRecord(1_000_063, b"key", None),
        PlainRecord(999_936, "é".encode(), bytes(63)),
        PlainRecord(999_935, b"", bytes(64), (("é", b"1"), ("null", None))),
        PlainRecord(2**40, bytes(10_000), b""),
    ]
    records += [PlainRecord(1_000_000, None, b"%d" % number) for number in range(100)]
    for record in records:
        assert batch.append(
            timestamp=record.timestamp_ms, key=record.key, value=record.value, headers=cast(Any, record.headers)
        )
    assert batch.size() == len(encoded(records))


@pytest.mark.parametrize("headers", [[("a", b"1")], {"a": b"1"}])
def test_what_a_batch_holds(headers: Any) -> None:
    """Serialized keys and values, as they are at the time of the call."""
    serializers: Any = {"key_serializer": str, "value_serializer": lambda value: value}
    batch = AIOKafkaProducer(**serializers).create_batch()
    value = bytearray(b"value")
    assert batch.append(timestamp=5.9, key=7, value=value, headers=headers) is not None
    value[:] = b"other"
    assert batch.records == [(b"7", b"value", 5, (("a", b"1"),))]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"headers": [("trace", "1")]}, r"a header is \(str, bytes or None\), not \(str, str\)"),
        ({"headers": [(b"trace", b"1")]}, r"not \(bytes, bytes\)"),
        ({"headers": [("trace", 1)]}, "int"),
        ({"headers": [("trace",)]}, "not enough values"),
        ({"key": 1}, "int"),
        ({"timestamp": "5"}, "str"),
        ({"timestamp": -5}, "timestamp=-5 is before 1970"),
    ],
)
def test_what_no_batch_can_hold(fields: dict[str, Any], told: str) -> None:
    """It is refused at once, as in aiokafka; the batch goes on without it."""
    batch = AIOKafkaProducer().create_batch()
    with pytest.raises((TypeError, ValueError), match=told):
        batch.append(**{"timestamp": 5, "key": None, "value": b"value", **fields})
    assert (batch.record_count(), batch.size()) == (0, 61)
    assert batch.append(timestamp=5, key=None, value=b"value") is not None


@pytest.mark.parametrize("partitioner", [None, lambda key, everything, available: max(available) if key is None else 0])
async def test_a_batch_for_any_partition(
    fake_kafka_cluster: FakeCluster, partitioner: Callable[[bytes | None, list[int], list[int]], int] | None
) -> None:
    """All its records go to one that has a leader, whatever their keys; FastStream sends batches that way."""
    fake_kafka_cluster.create_topic("orders", 3)
    fake_kafka_cluster.remove_leader("orders", 2)
    async with AIOKafkaProducer(
        bootstrap_servers=fake_kafka_cluster.bootstrap_servers, partitioner=partitioner
    ) as producer:
        for _ in range(5):
            batch = producer.create_batch()
            for number in range(20):
                batch.append(timestamp=None, key=b"%d" % number, value=b"value")
            metadata = await (await producer.send_batch(batch, "orders", partition=None))
            assert metadata is not None
            assert metadata.offset % 20 == 0
            assert metadata.partition in ({1} if partitioner else {0, 1})
    sent = fake_kafka_cluster.end_offsets("orders")
    assert (sum(sent.values()), sent[2]) == (100, 0)


async def test_a_batch_that_fails_after_its_future_was_cancelled(fake_kafka_cluster: FakeCluster) -> None:
    """As in aiokafka, neither flush nor stop raises the failure."""
    fake_kafka_cluster.create_topic("orders")
    fake_kafka_cluster.faults.fail("Produce", 29)
    async with AIOKafkaProducer(
        bootstrap_servers=fake_kafka_cluster.bootstrap_servers, linger_ms=60_000, request_timeout_ms=60_000
    ) as producer:
        batch = producer.create_batch()
        for value in (b"1", b"2"):
            batch.append(timestamp=None, key=None, value=value)
        future = await producer.send_batch(batch, "orders", partition=0)
        future.cancel()
        await producer.flush()
        failed = producer.native.metrics()["producer-metrics"]["record-error-total"]
    assert failed == 2


async def test_a_batch_fails_with_the_error_of_the_record_that_was_refused(fake_kafka_cluster: FakeCluster) -> None:
    """As in aiokafka, which has one error for the batch: those of the other records only say that they shared it."""
    fake_kafka_cluster.create_topic("orders", configs={"message.timestamp.after.max.ms": 3_600_000})
    async with AIOKafkaProducer(bootstrap_servers=fake_kafka_cluster.bootstrap_servers) as producer:
        batch = producer.create_batch()
        for timestamp in (None, None, 2**62, None):
            batch.append(timestamp=timestamp, key=None, value=b"value")
        future = await producer.send_batch(batch, "orders", partition=0)
        with pytest.raises(InvalidTimestampError, match="the broker refused the record"):
            await future


def _refused(cluster: FakeCluster) -> AIOKafkaProducer:
    """A producer whose records the cluster refuses."""
    cluster.create_topic("orders")
    cluster.faults.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None)
    return AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, max_batch_size=2_000_000, max_request_size=4_000_000
    )


async def _cut_off_halfway(producer: AIOKafkaProducer) -> None:
    """Cancel a ``send_batch`` of which some records are in the buffer: it lets the loop turn after 256 KiB."""
    await producer.partitions_for("orders")
    batch = producer.create_batch()
    for _ in range(100):
        batch.append(timestamp=None, key=None, value=bytes(10_000))
    sending = asyncio.create_task(producer.send_batch(batch, "orders", partition=0))
    await asyncio.sleep(0)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending


@pytest.mark.parametrize("end", [AIOKafkaProducer.flush, AIOKafkaProducer.stop])
async def test_records_of_a_cancelled_call_that_fail(
    fake_kafka_cluster: FakeCluster, end: Callable[[AIOKafkaProducer], Awaitable[None]]
) -> None:
    """As in aiokafka, neither flush nor stop raises for records, also if there is no future for them."""
    async with _refused(fake_kafka_cluster) as producer:
        await _cut_off_halfway(producer)
        await end(producer)
        failed = producer.native.metrics()["producer-metrics"]["record-error-total"]
    assert 0 < failed < 100


async def test_the_error_of_the_body_is_not_replaced(fake_kafka_cluster: FakeCluster) -> None:
    """Not even if records fail that nobody looked at."""

    async def body() -> None:
        async with _refused(fake_kafka_cluster) as producer:
            await _cut_off_halfway(producer)
            raise RuntimeError("given up")

    with pytest.raises(RuntimeError, match="given up"):
        await body()


async def test_a_flush_ends_nothing_but_the_wait(fake_kafka_cluster: FakeCluster) -> None:
    """And one before the start or after the end has nothing to wait for."""
    producer = AIOKafkaProducer(bootstrap_servers=fake_kafka_cluster.bootstrap_servers, linger_ms=60_000)
    await producer.flush()
    await producer.start()
    for offset in range(2):
        future = await producer.send("orders", b"value")
        await producer.flush()
        assert future.result().offset == offset
    await producer.stop()
    await producer.flush()


@pytest.mark.parametrize("ends", [AIOKafkaProducer.flush, AIOKafkaProducer.stop])
async def test_when_a_flush_returns_callbacks_have_been_called(
    fake_kafka_cluster: FakeCluster, ends: Callable[[AIOKafkaProducer], Awaitable[None]]
) -> None:
    """Programs count in them, and look at the count then."""
    called: list[object] = []
    async with AIOKafkaProducer(bootstrap_servers=fake_kafka_cluster.bootstrap_servers, linger_ms=60_000) as producer:
        batch = producer.create_batch()
        batch.append(timestamp=None, key=None, value=b"of a batch")
        (await producer.send_batch(batch, "orders", partition=0)).add_done_callback(called.append)
        for _ in range(1_000):
            (await producer.send("orders", b"value")).add_done_callback(called.append)
        await ends(producer)
        assert len(called) == 1_001


async def test_serialized_is_what_is_sent(fake_kafka_cluster: FakeCluster) -> None:
    async with AIOKafkaProducer(
        bootstrap_servers=fake_kafka_cluster.bootstrap_servers, key_serializer=lambda key: b"key of %d" % key,
        value_serializer=lambda value: b"value of %d" % value,
    ) as producer:  # fmt: skip
        await producer.send_and_wait("orders", 1, 2)
        batch = producer.create_batch()
        batch.append(timestamp=None, key=4, value=3)
        await (await producer.send_batch(batch, "orders", partition=0))
    sent = [(record.key, record.value) for record in fake_kafka_cluster.records("orders")]
    assert sent == [(b"key of 2", b"value of 1"), (b"key of 4", b"value of 3")]


async def test_flush_while_stop_runs(fake_kafka_cluster: FakeCluster) -> None:
    """It waits for the same records; if it is cancelled, stop still sends them."""
    async with AIOKafkaProducer(bootstrap_servers=fake_kafka_cluster.bootstrap_servers, linger_ms=60_000) as producer:
        future = await producer.send("orders", b"value")
        stopping = asyncio.create_task(producer.stop())
        await asyncio.sleep(0)
        assert producer.native.health().state is ProducerState.CLOSING
        given_up, flushing = asyncio.create_task(producer.flush()), asyncio.create_task(producer.flush())
        await asyncio.sleep(0)
        given_up.cancel()
        await flushing
        assert future.result() is not None
        await stopping
    assert given_up.cancelled()


async def test_a_start_that_failed(fake_kafka_cluster: FakeCluster) -> None:
    """After ``stop`` the same producer may be started again; programs that wait for the cluster do so."""
    for broker in fake_kafka_cluster.brokers:
        fake_kafka_cluster.stop_broker(broker)
    producer = AIOKafkaProducer(bootstrap_servers=fake_kafka_cluster.bootstrap_servers)
    for _ in range(2):
        with pytest.raises(BootstrapError):
            await producer.start()
        await producer.stop()
    for broker in fake_kafka_cluster.brokers:
        fake_kafka_cluster.start_broker(broker)
    await producer.start()
    assert await producer.send_and_wait("orders", b"value") is not None
    await producer.stop()
    with pytest.raises(ProducerClosedError):
        await producer.start()


async def test_what_faststream_asks(fake_kafka_cluster: FakeCluster) -> None:
    """Its ``broker.ping()`` reads an attribute of aiokafka's producer."""
    producer = AIOKafkaProducer(bootstrap_servers=fake_kafka_cluster.bootstrap_servers)
    assert not producer._closed
    async with producer:
        assert not producer._closed
    assert producer._closed


async def test_asyncio_does_not_report_records_that_an_abort_has_dropped(fake_kafka_cluster: FakeCluster) -> None:
    """Nobody asked for them to be sent any more; the fixture of all tests fails for what is reported."""
    fake_kafka_cluster.create_topic("orders")
    async with AIOKafkaProducer(
        bootstrap_servers=fake_kafka_cluster.bootstrap_servers, transactional_id="shop", linger_ms=60_000
    ) as producer:
        await producer.begin_transaction()
        future = await producer.send("orders", b"dropped")
        await producer.abort_transaction()
        assert future.done()
        del future
        gc.collect()


async def test_what_is_in_a_transaction(fake_kafka_cluster: FakeCluster) -> None:
    """Records and positions of a commit, none of an abort."""
    place: Any = TopicPartition("orders", 0)
    async with AIOKafkaProducer(
        bootstrap_servers=fake_kafka_cluster.bootstrap_servers, transactional_id="shop"
    ) as producer:
        async with producer.transaction():
            await producer.send("orders", b"1")
            await producer.send_offsets_to_transaction({place: (5, "note")}, "group")
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"2")
        await producer.send_offsets_to_transaction({place: 6}, "group")
        for offsets, group_id in (
            ({}, "group"),
            ([place], "group"),
            ({place: 7}, ""),
            ({place: 7}, 7),
            ({place: "7"}, "group"),
        ):
            with pytest.raises(ValueError):  # noqa: PT011
                await producer.send_offsets_to_transaction(cast(Any, offsets), cast(Any, group_id))
        await producer.abort_transaction()
        assert fake_kafka_cluster.transaction_state("shop") == "CompleteAbort"
    assert [record.value for record in fake_kafka_cluster.records("orders", read_committed=True)] == [b"1"]
    assert [record.value for record in fake_kafka_cluster.records("orders")] == [b"1", b"2"]
    assert fake_kafka_cluster.committed_offsets("group") == {("orders", 0): CommittedOffset(5, -1, "note")}


# --- its arguments ----------------------------------------------------------------------------------------------------


async def test_a_record_above_the_default_buffer(fake_kafka_cluster: FakeCluster) -> None:
    """``max_request_size`` is the only limit of a record, as in aiokafka."""
    fake_kafka_cluster.create_topic("orders", configs={"max.message.bytes": 50_000_000})
    async with AIOKafkaProducer(
        bootstrap_servers=fake_kafka_cluster.bootstrap_servers, max_request_size=50_000_000
    ) as producer:
        assert await producer.send_and_wait("orders", bytes(40_000_000)) is not None
    for bad in (float("inf"), "large"):
        with pytest.raises(ConfigError, match=f"max_request_size={bad!r} is refused"):
            AIOKafkaProducer(max_request_size=cast(float, bad))


@pytest.mark.parametrize(
    ("given", "acks", "idempotent", "in_flight"),
    [
        ({}, 1, False, 1),
        ({"acks": 0}, 0, False, 1),
        ({"acks": "all"}, -1, False, 1),
        ({"acks": -1}, -1, False, 1),
        ({"enable_idempotence": True}, -1, True, 5),
        ({"transactional_id": "shop"}, -1, True, 5),
    ],
)
def test_acks_are_of_all_replicas_where_exactly_once_needs_it(
    given: dict[str, Any], acks: int, idempotent: bool, in_flight: int
) -> None:
    config = AIOKafkaProducer(**given).native._config
    assert (config.acks, config.enable_idempotence) == (acks, idempotent)
    assert config.max_in_flight_requests_per_connection == in_flight
    assert config.connections_max_idle_ms == 540_000


@pytest.mark.parametrize("acks", [0, "0"])
async def test_without_acknowledgement_there_is_no_place(fake_kafka_cluster: FakeCluster, acks: int | str) -> None:
    """Also where the environment gives the config, as a str."""
    async with AIOKafkaProducer(bootstrap_servers=fake_kafka_cluster.bootstrap_servers, acks=acks) as producer:
        assert await producer.send_and_wait("orders", b"value") is None
        assert await (await producer.send("orders", b"value")) is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"compression_type": "none", "linger_ms": 0, "batch_size": 16_384, "metadata_max_age_ms": 300_000}),
        ({"compression_type": "gzip"}, {"compression_type": "gzip"}),
        ({"client_id": "shop"}, {"client_id": "shop"}),
        ({"metadata_max_age_ms": 1_000}, {"metadata_max_age_ms": 1_000}),
        ({"connections_max_idle_ms": None}, {"connections_max_idle_ms": -1}),
        ({"request_timeout_ms": 5_000, "linger_ms": 7}, {"request_timeout_ms": 5_000, "delivery_timeout_ms": 5_007}),
        ({"request_timeout_ms": 5_000}, {"max_block_ms": 5_000}),
        ({"max_request_size": 20_000_000}, {"max_request_size": 20_000_000, "buffer_memory": 40_000_000}),
        (
            {"transactional_id": "shop", "transaction_timeout_ms": 9_000},
            {"transactional_id": "shop", "transaction_timeout_ms": 9_000},
        ),
        (
            {"security_protocol": "SASL_PLAINTEXT", "sasl_plain_username": "u", "sasl_plain_password": "p"},
            {"sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": "p"},
        ),
    ],
)
def test_arguments_and_the_configs_that_they_set(given: dict[str, Any], expected: dict[str, Any]) -> None:
    config = AIOKafkaProducer(**given).native._config
    assert {name: getattr(config, name) for name in expected} == expected


@pytest.mark.parametrize("servers", [None, 9092, ["broker-1", None], [("broker-1", 9092)]])
def test_servers_that_are_no_addresses(servers: Any) -> None:
    """Such as an environment variable that is not set."""
    with pytest.raises(ConfigError, match=r"bootstrap_servers=.* is refused"):
        AIOKafkaProducer(bootstrap_servers=servers)


def test_a_domain_of_kerberos_is_refused() -> None:
    """Else the login would ask for a ticket of another name."""
    with pytest.raises(ValueError, match="sasl_kerberos_domain_name has no counterpart"):
        AIOKafkaProducer(sasl_kerberos_domain_name="example.com")


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "sasl_ssl"])
def test_what_the_protocol_does_not_need_is_ignored(protocol: str) -> None:
    """Programs may always pass it, and switch by the protocol alone."""
    context = ssl.create_default_context()
    config = AIOKafkaProducer(
        security_protocol=protocol, ssl_context=context, sasl_plain_username="u", sasl_plain_password="p"
    ).native._config
    assert config.ssl_context is (context if "SSL" in protocol.upper() else None)
    assert config.sasl_username == ("u" if "SASL" in protocol.upper() else None)


def test_a_back_off_above_this_producer_s_limit() -> None:
    """It is used as given, without a word on a config that aiokafka does not have."""
    for given, limit in ((100, 1_000), (5_000, 5_000), (2_500.5, 2_500)):
        config = AIOKafkaProducer(retry_backoff_ms=given).native._config
        assert (config.retry_backoff_ms, config.retry_backoff_max_ms) == (int(given), limit)
    with pytest.raises(ConfigError, match="retry_backoff_ms='soon' is refused"):
        AIOKafkaProducer(retry_backoff_ms=cast(float, "soon"))


class TokenProvider:
    """aiokafka's interface, without its optional method."""

    async def token(self) -> str:
        return "token"


class ExtendedTokenProvider(TokenProvider):
    def __init__(self, extensions: dict[str, Any]) -> None:
        self._extensions = extensions

    def extensions(self) -> dict[str, Any]:
        return self._extensions


@pytest.mark.parametrize(
    ("provider", "sent"),
    [
        (TokenProvider(), b"n,,\x01auth=Bearer token\x01\x01"),
        (ExtendedTokenProvider({}), b"n,,\x01auth=Bearer token\x01\x01"),
        (
            ExtendedTokenProvider({"logicalCluster": "lkc-1", "identityPoolId": 7}),
            b"n,,\x01auth=Bearer token\x01logicalCluster=lkc-1\x01identityPoolId=7\x01\x01",
        ),
    ],
)
async def test_a_token_provider(provider: TokenProvider, sent: bytes) -> None:
    """Its extensions, if any, are sent too: Confluent Cloud needs them."""
    producer = AIOKafkaProducer(
        security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=provider
    )
    login = OAuthBearer(producer.native._config, asyncio.get_running_loop(), random.Random(1))
    assert await (await login.begin("broker")).respond(None) == sent


class Mark:
    """An interceptor that adds a header."""

    def on_send(self, record: Record) -> Record:
        return replace(record, headers=[*(record.headers or ()), ("mark", b"1")])


async def test_interceptors(fake_kafka_cluster: FakeCluster) -> None:
    """They see what the program sends, however it does."""
    async with AIOKafkaProducer(
        bootstrap_servers=fake_kafka_cluster.bootstrap_servers, interceptor_classes=[Mark()]
    ) as producer:
        await producer.send_and_wait("orders", b"1")
        await (await producer.send("orders", b"2", headers=[("own", b"2")]))
        batch = producer.create_batch()
        batch.append(timestamp=None, key=None, value=b"3")
        await (await producer.send_batch(batch, "orders", partition=0))
    assert [(record.value, record.headers) for record in fake_kafka_cluster.records("orders")] == [
        (b"1", (("mark", b"1"),)),
        (b"2", (("own", b"2"), ("mark", b"1"))),
        (b"3", (("mark", b"1"),)),
    ]
