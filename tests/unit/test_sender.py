"""The sender: when it sends, what it puts into a request, and how it handles answers and missing answers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from aioproducer._delivery import Delivery
from aioproducer.batch_outcomes import BatchOutcomes
from aioproducer.cluster import Broker, LeaderHint
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import (
    AuthenticationError,
    ClusterAuthorizationFailedError,
    ConnectionLostError,
    KafkaError,
    ProducerClosedError,
    ProtocolError,
    UnsupportedVersionError,
)
from aioproducer.metrics import ProducerMetrics
from aioproducer.protocol import produce as schema
from aioproducer.protocol.produce import ProduceRequest
from aioproducer.sealer import Sealer
from aioproducer.sender import Sender
from aioproducer.transaction.manager import TransactionManager
from tests.reference import record_batch as reference
from tests.unit.core import TOPIC_ID, add_topic, make_accumulator, put
from tests.unit.waiting import turns, until

PID = 4000
OTHER_ID = b"another id 16 by"


@dataclass
class Sent:
    """A request that was passed to a connection."""

    connection: FakeConnection
    request: schema.ProduceRequest
    version: int
    correlation_id: int
    client_id: str
    timeout_ms: int
    on_response: Callable[[bytes], None] | None
    on_error: Callable[[KafkaError], None]
    latest_ms: Callable[[], int]

    def answer(
        self,
        *,
        code: int = 0,
        codes: tuple[int, ...] = (),
        throttle_ms: int = 0,
        leader: tuple[int, int] = (-1, -1),
        skip: int = 0,
    ) -> bytes:
        """The frame of an answer with one code for all partitions, or with one for each."""

        def code_of(partition: int) -> int:
            return codes[partition] if codes else code

        response = schema.ProduceResponse(
            responses=[
                schema.TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        schema.PartitionProduceResponse(
                            index=each.index,
                            error_code=code_of(each.index),
                            base_offset=100 if code_of(each.index) == 0 else -1,
                            current_leader=schema.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1]),
                        )
                        for each in topic.partition_data[skip:]
                    ],
                )
                for topic in self.request.topic_data
            ],
            throttle_time_ms=throttle_ms,
            node_endpoints=[schema.NodeEndpoint(node_id=leader[0], host="h", port=1)] if leader[0] >= 0 else [],
        )
        tags = b"\0" if self.version >= ProduceRequest.FLEXIBLE_FROM else b""
        return self.correlation_id.to_bytes(4) + tags + response.encode(self.version)

    def answered(self, **answer: Any) -> None:
        assert self.on_response is not None
        self.connection.in_flight -= 1
        self.on_response(self.answer(**answer))

    def lost(self) -> None:
        self.connection.in_flight -= 1
        self.on_error(ConnectionLostError("gone", maybe_written=True))

    @property
    def batches(self) -> list[tuple[str, int, reference.Batch]]:
        """(topic, partition, batch), each batch checked."""
        return [
            (topic.name, each.index, reference.decoded(each.records or b""))
            for topic in self.request.topic_data
            for each in topic.partition_data
        ]


class FakeConnection:
    """Accepts frames and decodes them."""

    def __init__(self, node_id: int, *, version: int = 13) -> None:
        self.node_id = node_id
        self.traffic = ProducerMetrics().traffic(node_id)
        self.produce_version: int | None = version
        self.in_flight = 0
        self.correlation_id = 0
        self.sent: list[Sent] = []
        self.throttled_until_ms = 0
        self.in_charge = False
        self.doubts: list[int] = []
        self.arrived: asyncio.Queue[Sent] = asyncio.Queue()

    def __str__(self) -> str:
        return f"node {self.node_id}"

    def version(self, _: type[ProduceRequest]) -> int:
        if self.produce_version is None:
            raise UnsupportedVersionError(f"{self} speaks no Produce")
        return self.produce_version

    def next_correlation_id(self) -> int:
        self.correlation_id += 1
        return self.correlation_id

    def throttle(self, until_ms: int) -> None:
        self.throttled_until_ms = until_ms

    def doubt(self, attempts: int) -> None:
        self.doubts.append(attempts)

    def send_frame(
        self,
        buffers: list[bytes | memoryview],
        correlation_id: int,
        api_key: int,
        timeout_ms: int,
        on_response: Callable[[bytes], None] | None,
        on_error: Callable[[KafkaError], None],
        latest_ms: Callable[[], int],
    ) -> int:
        frame = b"".join(buffers)
        assert int.from_bytes(frame[:4]) == len(frame) - 4
        assert int.from_bytes(frame[4:6]) == api_key == 0
        version = int.from_bytes(frame[6:8])
        assert int.from_bytes(frame[8:12]) == correlation_id
        end = 14 + int.from_bytes(frame[12:14])
        body = end + (1 if version >= ProduceRequest.FLEXIBLE_FROM else 0)
        request = ProduceRequest.decode(frame[body:], version)
        sent = Sent(
            self, request, version, correlation_id, frame[14:end].decode(), timeout_ms, on_response, on_error, latest_ms
        )
        self.sent.append(sent)
        self.arrived.put_nowait(sent)
        self.in_flight += 1
        return len(frame)


class FakeClient:
    """Connections by node id; without a connection a node can't be sent to."""

    def __init__(self) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self.connections: dict[int, FakeConnection] = {}
        self.wanted: list[int] = []
        self.retry_ms: int | None = None
        self.refusal: AuthenticationError | None = None
        self.has_aborted = False
        self.max_in_flight = 5

    def free_connection(self, node_id: int, now_ms: int) -> FakeConnection | None:
        connection = self.connections.get(node_id)
        if connection is None or connection.in_flight >= self.max_in_flight:
            return None
        return connection if connection.throttled_until_ms <= now_ms else None

    def connect_soon(self, node_id: int) -> None:
        self.wanted.append(node_id)

    def retry_at_ms(self, node_id: int, now_ms: int) -> int | None:
        return self.retry_ms

    def authentication_error(self, node_id: int) -> AuthenticationError | None:
        return self.refusal

    def abort_all(self) -> None:
        self.has_aborted = True
        for connection in self.connections.values():
            for sent in connection.sent:
                if sent.on_response is not None:
                    sent.lost()


