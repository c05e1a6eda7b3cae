"""Spans and metrics that follow the messaging conventions, collected by OpenTelemetry's in-memory exporters."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pyarrow
import pytest
from opentelemetry import propagate
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Gauge, InMemoryMetricReader, Metric, Sum
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import (
    INVALID_SPAN,
    NoOpTracerProvider,
    SpanKind,
    StatusCode,
    format_span_id,
    format_trace_id,
    get_current_span,
)

from aioproducer import BufferExhaustedError, KafkaError, Producer, Record, SendManyError, SerializationError
from aioproducer.integrations import opentelemetry
from aioproducer.integrations.metrics import Reading, read
from aioproducer.integrations.opentelemetry import Tracing, observe
from aioproducer.testing import FakeCluster

PATIENCE_S = 30
THEIRS = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"


class Telemetry:
    """The exported spans and metrics."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader])

    def tracing(self, **options: Any) -> Tracing:
        return Tracing(tracer_provider=self.tracers, meter_provider=self.meters, **options)

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._spans.get_finished_spans() if span.name == name]

    def _metrics(self, name: str) -> Iterator[Metric]:
        data = self._reader.get_metrics_data()
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                yield from (metric for metric in scope.metrics if metric.name == name)

    def unit(self, name: str) -> str | None:
        (metric,) = self._metrics(name)
        return metric.unit

    def kind(self, name: str) -> type:
        (metric,) = self._metrics(name)
        return type(metric.data)

    def measured(self, name: str) -> dict[frozenset[tuple[str, Any]], Any]:
        return {
            frozenset((point.attributes or {}).items()): point
            for metric in self._metrics(name)
            for point in metric.data.data_points
        }


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(1) as cluster:
        cluster.create_topic("orders")
        yield cluster


def producer_of(cluster: FakeCluster, tracing: Tracing, **configs: Any) -> Producer:
    return Producer(bootstrap_servers=cluster.bootstrap_servers, interceptor_classes=[tracing], **configs)


def parent_of(span: ReadableSpan) -> str:
    """The header that names this span as the creator of a record."""
    own = span.context
    assert own is not None
    return f"00-{format_trace_id(own.trace_id)}-{format_span_id(own.span_id)}-{own.trace_flags:02x}"


def headers(cluster: FakeCluster) -> list[dict[str, list[str]]]:
    found = []
    for record in cluster.records("orders"):
        by_name: dict[str, list[str]] = {}
        for name, value in record.headers:
            by_name.setdefault(name, []).append((value or b"").decode())
        found.append(by_name)
    return found


async def test_a_send(cluster: FakeCluster, telemetry: Telemetry) -> None:
    """One span from the call to the acknowledgement, a child of the caller's, whose context is in the headers."""
    tracing = telemetry.tracing(attributes={"server.address": "kafka.internal"})
    async with producer_of(cluster, tracing, client_id="shop") as producer:
        with telemetry.tracers.get_tracer("test").start_as_current_span("request"):
            await producer.send("orders", "value", key="k", headers=[("own", b"1")])
    (span,), (request,) = telemetry.spans("send orders"), telemetry.spans("request")
    assert span.kind is SpanKind.PRODUCER
    assert span.parent is not None
    assert request.context is not None
    assert span.parent.span_id == request.context.span_id
    assert dict(span.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.client.id": "shop",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.message.key": "k",
        "messaging.kafka.offset": 0,
        "server.address": "kafka.internal",
    }
    assert span.status.status_code is StatusCode.UNSET
    assert headers(cluster) == [{"own": ["1"], "traceparent": [parent_of(span)]}]


@pytest.mark.parametrize(
    ("clients", "own", "found"),
    [
        (("shop", "shop"), {}, {"shop"}),
        (("shop", "till"), {}, {None}),
        (("shop", "till", "shop"), {}, {None}),
        (("shop",), {"messaging.client.id": "x"}, {"x"}),
    ],
)
async def test_the_client_is_named_where_it_is_known(
    cluster: FakeCluster, telemetry: Telemetry, clients: tuple[str, ...], own: dict[str, str], found: set[str | None]
) -> None:
    """Also on the spans of bulk calls; an interceptor shared by several producers can't tell them apart."""
    tracing = telemetry.tracing(attributes=own)
    producers = [producer_of(cluster, tracing, client_id=name) for name in clients]
    for producer in producers:
        await producer.start()
    for producer in producers:
        await producer.send("orders", b"1")
        await producer.send_many("orders", [b"2"])
        await producer.close()
    spans = [*telemetry.spans("send orders"), *telemetry.spans("create orders")]
    assert len(spans) == 3 * len(clients)
    assert {dict(span.attributes or {}).get("messaging.client.id") for span in spans} == found


async def test_the_span_lasts_until_the_acknowledgement(cluster: FakeCluster, telemetry: Telemetry) -> None:
    async with producer_of(cluster, telemetry.tracing(), linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        delivery = await producer.submit("orders", None, key=b"k")
        assert telemetry.spans("send orders") == []
        await producer.flush()
        assert delivery.done()
        (span,) = telemetry.spans("send orders")
        assert dict(span.attributes or {})["messaging.kafka.message.tombstone"] is True


async def test_spans_outlive_another_producer_that_shares_the_interceptor(
    cluster: FakeCluster, telemetry: Telemetry
) -> None:
    """As at the end of an application with two producers, of which one is closed first."""
    tracing = telemetry.tracing()
    configs = {"linger_ms": 60_000, "delivery_timeout_ms": 120_000}
    async with producer_of(cluster, tracing, **configs) as longer:
        async with producer_of(cluster, tracing):
            await longer.submit("orders", b"value")
        assert telemetry.spans("send orders") == []
    (span,) = telemetry.spans("send orders")
    assert dict(span.attributes or {})["messaging.kafka.offset"] == 0
    assert len(telemetry.measured("messaging.client.sent.messages")) == 1


def test_spans_that_nothing_can_end_any_more_end_with_the_last_producer(telemetry: Telemetry) -> None:
    """As where a loop was stopped before the producers were closed."""
    tracing = telemetry.tracing()
    for client_id in ("shop", "till"):
        tracing.on_start(client_id)
    sent = tracing.on_send(Record(b"value", topic="orders"))
    tracing.close()
    assert telemetry.spans("send orders") == []
    tracing.close()
    assert len(telemetry.spans("send orders")) == 1
    tracing.on_start("shop")
    tracing.on_acknowledgement(None, None, sent.headers)
    assert telemetry.measured("messaging.client.sent.messages") == {}


async def test_two_of_them_have_spans_of_their_own(cluster: FakeCluster, telemetry: Telemetry) -> None:
    """As where a framework adds one to the program's own."""
    both = [telemetry.tracing(attributes={"by": name}) for name in ("program", "framework")]
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, interceptor_classes=both) as producer:
        await producer.send("orders", b"1")
    spans = {dict(span.attributes or {})["by"]: span for span in telemetry.spans("send orders")}
    own = spans["program"].context
    assert own is not None
    assert [link.context.span_id for link in spans["framework"].links] == [own.span_id]
    assert headers(cluster) == [{"traceparent": [parent_of(spans["program"])]}]
    sent = telemetry.measured("messaging.client.sent.messages")
    assert sorted((dict(labels)["by"], point.value) for labels, point in sent.items()) == [
        ("framework", 1), ("program", 1),
    ]  # fmt: skip