class FakeMetadata:
    """Records the sender's requests to the metadata."""

    def __init__(self) -> None:
        self.updates = 0
        self.touched: list[str] = []
        self.hints: list[tuple[list[LeaderHint], list[Broker]]] = []

    def request_update(self) -> None:
        self.updates += 1

    def touch(self, topic: str, now_ms: int) -> None:
        self.touched.append(topic)

    def apply_leader_hints(self, hints: list[LeaderHint], brokers: list[Broker]) -> bool:
        self.hints.append((hints, brokers))
        return True


class Bench:
    """A sender with real state and a fake network."""

    def __init__(self, *, partitions: int = 1, version: int = 13, **configs: Any) -> None:
        loop = asyncio.get_running_loop()
        self.loop = loop
        self.config = config = ProducerConfig.parse({"bootstrap_servers": "unused:1", "client_id": "me", **configs})
        self.accumulator = make_accumulator(
            loop=loop,
            batch_size=config.batch_size,
            linger_ms=config.linger_ms,
            max_request_size=config.max_request_size,
            compresses=config.compression_type != "none",
            availability_timeout_ms=config.partitioner_availability_timeout_ms,
        )
        self.topic = add_topic(self.accumulator, leaders=[1] * partitions)
        self.sequences = TransactionManager(idempotent=config.enable_idempotence)
        self.sequences.set_producer_id(PID, 0)
        self.client, self.metadata = FakeClient(), FakeMetadata()
        self.connection = self.client.connections[1] = FakeConnection(1, version=version)
        self.metrics = ProducerMetrics(2, 30_000)
        self.progress = 0
        self.fatal: list[KafkaError] = []
        self.id_requests = 0
        sealer = Sealer(config, loop=loop, accumulator=self.accumulator, on_sealed=self._progressed)
        self.sealer = sealer
        outcomes = BatchOutcomes(
            config,
            accumulator=self.accumulator,
            sequences=self.sequences,
            sealer=sealer,
            metrics=self.metrics,
            rng=random.Random(1),
            on_failure=lambda error: None,
            on_old_epoch=lambda error: False,
            why_not_sent=lambda batch: None,
        )
        self.sender = Sender(
            config,
            loop=loop,
            accumulator=self.accumulator,
            sequences=self.sequences,
            client=self.client,  # type: ignore[arg-type]
            metadata=self.metadata,  # type: ignore[arg-type]
            metrics=self.metrics,
            sealer=sealer,
            outcomes=outcomes,
            on_progress=self._progressed,
            on_fatal=self.fatal.append,
            request_producer_id=self._wants_id,
        )

    def _progressed(self) -> None:
        self.progress += 1

    def _wants_id(self) -> None:
        self.id_requests += 1

    def now_ms(self) -> int:
        return int(self.loop.time() * 1000)

    def put(self, value: bytes = b"v", *, partition: int = 0, **record: Any) -> Delivery:
        return put(self.accumulator, self.topic, value, partition=partition, now_ms=self.now_ms(), **record)

    def close_all(self) -> None:
        self.accumulator.close_all()

    def step(self) -> int:
        """One pass over everything."""
        return self.sender._pass(self.now_ms())

    def send(self, *values: bytes, partition: int = 0) -> Sent:
        """One request with these records."""
        before = len(self.connection.sent)
        for value in values or (b"v",):
            self.put(value, partition=partition)
        self.close_all()
        self.step()
        assert len(self.connection.sent) == before + 1
        return self.connection.sent[-1]

    def introduce(self) -> None:
        """Make the producer known to the leader."""
        self.send().answered()
        self.connection.sent.clear()


async def running(bench: Bench, body: Callable[[], Awaitable[None]]) -> None:
    """Run the sender's task during the body of a test."""
    task = asyncio.create_task(bench.sender.run())
    try:
        await asyncio.wait_for(body(), 20)
    finally:
        task.cancel()
        await asyncio.wait([task])


# --- what is in a request ---------------------------------------------------------------------------------------------


async def test_a_request_has_acks_timeout_client_id_and_numbered_batches() -> None:
    """A request has acks, timeout and client id, and the batches with their sequences."""
    bench = Bench(partitions=2, acks="all", request_timeout_ms=1234)
    bench.put(b"zero", partition=0)
    bench.put(b"one", partition=1)
    bench.close_all()
    bench.step()
    (sent,) = bench.connection.sent
    assert (sent.version, sent.client_id, sent.timeout_ms) == (13, "me", 1234)
    assert (sent.request.acks, sent.request.timeout_ms, sent.request.transactional_id) == (-1, 1234, None)
    assert [topic.topic_id for topic in sent.request.topic_data] == [TOPIC_ID]
    values = {}
    for _, partition, batch in sent.batches:
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (PID, 0, 0)
        (record,) = reference.records_of(batch.section, batch.records_count, batch.base_timestamp)
        values[partition] = record.value
    assert values == {0: b"zero", 1: b"one"}
    assert bench.metadata.touched == ["orders"]


async def test_metadata_hears_now_and_then_that_a_topic_is_in_use() -> None:
    """Often enough to keep the topic, but not each time for all of a request's thousands of topics."""
    bench = Bench(metadata_max_idle_ms=50_000)
    bench.introduce()
    assert bench.metadata.touched == ["orders"]
    bench.topic.touched_ms = bench.now_ms() + 60_000  # however slow this test is
    bench.send().answered()
    assert bench.metadata.touched == ["orders"]
    bench.topic.touched_ms = bench.now_ms() - 10_000
    bench.send()
    assert bench.metadata.touched == ["orders", "orders"]


@pytest.mark.parametrize(("acks", "expected"), [("all", -1), (1, 1)])
async def test_acks_is_sent_as_configured(acks: Any, expected: int) -> None:
    bench = Bench(acks=acks)
    assert bench.send().request.acks == expected


@pytest.mark.parametrize(("version", "expected"), [(13, 12), (12, 12), (3, 3)])
async def test_version_without_topic_ids(version: int, expected: int) -> None:
    """Version 13 is only for topics whose id is known: otherwise it is 12, or the broker's newest one."""
    bench = Bench(version=version)
    bench.accumulator.update_topic("orders", bytes(16), [(1, 0)])
    sent = bench.send()
    assert sent.version == expected
    assert sent.request.topic_data[0].name == "orders"


async def test_unsupported_version() -> None:
    """A broker without a common Produce version fails its batches, and nothing else."""
    bench = Bench(partitions=2)
    bench.accumulator.update_topic("orders", TOPIC_ID, [(1, 0), (2, 0)])
    bench.client.connections[2] = FakeConnection(2)
    bench.connection.produce_version = None
    first, second = bench.put(partition=0), bench.put(partition=1)
    bench.close_all()
    bench.step()
    error = first.exception()
    assert isinstance(error, UnsupportedVersionError)
    assert str(error) == "orders-0: node 1 speaks no Produce"
    assert not error.maybe_written
    bench.client.connections[2].sent[0].answered()
    assert second.result()
    assert not bench.accumulator.has_live_batches()