async def test_without_a_propagator_spans_end_at_once(
    cluster: FakeCluster, telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with OTEL_PROPAGATORS=none: there is no header by which a record could be recognised."""
    monkeypatch.setattr(propagate, "get_global_textmap", lambda: CompositePropagator([]))
    async with producer_of(cluster, telemetry.tracing(), linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        delivery = await producer.submit("orders", b"value")
        (span,) = telemetry.spans("send orders")
        await producer.flush()
        assert delivery.done()
    assert telemetry.spans("send orders") == [span]
    assert [point.value for point in telemetry.measured("messaging.client.sent.messages").values()] == [1]
    assert headers(cluster) == [{}]


async def test_many_at_once_are_not_mixed_up(cluster: FakeCluster, telemetry: Telemetry) -> None:
    cluster.create_topic("many", 5)
    tracing = telemetry.tracing()
    async with producer_of(cluster, tracing) as producer:
        sent = await asyncio.gather(*[producer.send("many", b"%d" % number) for number in range(200)])
        assert not tracing._open, "kept for nothing, one for each record of a producer's life"
    spans = {parent_of(span): dict(span.attributes or {}) for span in telemetry.spans("send many")}
    assert len(spans) == 200
    for partition in range(5):
        for record in cluster.records("many", partition):
            found = spans[dict(record.headers)["traceparent"].decode()]  # type: ignore[union-attr]
            assert found["messaging.destination.partition.id"] == str(partition)
            assert found["messaging.kafka.offset"] == record.offset
    assert len(sent) == 200


async def test_a_context_of_its_own_stays(cluster: FakeCluster, telemetry: Telemetry) -> None:
    """It is neither changed nor duplicated; the span has a link to it."""
    async with producer_of(cluster, telemetry.tracing()) as producer:
        for number in range(2):
            await producer.send("orders", b"%d" % number, headers={"traceparent": THEIRS.encode()})
    assert headers(cluster) == [{"traceparent": [THEIRS]}] * 2
    spans = telemetry.spans("send orders")
    assert [span.kind for span in spans] == [SpanKind.CLIENT] * 2
    assert [dict(span.attributes or {})["messaging.kafka.offset"] for span in spans] == [0, 1]
    for span in spans:
        (link,) = span.links
        assert format_span_id(link.context.span_id) == "0123456789abcdef"


@pytest.mark.parametrize(
    ("name", "value", "links"),
    [
        ("Traceparent", THEIRS, 1),
        ("b3", "80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1", 0),
        ("X-B3-TraceId", "80f198ee56343ba864fe8b2a57d3eff7", 0),
        ("traceparent", "not even ASCII: é", 0),
    ],
)
async def test_a_context_in_another_format_stays_too(
    cluster: FakeCluster, telemetry: Telemetry, name: str, value: str, links: int
) -> None:
    """Without its propagator there is nothing to link to."""
    async with producer_of(cluster, telemetry.tracing()) as producer:
        await producer.send("orders", b"value", headers=[("own", b"1"), (name, value.encode())])
    assert headers(cluster) == [{"own": ["1"], name: [value]}]
    (span,) = telemetry.spans("send orders")
    assert (span.kind, len(span.links)) == (SpanKind.CLIENT, links)


async def test_what_is_not_known_is_not_told(cluster: FakeCluster, telemetry: Telemetry) -> None:
    """Without acknowledgements there is no offset; and a key of bytes is no text."""
    async with producer_of(cluster, telemetry.tracing(), acks=0) as producer:
        await producer.send("orders", b"value", key=b"key")
    (span,) = telemetry.spans("send orders")
    told = dict(span.attributes or {})
    assert told["messaging.destination.partition.id"] == "0"
    assert not {"messaging.kafka.offset", "messaging.kafka.message.key", "messaging.kafka.message.tombstone"} & {*told}


async def test_records_with_the_same_context_are_not_mixed_up(cluster: FakeCluster, telemetry: Telemetry) -> None:
    """As where a program passes on the headers of what it consumed: the first record fails, after the second's end."""
    cluster.create_topic("audit")
    cluster.faults.fail("Produce", 29, topic="orders")
    passed_on = {"traceparent": THEIRS.encode()}
    async with producer_of(cluster, telemetry.tracing(), linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        order = await producer.submit("orders", b"1", headers=passed_on)
        await producer.send("audit", b"2", headers=passed_on)
        assert not order.done()
        with pytest.raises(KafkaError):
            await producer.flush()
    (failed,), (sent,) = telemetry.spans("send orders"), telemetry.spans("send audit")
    assert failed.status.status_code is StatusCode.ERROR
    assert sent.status.status_code is StatusCode.UNSET
    assert dict(sent.attributes or {})["messaging.kafka.offset"] == 0


async def test_a_later_interceptor_that_replaces_the_headers(cluster: FakeCluster, telemetry: Telemetry) -> None:
    """The record is recognised by its context."""

    class Stamping:
        def on_send(self, record: Record) -> Record:
            return replace(record, headers=[*(record.headers or ()), ("stamp", b"1")])  # type: ignore[misc]

    tracing = telemetry.tracing()
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, interceptor_classes=[tracing, Stamping()]) as one:
        for _ in range(2):
            await one.send("orders", b"1", headers={"traceparent": THEIRS.encode()})
        await one.send("orders", b"2")
    offsets = [dict(span.attributes or {})["messaging.kafka.offset"] for span in telemetry.spans("send orders")]
    assert offsets == [0, 1, 2]


@pytest.mark.parametrize("kind", [bytearray, memoryview])
async def test_a_context_in_whatever_bytes_the_producer_takes(
    cluster: FakeCluster, telemetry: Telemetry, caplog: pytest.LogCaptureFixture, kind: Callable[[bytes], Any]
) -> None:
    async with producer_of(cluster, telemetry.tracing()) as producer:
        await producer.send("orders", b"1", headers={"traceparent": kind(THEIRS.encode())})
    assert headers(cluster) == [{"traceparent": [THEIRS]}]
    (span,) = telemetry.spans("send orders")
    assert span.kind is SpanKind.CLIENT
    assert [format_span_id(link.context.span_id) for link in span.links] == [THEIRS[36:52]]
    assert (len(telemetry.measured("messaging.client.sent.messages")), caplog.text) == (1, "")


@pytest.mark.parametrize("wrong", [[("traceparent", THEIRS)], [(1, b"x")], [("a",)]])
async def test_headers_that_no_record_has_are_a_failure(
    cluster: FakeCluster, telemetry: Telemetry, caplog: pytest.LogCaptureFixture, wrong: Any
) -> None:
    """The record fails, not the interceptor, which would log a traceback for each record."""
    async with producer_of(cluster, telemetry.tracing()) as producer:
        with pytest.raises(SerializationError):
            await producer.send("orders", b"1", headers=wrong)
    (span,) = telemetry.spans("send orders")
    assert span.status.status_code is StatusCode.ERROR
    assert caplog.text == ""


async def test_a_failure(cluster: FakeCluster, telemetry: Telemetry) -> None:
    cluster.faults.fail("Produce", 29)
    async with producer_of(cluster, telemetry.tracing()) as producer:
        with pytest.raises(KafkaError):
            await producer.send("orders", b"secret value")
    (span,) = telemetry.spans("send orders")
    assert span.status.status_code is StatusCode.ERROR
    assert dict(span.attributes or {})["error.type"] == "TOPIC_AUTHORIZATION_FAILED"
    assert "orders-0" in (span.status.description or "")
    assert "secret" not in span.to_json()


def fill(producer: Producer) -> None:
    """Submit until there is no room."""
    while True:
        producer.submit_nowait("orders", b"x" * 900).add_done_callback(lambda _: None)


async def test_records_that_were_never_in_the_buffer(cluster: FakeCluster, telemetry: Telemetry) -> None:
    """Records that were refused, or cancelled by their caller: their spans end as well."""
    producer = producer_of(cluster, telemetry.tracing(), buffer_memory=40_000, batch_size=1_000)
    await producer.start()
    await producer.partitions_for("orders")
    cluster.faults.swallow("Produce", times=None)
    with pytest.raises(BufferExhaustedError):
        fill(producer)
    waiting = asyncio.create_task(producer.submit("orders", b"x" * 900))
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not producer.health().waiting:
                await asyncio.sleep(0.001)
    finally:
        waiting.cancel()
        await asyncio.wait([waiting])
        errors = [dict(span.attributes or {})["error.type"] for span in telemetry.spans("send orders")]
        await producer.close(timeout=0)
    assert errors == ["BUFFER_EXHAUSTED", "KAFKA_ERROR"]
    assert all(span.end_time for span in telemetry.spans("send orders"))


async def test_send_many(cluster: FakeCluster, telemetry: Telemetry) -> None:
    """One span for the call, with a link to that of each record."""
    async with producer_of(cluster, telemetry.tracing()) as producer:
        await producer.send_many("orders", [b"1", (b"k", b"2"), Record(b"3", headers={"traceparent": THEIRS.encode()})])
        await producer.send("orders", b"alone")
    batch, alone = telemetry.spans("send orders")
    assert (batch.kind, alone.kind) == (SpanKind.CLIENT, SpanKind.PRODUCER)
    assert dict(batch.attributes or {})["messaging.batch.message_count"] == 3
    assert dict(batch.attributes or {})["messaging.destination.name"] == "orders"
    created = telemetry.spans("create orders")
    assert [span.kind for span in created] == [SpanKind.PRODUCER] * 2
    assert {dict(span.attributes or {})["messaging.operation.type"] for span in created} == {"create"}
    assert [link.context.span_id for link in batch.links] == [span.context.span_id for span in created if span.context]
    assert [one["traceparent"] for one in headers(cluster)] == [
        [parent_of(created[0])],
        [parent_of(created[1])],
        [THEIRS],
        [parent_of(alone)],
    ]


async def test_send_many_in_the_iterable_of_another(cluster: FakeCluster, telemetry: Telemetry) -> None:
    """Each call's span has its own records, and ends."""
    async with producer_of(cluster, telemetry.tracing()) as producer:

        async def records() -> AsyncIterator[bytes]:
            yield b"1"
            await producer.send_many("orders", [b"2", b"3", b"4"])
            yield b"5"

        await producer.send_many("orders", records())
        await producer.send("orders", b"alone")
    inner, outer, alone = telemetry.spans("send orders")
    assert [span.kind for span in (inner, outer, alone)] == [SpanKind.CLIENT, SpanKind.CLIENT, SpanKind.PRODUCER]
    assert (len(inner.links), len(outer.links)) == (3, 2)
    assert len(telemetry.spans("create orders")) == 5


async def test_a_task_that_outlives_the_send_many_in_which_it_began(cluster: FakeCluster, telemetry: Telemetry) -> None:
    """A task begun by the iterable has the context of the call; what it sends later is its own."""
    async with producer_of(cluster, telemetry.tracing()) as producer:
        ended = asyncio.Event()
        tasks = []

        async def work() -> None:
            await ended.wait()
            await producer.send("orders", b"later")

        def records() -> Iterator[bytes]:
            tasks.append(asyncio.create_task(work()))
            yield b"1"

        await producer.send_many("orders", records())
        ended.set()
        await tasks[0]
    call, later = telemetry.spans("send orders")
    assert (call.kind, later.kind) == (SpanKind.CLIENT, SpanKind.PRODUCER)
    assert len(telemetry.spans("create orders")) == 1


async def test_send_many_without_a_span_for_each_record(cluster: FakeCluster, telemetry: Telemetry) -> None:
    async with producer_of(cluster, telemetry.tracing(create_spans=False)) as producer:
        await producer.send_many("orders", [b"1", b"2"])
    (batch,) = telemetry.spans("send orders")
    assert telemetry.spans("create orders") == []
    assert [one["traceparent"] for one in headers(cluster)] == [[parent_of(batch)]] * 2


async def test_send_arrow(cluster: FakeCluster, telemetry: Telemetry) -> None:
    """As send_many: one span for the call, with a link to that of each row, whose context is in the row's headers."""
    rows = pyarrow.table({"key": ["a", "b", "c"], "value": [b"1", b"2", None]})
    async with producer_of(cluster, telemetry.tracing()) as producer:
        with telemetry.tracers.get_tracer("test").start_as_current_span("export"):
            await producer.send_arrow("orders", rows)
    (batch,), (export,) = telemetry.spans("send orders"), telemetry.spans("export")
    created = telemetry.spans("create orders")
    assert batch.kind is SpanKind.CLIENT
    assert batch.parent is not None
    assert export.context is not None
    assert batch.parent.span_id == export.context.span_id
    assert dict(batch.attributes or {})["messaging.batch.message_count"] == 3
    assert [link.context.span_id for link in batch.links] == [span.context.span_id for span in created if span.context]
    assert [dict(span.attributes or {}).get("messaging.kafka.message.tombstone") for span in created] == [
        None, None, True,
    ]  # fmt: skip
    assert [one["traceparent"] for one in headers(cluster)] == [[parent_of(span)] for span in created]


async def test_send_arrow_to_several_topics(cluster: FakeCluster, telemetry: Telemetry) -> None:
    """The call has no topic; its records have."""
    rows = pyarrow.table({"value": [b"1", b"2"], "topic": ["orders", "audit"]})
    async with producer_of(cluster, telemetry.tracing()) as producer:
        await producer.send_arrow(None, rows)
    (batch,) = telemetry.spans("send")
    assert "messaging.destination.name" not in dict(batch.attributes or {})
    for topic in ("orders", "audit"):
        (created,) = telemetry.spans(f"create {topic}")
        assert dict(created.attributes or {})["messaging.destination.name"] == topic


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_record_that_is_sent_again(cluster: FakeCluster, telemetry: Telemetry, when: Any) -> None:
    """One span, and its context once in the headers, however often it takes."""
    cluster.faults.fail("Produce", 7, times=2, apply=when == "after")
    async with producer_of(cluster, telemetry.tracing(), retry_backoff_ms=1) as producer:
        metadata = await producer.send("orders", b"value", headers=[("own", b"1")])
        assert producer.metrics()["producer-metrics"]["record-retry-total"] >= 1
    (span,) = telemetry.spans("send orders")
    assert span.status.status_code is StatusCode.UNSET
    assert headers(cluster) == [{"own": ["1"], "traceparent": [parent_of(span)]}]
    if when == "before":
        assert dict(span.attributes or {})["messaging.kafka.offset"] == metadata.offset == 0


async def test_the_callers_own_context_is_left_alone(cluster: FakeCluster, telemetry: Telemetry) -> None:
    """The current span stays the same during and after a call, also for tasks that begin meanwhile."""
    tracer = telemetry.tracers.get_tracer("test")
    headers_of_theirs = [("own", b"1")]
    seen = []

    def records() -> Iterator[bytes]:
        for number in range(3):
            seen.append(get_current_span())
            yield b"%d" % number

    async with producer_of(cluster, telemetry.tracing()) as producer:
        with tracer.start_as_current_span("request") as request:
            await producer.send("orders", b"value", headers=headers_of_theirs)
            assert get_current_span() is request
            delivery = await producer.submit("orders", b"value", headers=headers_of_theirs)
            assert get_current_span() is request
            await asyncio.gather(delivery, producer.send_many("orders", records()))
            assert get_current_span() is request
        assert get_current_span() is INVALID_SPAN
    assert seen == [request] * 3
    assert headers_of_theirs == [("own", b"1")]


async def test_in_a_transaction(cluster: FakeCluster, telemetry: Telemetry) -> None:
    """Spans end with their records, committed or not; spans of records dropped by an abort say so."""
    tracing = telemetry.tracing()
    async with producer_of(cluster, tracing, transactional_id="billing", linger_ms=60_000) as producer:
        async with producer.transaction():
            for value in b"1", b"2", b"3":
                await producer.submit("orders", value)
        await producer.begin_transaction()
        dropped = await producer.submit("orders", b"4")
        await producer.abort_transaction()
        with pytest.raises(KafkaError):
            await dropped
    spans = telemetry.spans("send orders")
    failed = [span for span in spans if span.status.status_code is StatusCode.ERROR]
    assert len(spans) == 4
    assert [dict(span.attributes or {})["error.type"] for span in failed] == ["TRANSACTION_ABORTED"]
    committed = cluster.records("orders", read_committed=True)
    assert [len([name for name, _ in record.headers if name == "traceparent"]) for record in committed] == [1, 1, 1]


async def test_send_many_that_fails(cluster: FakeCluster, telemetry: Telemetry) -> None:
    async with producer_of(cluster, telemetry.tracing(), max_request_size=1_000) as producer:
        with pytest.raises(SendManyError):
            await producer.send_many("orders", [b"1", b"x" * 2_000])
    (batch,) = telemetry.spans("send orders")
    assert batch.status.status_code is StatusCode.ERROR
    assert dict(batch.attributes or {})["messaging.batch.message_count"] == 2


async def test_metrics_of_the_conventions(cluster: FakeCluster, telemetry: Telemetry) -> None:
    async with producer_of(cluster, telemetry.tracing()) as producer:
        await producer.send("orders", b"1")
        await producer.send_many("orders", [b"2", b"3"])
        cluster.faults.fail("Produce", 29)
        with pytest.raises(KafkaError):
            await producer.send("orders", b"4")
    common = {
        ("messaging.system", "kafka"),
        ("messaging.operation.name", "send"),
        ("messaging.operation.type", "send"),
        ("messaging.destination.name", "orders"),
    }
    sent = telemetry.measured("messaging.client.sent.messages")
    assert sent[frozenset({*common, ("messaging.destination.partition.id", "0")})].value == 3
    assert sent[frozenset({*common, ("error.type", "TOPIC_AUTHORIZATION_FAILED")})].value == 1
    durations = telemetry.measured("messaging.client.operation.duration")
    assert sum(point.count for point in durations.values()) == 4
    assert all(0 < point.sum < PATIENCE_S for point in durations.values())
    assert telemetry.unit("messaging.client.sent.messages") == "{message}"
    assert telemetry.unit("messaging.client.operation.duration") == "s"
    assert next(iter(durations.values())).explicit_bounds[:3] == (0.005, 0.01, 0.025)


async def test_metrics_where_nothing_traces(cluster: FakeCluster, telemetry: Telemetry) -> None:
    """Without a tracing SDK, no trace context is added to the headers."""
    tracing = Tracing(tracer_provider=NoOpTracerProvider(), meter_provider=telemetry.meters)
    async with producer_of(cluster, tracing) as producer:
        await producer.send("orders", b"1")
        await producer.send("orders", b"2", headers={"own": b"1"})
        await producer.send_many("orders", [b"3", b"4"])
        await producer.submit_nowait("orders", b"5", headers=[("own", b"2")])
        cluster.faults.fail("Produce", 29)
        with pytest.raises(KafkaError):
            await producer.send("orders", b"6")
    sent = telemetry.measured("messaging.client.sent.messages")
    counted = {dict(labels).get("error.type"): point.value for labels, point in sent.items()}
    assert counted == {None: 5, "TOPIC_AUTHORIZATION_FAILED": 1}
    durations = telemetry.measured("messaging.client.operation.duration")
    assert sum(point.count for point in durations.values()) == 6
    assert headers(cluster) == [{}, {"own": ["1"]}, {}, {}, {"own": ["2"]}]


async def test_all_metrics_of_the_producer(cluster: FakeCluster, telemetry: Telemetry) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, client_id="shop") as producer:
        observe(producer, meter_provider=telemetry.meters)
        await producer.send("orders", b"1")
        shop = ("messaging.client.id", "shop")
        assert telemetry.measured("kafka.producer.record.send.total")[frozenset({shop})].value == 1
        of_node = telemetry.measured("kafka.producer.node.request.total")
        assert of_node[frozenset({shop, ("messaging.kafka.node.id", "1")})].value > 0
    of_topic = await asyncio.to_thread(telemetry.measured, "kafka.producer.topic.record.send.total")
    assert of_topic[frozenset({shop, ("messaging.destination.name", "orders")})].value == 1