async def test_a_batch_in_doubt_fails_as_in_doubt_at_a_broker_that_is_too_old() -> None:
    """The previous leader may have written the batch, and this one can't be asked."""
    bench = Bench()
    delivery = bench.put()
    bench.close_all()
    bench.step()
    bench.connection.sent[0].lost()
    bench.connection.produce_version = None
    async with asyncio.timeout(10):
        while not delivery.done():
            bench.step()
            await asyncio.sleep(0.01)
    error = delivery.exception()
    assert isinstance(error, UnsupportedVersionError)
    assert error.maybe_written


async def test_zstd_and_an_old_broker() -> None:
    """zstd below Produce 7 is refused, and the error has the required version; other codecs are accepted."""
    bench = Bench(version=6, compression_type="zstd")
    delivery = bench.put()
    bench.close_all()
    bench.step()
    with pytest.raises(UnsupportedVersionError, match=r"zstd needs Kafka 2\.1 or newer, node 1 speaks Produce 6"):
        delivery.result()
    bench = Bench(version=6, compression_type="gzip")
    assert bench.send(b"x" * 1000).batches[0][2].attributes == 1


async def test_compressed_on_the_loop() -> None:
    """Small batches are compressed when they are sent."""
    bench = Bench(compression_type="lz4")
    sent = bench.send(b"x" * 1000)
    assert sent.batches[0][2].attributes == 3
    assert len(sent.batches[0][2].section) < 200


async def test_compressed_in_a_worker() -> None:
    """Large batches are compressed in a worker first; the sender is woken when they are done."""
    bench = Bench(compression_type="gzip", batch_size=1 << 20)

    async def body() -> None:
        bench.put(b"x" * 500_000)
        bench.close_all()
        sent = await bench.connection.arrived.get()
        assert sent.batches[0][2].attributes == 1
        assert len(sent.batches[0][2].section) < 5000
        sent.answered()

    await running(bench, body)
    assert not bench.accumulator.has_live_batches()
    await bench.sealer.close()


@pytest.mark.parametrize("why", ["enough in flight", "the last place was just taken", "no connection"])
async def test_compressed_while_the_broker_takes_no_request(why: str) -> None:
    """Large batches are then ready for its next requests."""
    bench = Bench(partitions=3, compression_type="gzip", batch_size=20_000, max_request_size=15_000)
    bench.client.max_in_flight = 1
    if why == "enough in flight":
        bench.send()
    elif why == "no connection":
        del bench.client.connections[1]
    for partition, value in enumerate([random.Random(1).randbytes(8_000)] * 2 + [b"x" * 19_000]):
        bench.put(value, partition=partition)
    bench.close_all()
    bench.step()
    await until(lambda: bench.progress == 1)
    bench.client.connections[1] = bench.connection
    while bench.accumulator.has_live_batches():
        if bench.connection.in_flight:
            bench.connection.sent[-1].answered()
        bench.step()
    sent = [(partition, batch.attributes) for each in bench.connection.sent for _, partition, batch in each.batches]
    assert sent[-3:] == [(0, 0), (1, 0), (2, 1)]
    await bench.sealer.close()


async def test_requests_are_bounded_and_pipelined() -> None:
    """Batches that don't fit into one request go into further ones, as many as may be in flight."""
    bench = Bench(partitions=8, batch_size=1000, max_request_size=2200)
    bench.client.max_in_flight = 3
    for partition in range(8):
        bench.put(bytes(900), partition=partition)
    bench.close_all()
    bench.step()
    assert [len(sent.batches) for sent in bench.connection.sent] == [2, 2, 2]
    bench.connection.sent[0].answered()
    bench.step()
    assert len(bench.connection.sent) == 4


@pytest.mark.parametrize(
    ("configs", "value_bytes", "a_turn"),
    [({"batch_size": 500_000, "max_request_size": 500_000}, 400_000, 3), ({}, 520_000, 1)],
    ids=["0.4 MB", "two full batches"],
)
async def test_the_loop_has_its_turn_between_large_requests(
    configs: dict[str, int], value_bytes: int, a_turn: int
) -> None:
    """Five requests may be in flight, but writing all of them at once would block everything else."""
    bench = Bench(partitions=10, **configs)

    async def body() -> None:
        for partition in range(10):
            bench.put(bytes(value_bytes), partition=partition)
        bench.close_all()
        after_turns = []
        while len(bench.connection.sent) < 5:
            await asyncio.sleep(0)
            after_turns.append(len(bench.connection.sent))
        assert a_turn in after_turns

    await running(bench, body)


# --- when it sends ----------------------------------------------------------------------------------------------------


async def test_an_open_batch_is_sent_after_its_linger() -> None:
    """An open batch is sent after its linger, with nothing else to wake the sender."""
    bench = Bench(linger_ms=3)

    async def body() -> None:
        before = bench.now_ms()
        delivery = bench.put()
        sent = await bench.connection.arrived.get()
        assert bench.now_ms() >= before + 3
        sent.answered()
        assert delivery.done()

    await running(bench, body)


async def test_send_goes_at_once() -> None:
    """A record of send() is sent at once."""
    bench = Bench(linger_ms=60_000)

    async def body() -> None:
        bench.put(awaited=True)
        await turns()
        assert len(bench.connection.sent) == 1
        bench.put(awaited=True)
        await turns()
        assert len(bench.connection.sent) == 1, "the broker owes an answer"
        bench.connection.sent[0].answered()
        await turns()
        assert len(bench.connection.sent) == 2
        bench.connection.sent[1].answered()

    await running(bench, body)


async def test_many_sends_make_few_requests() -> None:
    """Sends of one turn of the loop share a batch, and those that come while it is in flight share the next."""
    bench = Bench(linger_ms=60_000)

    async def body() -> None:
        for _ in range(200):
            bench.put(awaited=True)
        await turns()
        for _ in range(200):
            bench.put(awaited=True)
        await turns()
        (sent,) = bench.connection.sent
        sent.answered()
        await turns()
        assert [each.batches[0][2].records_count for each in bench.connection.sent] == [200, 200]
        bench.connection.sent[1].answered()

    await running(bench, body)


async def test_wakes_for_a_connection() -> None:
    """A broker without a connection is connected to; its batches are sent when it is ready."""
    bench = Bench()
    connection = bench.client.connections.pop(1)

    async def body() -> None:
        bench.put()
        bench.close_all()
        bench.sender.wake()
        await turns()
        assert bench.client.wanted == [1]
        bench.client.connections[1] = connection
        bench.client.on_change()
        sent = await connection.arrived.get()
        sent.answered()

    await running(bench, body)


async def test_looks_again_when_a_connection_may_be_tried() -> None:
    """While a broker is in back-off the sender sleeps until that is over, or an earlier deadline."""
    bench = Bench(linger_ms=50)
    bench.client.connections.clear()
    bench.put()
    bench.close_all()
    now_ms = bench.now_ms()
    bench.client.retry_ms = now_ms + 30
    assert bench.step() == now_ms + 30
    bench.client.retry_ms = None
    assert bench.step() >= now_ms + 120_000 - 1000
    bench.client.retry_ms = now_ms - 5
    assert bench.step() >= now_ms + 120_000 - 1000
    put(bench.accumulator, bench.topic, now_ms=now_ms)
    bench.client.retry_ms = now_ms + 1000
    assert bench.step() == now_ms + 50


@pytest.mark.parametrize("idempotent", [True, False])
async def test_what_is_for_a_broker_that_refuses_us_fails_at_once(idempotent: bool) -> None:
    """Not after delivery_timeout_ms, with the broker's reason; but a running connection attempt is awaited."""
    bench = Bench(linger_ms=50, enable_idempotence=idempotent)
    bench.client.connections.clear()
    bench.client.refusal = AuthenticationError("node 1 (h:1): wrong password")
    deliveries = [bench.put() for _ in range(2)]
    bench.close_all()
    bench.step()
    assert not any(delivery.done() for delivery in deliveries)
    bench.client.retry_ms = bench.now_ms() + 30
    bench.step()
    for delivery in deliveries:
        error = delivery.exception()
        assert isinstance(error, AuthenticationError)
        assert str(error) == "orders-0: node 1 (h:1): wrong password"
        assert not error.maybe_written
    assert bench.progress == 1
    assert bench.accumulator.pool.used_bytes == 0


async def test_a_batch_in_doubt_fails_as_in_doubt_at_a_broker_that_refuses_us() -> None:
    bench = Bench()
    delivery = bench.put()
    bench.close_all()
    bench.step()
    (sent,) = bench.connection.sent
    bench.client.connections.clear()
    bench.client.refusal = AuthenticationError("wrong password")
    sent.lost()
    bench.client.retry_ms = bench.now_ms() + 30
    async with asyncio.timeout(10):
        while not delivery.done():
            bench.step()
            await asyncio.sleep(0.01)
    error = delivery.exception()
    assert isinstance(error, AuthenticationError)
    assert error.maybe_written