async def test_one_snapshot_for_all_metrics_of_a_collection(
    cluster: FakeCluster, telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And another one for the next collection, soon after as it may be."""
    taken: list[Producer] = []

    def reading(producer: Producer) -> list[Reading]:
        taken.append(producer)
        return read(producer)

    monkeypatch.setattr(opentelemetry, "read", reading)
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        observe(producer, meter_provider=telemetry.meters)
        monkeypatch.setattr(opentelemetry._Latest, "FRESH_S", PATIENCE_S)
        telemetry.measured("kafka.producer.record.send.total")
        assert taken == [producer]
        monkeypatch.setattr(opentelemetry._Latest, "FRESH_S", -1)
        for count in (1, 2):
            await producer.send("orders", b"value")
            (point,) = telemetry.measured("kafka.producer.record.send.total").values()
            assert point.value == count


async def test_totals_are_counters_and_the_others_are_gauges(cluster: FakeCluster, telemetry: Telemetry) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        observe(producer, meter_provider=telemetry.meters)
        kinds = [telemetry.kind(f"kafka.producer.{name}") for name in ("record.send.total", "buffer.available.bytes")]
    assert kinds == [Sum, Gauge]


async def test_metrics_keep_no_producer(cluster: FakeCluster, telemetry: Telemetry) -> None:
    """Instruments can't be removed: they live as long as their provider, usually as long as the program."""
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        observe(producer, meter_provider=telemetry.meters)
        await producer.send("orders", b"value")
        assert telemetry.measured("kafka.producer.record.send.total")
    kept = weakref.ref(producer)
    del producer
    gc.collect()
    assert kept() is None
    assert not telemetry.measured("kafka.producer.record.send.total")


async def test_metrics_of_several_producers(cluster: FakeCluster, telemetry: Telemetry) -> None:
    """Also of one made later: a meter takes the callback of an instrument only once."""

    def shown() -> dict[Any, float]:
        found = telemetry.measured("kafka.producer.record.send.total")
        return {dict(attributes)["messaging.client.id"]: point.value for attributes, point in found.items()}

    for names in ("shop", "till"), ("later",):
        async with AsyncExitStack() as stack:
            for name in names:
                producer = Producer(bootstrap_servers=cluster.bootstrap_servers, client_id=name)
                await stack.enter_async_context(producer)
                for _ in range(2):  # the second time has no effect
                    observe(producer, meter_provider=telemetry.meters)
                await producer.send("orders", b"value")
            assert shown() == dict.fromkeys(names, 1)
        del producer, stack
        gc.collect()


GLOBAL = """
import asyncio
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Metric
from aioproducer import Producer
from aioproducer.integrations.opentelemetry import observe
from aioproducer.testing import FakeCluster

async def main(cluster):
    reader = InMemoryMetricReader()
    producers = [Producer(bootstrap_servers=cluster.bootstrap_servers, client_id=name) for name in "abc"]
    observe(producers[0])
    metrics.set_meter_provider(MeterProvider([reader]))
    observe(producers[1])
    observe(producers[2], meter_provider=metrics.get_meter_provider())
    for producer in producers:
        await producer.start()
    (scope,) = reader.get_metrics_data().resource_metrics[0].scope_metrics
    (found,) = (each for each in scope.metrics if each.name == "kafka.producer.record.send.total")
    print(*(each.attributes["messaging.client.id"] for each in found.data.data_points))
    for producer in producers:
        await producer.close()

with FakeCluster(1) as cluster:
    asyncio.run(main(cluster))
"""


def test_the_global_provider_may_be_set_between() -> None:
    """As where a module observes its producer before the program sets OpenTelemetry up."""
    found = subprocess.run([sys.executable, "-c", GLOBAL], capture_output=True, text=True, timeout=60)
    assert (found.stdout.split(), found.stderr) == (["a", "b", "c"], "")