async def test_a_broker_that_is_away_holds_up_nobody() -> None:
    """Batches for other brokers are sent."""
    bench = Bench(partitions=2)
    bench.accumulator.update_topic("orders", TOPIC_ID, [(2, 0), (1, 0)])
    bench.put(partition=0)
    bench.put(partition=1)
    bench.close_all()
    bench.step()
    assert [partition for _, partition, _ in bench.connection.sent[0].batches] == [1]
    assert bench.client.wanted == [2]


async def test_a_broker_that_is_away_gets_no_more_records_without_a_key() -> None:
    """Once ``partitioner_availability_timeout_ms`` is over."""
    bench = Bench(partitions=2, partitioner_availability_timeout_ms=50)
    bench.accumulator.update_topic("orders", TOPIC_ID, [(2, 0), (1, 0)])
    bench.put(partition=0)
    bench.close_all()
    now_ms = bench.now_ms()
    bench.sender._pass(now_ms)
    for _ in range(20):
        put(bench.accumulator, bench.topic, bytes(20_000), partition=-1, now_ms=now_ms + 51)
    bench.close_all()
    bench.sender._pass(now_ms + 51)
    sent = [batch for each in bench.connection.sent for _, _, batch in each.batches]
    assert sum(batch.records_count for batch in sent) == 20


async def test_no_leader() -> None:
    """Batches without a leader cause a metadata request."""
    bench = Bench()
    bench.accumulator.update_topic("orders", TOPIC_ID, [(-1, 0)])
    bench.put()
    bench.close_all()
    bench.step()
    assert bench.metadata.updates == 1
    assert bench.client.wanted == []


async def test_producer_id_first() -> None:
    """Without a producer id nothing is sent, and one is requested as soon as a batch is ready."""
    bench = Bench()
    bench.sequences.set_producer_id(-1, -1)
    bench.step()
    assert bench.id_requests == 0
    bench.put()
    bench.close_all()
    bench.step()
    assert bench.id_requests == 1
    assert not bench.connection.sent
    bench.sequences.set_producer_id(PID, 3)
    bench.step()
    assert bench.connection.sent[0].batches[0][2].producer_epoch == 3


async def test_wakes_are_not_lost() -> None:
    """A wake-up during a pass, and one before the sender sleeps, cause another pass."""
    bench = Bench()
    passes = []
    original = bench.sender._pass

    def noting(now_ms: int) -> int:
        passes.append(now_ms)
        if len(passes) == 1:
            bench.sender.wake()
        return original(now_ms)

    bench.sender._pass = noting  # type: ignore[method-assign]

    async def body() -> None:
        await turns()
        assert len(passes) == 2
        for _ in range(10):
            bench.sender.wake()
        await turns()
        assert len(passes) == 3

    await running(bench, body)


async def test_expiry_wakes_it() -> None:
    """Without a reachable broker, batches still fail at their delivery timeout."""
    bench = Bench()
    bench.client.connections.clear()
    delivery = put(bench.accumulator, bench.topic, now_ms=bench.now_ms() - 119_990)

    async def body() -> None:
        with pytest.raises(KafkaError, match="delivery_timeout_ms"):
            await delivery

    await running(bench, body)
    assert bench.progress == 1


# --- answers ----------------------------------------------------------------------------------------------------------


async def test_an_answer_ends_its_batches_and_wakes_the_sender() -> None:
    """An answer ends its batches, notifies the owner, and wakes the sender."""
    bench = Bench(partitions=2)
    deliveries = [bench.put(partition=partition) for partition in (0, 1)]
    bench.close_all()
    bench.step()
    bench.connection.sent[0].answered()
    assert [delivery.result().offset for delivery in deliveries] == [100, 100]
    assert bench.progress == 1
    assert bench.sender._awake
    assert bench.accumulator.pool.used_bytes == 0


async def test_answer_that_makes_no_sense() -> None:
    """A malformed answer, or one that lacks a partition, raises ProtocolError before it has any effect."""
    bench = Bench(partitions=2)
    deliveries = [bench.put(partition=partition) for partition in (0, 1)]
    bench.close_all()
    bench.step()
    (sent,) = bench.connection.sent
    assert sent.on_response is not None
    for frame in sent.answer()[:-3], sent.answer(skip=1), b"\0\0\0\1":
        with pytest.raises(ProtocolError):
            sent.on_response(frame)
    assert not any(delivery.done() for delivery in deliveries)
    sent.answered()
    assert all(delivery.done() for delivery in deliveries)


async def test_topic_made_again_in_flight() -> None:
    """A topic may get a new id while a request is in flight: the answer, with the old id, is understood."""
    bench = Bench()
    delivery = bench.put()
    bench.close_all()
    bench.step()
    bench.accumulator.update_topic("orders", OTHER_ID, [(1, 0)])
    bench.connection.sent[0].answered()
    assert delivery.result().offset == 100


async def test_a_broker_that_leads_nothing_of_what_it_should_is_doubted() -> None:
    """With the number of attempts; what it accepts besides proves that it is the right one."""
    bench = Bench(partitions=3, retry_backoff_ms=0, retry_backoff_max_ms=0)
    for partition in range(2):
        bench.put(b"v", partition=partition)
    bench.send(partition=2).answered(codes=(6, 19, 3))
    assert bench.connection.doubts == [1]
    assert not bench.connection.in_charge
    bench.step()
    bench.connection.sent[-1].answered(codes=(6, 0, 6))
    assert bench.connection.doubts == [1, 2, 2]
    assert bench.connection.in_charge


@pytest.mark.parametrize(("version", "throttled"), [(5, False), (6, True), (13, True)])
async def test_a_throttle_time_is_honoured_from_produce_6_on(version: int, throttled: bool) -> None:
    """A throttle time is honoured from Produce 6 on; before, the broker had waited itself (KIP-219)."""
    bench = Bench(version=version)
    before = bench.now_ms()
    bench.send().answered(throttle_ms=700)
    if throttled:
        assert before + 700 <= bench.connection.throttled_until_ms <= bench.now_ms() + 700
    else:
        assert bench.connection.throttled_until_ms == 0


async def test_until_when_a_throttled_answer_is_waited_for() -> None:
    """As long as the memory of the oldest batch may stay in use after it has expired."""
    bench = Bench(partitions=3, delivery_timeout_ms=40_000, request_timeout_ms=2_000)
    now_ms = bench.now_ms()
    for partition, age_ms in enumerate((5, 700, 90)):
        put(bench.accumulator, bench.topic, partition=partition, now_ms=now_ms - age_ms)
    bench.close_all()
    bench.step()
    assert bench.connection.sent[0].latest_ms() == now_ms - 700 + 42_000


@pytest.mark.parametrize("code", [6, 74])
async def test_leader_hint(code: int) -> None:
    """A new leader named in the answer is used, with its address; metadata is still refreshed."""
    bench = Bench()
    bench.send().answered(code=code, leader=(7, 12))
    assert bench.metadata.hints == [([LeaderHint("orders", 0, 7, 12)], [Broker(7, "h", 1, None)])]
    assert bench.metadata.updates == 1


@pytest.mark.parametrize(
    ("code", "leader", "updates"),
    [(6, (-1, -1), 1), (6, (7, -1), 1), (3, (7, 12), 1), (19, (7, 12), 0), (87, (7, 12), 0)],
)
async def test_no_leader_hint(code: int, leader: tuple[int, int], updates: int) -> None:
    """No hint without leader and epoch, or with other codes; metadata is refreshed only for codes that require it."""
    bench = Bench()
    bench.send().answered(code=code, leader=leader)
    assert bench.metadata.hints == []
    assert bench.metadata.updates == updates


async def test_no_leader_hint_of_a_former_topic() -> None:
    """The leader epochs of a recreated topic start again: an epoch of the old topic would never be exceeded."""
    bench = Bench()
    bench.put()
    bench.close_all()
    bench.step()
    bench.accumulator.update_topic("orders", OTHER_ID, [(1, 0)])
    bench.connection.sent[0].answered(code=6, leader=(7, 12))
    assert bench.metadata.hints == []
    assert bench.metadata.updates == 1


async def test_fatal_answer() -> None:
    """A fatal code is reported to the owner once, and fails the batches that the answer has not ended."""
    bench = Bench(partitions=3)
    deliveries = [bench.put(partition=partition) for partition in (0, 1, 2)]
    bench.close_all()
    bench.step()

    def fatal(error: KafkaError) -> None:
        bench.fatal.append(error)
        bench.sender.fail_all(lambda _: ProducerClosedError("failed"), unobserved=False)

    bench.sender._on_fatal = fatal
    sent = bench.connection.sent.pop()
    sent.answered(codes=(31, 0, 19))
    assert [type(error) for error in bench.fatal] == [ClusterAuthorizationFailedError]
    assert all(delivery.done() for delivery in deliveries)
    assert isinstance(deliveries[0].exception(), ClusterAuthorizationFailedError)
    assert deliveries[1].result().offset == 100
    assert isinstance(deliveries[2].exception(), ProducerClosedError)
    assert not bench.accumulator.has_live_batches()
    assert bench.accumulator.in_flight_batches == 0


async def test_retry_keeps_order() -> None:
    """A refused batch is sent again before those behind it, which follow in order."""
    bench = Bench(retry_backoff_ms=0)
    bench.introduce()
    first, second, third = (bench.send(value) for value in (b"1", b"2", b"3"))
    first.answered(code=19)
    second.answered(code=45)
    third.answered(code=45)
    order = []
    for _ in range(3):
        bench.step()
        sent = bench.connection.sent[-1]
        order.append(sent.batches[0][2].base_sequence)
        sent.answered()
    assert order == [1, 2, 3]


# --- no answer --------------------------------------------------------------------------------------------------------


async def test_connection_lost() -> None:
    """Batches without an answer are requeued; metadata is refreshed, because the leader may have moved."""
    bench = Bench(retry_backoff_ms=0)
    delivery = bench.put()
    bench.close_all()
    bench.step()
    bench.connection.sent[0].lost()
    assert not delivery.done()
    assert bench.metadata.updates == 1
    assert bench.progress == 1
    assert bench.sender._awake
    bench.step()
    again = bench.connection.sent[1]
    assert again.batches[0][2].base_sequence == 0
    again.answered()
    assert delivery.result().offset == 100


async def test_a_lost_request_is_not_waited_for() -> None:
    """The next record of send() goes at once, as its broker owes no answer any more."""
    bench = Bench(partitions=2, linger_ms=60_000, retry_backoff_ms=60_000)

    async def body() -> None:
        bench.put(awaited=True)
        await turns()
        bench.connection.sent[0].lost()
        bench.put(partition=1, awaited=True)
        await turns()
        assert [partition for _, partition, _ in bench.connection.sent[1].batches] == [1]
        bench.connection.sent[1].answered()

    await running(bench, body)


async def test_acks_0() -> None:
    """With acks=0 a batch ends when it is handed over; a lost connection does not affect it."""
    bench = Bench(acks=0, enable_idempotence=False)
    delivery = bench.put()
    bench.close_all()
    bench.step()
    (sent,) = bench.connection.sent
    assert sent.on_response is None
    assert sent.request.acks == 0
    assert delivery.result().offset == -1
    assert bench.progress == 1
    assert not bench.accumulator.has_live_batches()
    sent.on_error(ConnectionLostError("gone", maybe_written=True))
    assert delivery.exception() is None


async def test_acks_0_owes_no_answer() -> None:
    """With acks=0 a broker has nothing to answer, so each send goes at once."""
    bench = Bench(acks=0, enable_idempotence=False, linger_ms=60_000)

    async def body() -> None:
        for number in range(1, 4):
            bench.put(awaited=True)
            await turns()
            assert len(bench.connection.sent) == number

    await running(bench, body)


async def test_fail_all() -> None:
    """Everything ends at once: open, waiting and in flight; the connections end too."""
    bench = Bench(partitions=3, linger_ms=60_000)
    first = bench.put(partition=0)
    bench.close_all()
    bench.step()
    bench.client.max_in_flight = 1
    second = bench.put(partition=1)
    bench.close_all()
    bench.step()
    third = bench.put(partition=2)
    bench.sender.fail_all(
        lambda batch: ProducerClosedError("closed", maybe_written=batch.maybe_written), unobserved=False
    )
    errors = [delivery.exception() for delivery in (first, second, third)]
    assert [error.maybe_written for error in errors if error is not None] == [True, False, False]
    assert not bench.accumulator.has_live_batches()
    assert bench.accumulator.pool.used_bytes == 0
    assert bench.progress > 0
    assert bench.client.has_aborted


# --- metrics ----------------------------------------------------------------------------------------------------------


async def test_what_is_sent_is_counted_under_kafkas_names() -> None:
    """Requests, batches, records and answers are counted under Kafka's names."""
    bench = Bench(partitions=2)
    for partition in 0, 0, 1:
        bench.put(b"v" * 10, partition=partition)
    bench.close_all()
    bench.step()
    bench.connection.sent[0].answered(throttle_ms=5)
    snapshot = bench.metrics.snapshot(bench.now_ms())
    producer = snapshot["producer-metrics"]
    assert producer["record-send-total"] == 3
    assert producer["records-per-request-avg"] == 3
    assert producer["batch-size-max"] == bench.connection.sent[0].batches[0][2].batch_length + 12
    assert producer["produce-throttle-time-max"] == 5
    topic = snapshot["producer-topic-metrics"]["orders"]
    assert topic["record-send-total"] == 3
