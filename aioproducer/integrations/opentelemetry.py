"""OpenTelemetry: spans from a record's acceptance to its acknowledgement, and metrics, per the messaging conventions.

producer = Producer(bootstrap_servers="localhost:9092", interceptor_classes=[Tracing()])
observe(producer)

Source: OpenTelemetry's semantic conventions for messaging and Kafka.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from aioproducer import BatchResult, KafkaError, Producer, Record, RecordMetadata
from aioproducer.extras import missing
from aioproducer.integrations.metrics import read
from aioproducer.metrics import NAMES

try:
    from opentelemetry import context, metrics, propagate, trace
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, NoOpMeterProvider, Observation
    from opentelemetry.propagators.textmap import Getter, Setter
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
except ModuleNotFoundError as _error:
    raise missing(_error, __name__, "otel") from None

SCOPE = "aioproducer"
DURATION_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
CREATION_CONTEXT = frozenset({"traceparent", "b3", "x-b3-traceid"})
"""Headers that identify a record's own context, in the common formats."""

Buffer = bytes | bytearray | memoryview
Pairs = list[tuple[str, bytes | None]]


@dataclass(eq=False, slots=True)
class _Begun:
    """A record whose end is still to come."""

    by: Tracing
    own: bytes | None
    """The context in its headers; None if none was injected: no SDK for spans, or no propagator."""
    span: Span | None
    started_s: float
    topic: str


class _Headers(Pairs):
    """Headers of a record seen by an interceptor of this class."""

    begun: _Begun | None = None


class _AsPairs(Setter[Pairs]):
    def set(self, carrier: Pairs, key: str, value: str) -> None:
        carrier.append((key, value.encode("ascii", "replace")))


class _OfPairs(Getter[Pairs]):
    def get(self, carrier: Pairs, key: str) -> list[str] | None:
        return [str(value, "ascii", "replace") for name, value in _readable(carrier) if name.lower() == key] or None

    def keys(self, carrier: Pairs) -> list[str]:
        return [name for name, _ in _readable(carrier)]


class _Bulk:
    """One send_many or send_arrow call."""

    def __init__(self, span: Span, outer: _Bulk | None) -> None:
        self.span = span
        self.outer = outer
        """The call whose iterable made this one."""
        self.ended = False


class Tracing:
    """An interceptor that creates spans and puts their context into the records' headers.

    A single send has a span ``send <topic>`` of kind PRODUCER, from the call to the acknowledgement or the error. A
    ``send_many`` or ``send_arrow`` has one of kind CLIENT for the call, with links to a span ``create <topic>`` for
    each record. A record whose headers already hold a context keeps it; its span is of kind CLIENT, with a link to that
    context.

    Args:
        tracer_provider, meter_provider: None uses the global ones.
        create_spans: False creates no spans for a bulk call's records; their headers then carry the call's context.
        attributes: added to every span and measurement, such as ``{"server.address": "kafka.internal"}``.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        create_spans: bool = True,
        attributes: Mapping[str, str | int] | None = None,
    ) -> None:
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", unit="{message}", description="Records that were acknowledged or failed."
        )
        self._duration = meter.create_histogram(
            "messaging.client.operation.duration",
            unit="s",
            description="From a record's acceptance to its end.",
            explicit_bucket_boundaries_advisory=DURATION_BUCKETS_S,
        )
        self._create_spans = create_spans
        self._attributes = {
            "messaging.system": "kafka",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            **(attributes or {}),
        }
        self._of_spans = dict(self._attributes)
        self._client_id: str | None = None
        self._running = 0
        """Producers that share this interceptor."""
        self._bulk: ContextVar[_Bulk | None] = ContextVar("aioproducer_bulk", default=None)
        # By the context in the record's headers: one set by the program may occur more than once.
        self._open: dict[bytes, dict[_Begun, None]] = {}

    # --- what the producer calls --------------------------------------------------------------------------------------

    def on_start(self, client_id: str) -> None:
        """Set the client id on spans, not on measurements, per the conventions; omitted for several clients."""
        self._running += 1
        if self._client_id is None:
            self._client_id = client_id
            self._of_spans = {"messaging.client.id": client_id, **self._attributes}
        elif client_id != self._client_id:
            self._of_spans = dict(self._attributes)

    def on_send(self, record: Record) -> Record:
        """Begin the record's span, and give it its context unless it has one."""
        headers = _Headers(_pairs(record.headers))
        topic = record.topic or ""
        bulk = self._bulk.get()
        if bulk is not None and bulk.ended:  # a task that began during the call inherited it
            bulk = None
        own = _context_of(headers)
        span: Span | None = None
        if bulk is not None:
            if own is None:
                own = self._inject_created(record, topic, headers, bulk)
        elif own is None:
            span = self._start(record, topic, SpanKind.PRODUCER)
            own = self._inject(headers, trace.set_span_in_context(span))
        else:
            theirs = trace.get_current_span(propagate.extract(headers, getter=_OfPairs())).get_span_context()
            span = self._start(record, topic, SpanKind.CLIENT, [Link(theirs)] if theirs.is_valid else [])
        headers.begun = begun = _Begun(self, own, span, time.monotonic(), topic)
        if own is not None:
            self._open.setdefault(own, {})[begun] = None
        elif span is not None:
            span.end()  # a later interceptor may replace these headers, and the span would never end
            begun.span = None
        return replace(record, headers=headers)

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: KafkaError | None, headers: Any) -> None:
        """End it."""
        begun = self._taken(headers)
        if begun is None:
            return
        span = begun.span
        measured: dict[str, str | int] = {**self._attributes, "messaging.destination.name": begun.topic}
        if metadata is not None:
            measured["messaging.destination.partition.id"] = str(metadata.partition)
        if error is not None:
            measured["error.type"] = error.name
        self._sent.add(1, measured)
        self._duration.record(time.monotonic() - begun.started_s, measured)
        if span is not None:
            if metadata is not None:
                span.set_attribute("messaging.destination.partition.id", str(metadata.partition))
                if metadata.offset >= 0:
                    span.set_attribute("messaging.kafka.offset", metadata.offset)
            _end(span, error)

    def on_bulk_begin(self, topic: str | None) -> None:
        """Begin the span of a bulk call."""
        attributes = dict(self._of_spans)
        if topic is not None:
            attributes["messaging.destination.name"] = topic
        span = self._tracer.start_span(f"send {topic or ''}".strip(), kind=SpanKind.CLIENT, attributes=attributes)
        self._bulk.set(_Bulk(span, self._bulk.get()))

    def on_bulk_end(self, result: BatchResult | None, error: BaseException | None) -> None:
        """End it."""
        bulk = self._bulk.get()
        if bulk is None:
            return
        self._bulk.set(bulk.outer)
        bulk.ended = True
        if result is not None:
            bulk.span.set_attribute("messaging.batch.message_count", result.acked + result.failed)
        _end(bulk.span, error)

    def close(self) -> None:
        """End spans the producer can no longer report on, if it is the last that shares this interceptor."""
        self._running = max(0, self._running - 1)
        if self._running:
            return
        for waiting in self._open.values():
            for begun in waiting:
                if begun.span is not None:
                    begun.span.end()
        self._open.clear()

    def _taken(self, headers: Any) -> _Begun | None:
        """The record with these headers, which has ended; by its context alone if an interceptor replaced them."""
        begun = headers.begun if isinstance(headers, _Headers) else None
        if begun is not None and begun.by is not self:
            begun = None
        own = begun.own if begun is not None else _context_of(_pairs(headers))
        if own is None:
            return begun
        waiting = self._open.get(own)
        if not waiting or (begun is not None and begun not in waiting):
            return None
        if begun is None:
            begun = next(iter(waiting))
        del waiting[begun]
        if not waiting:
            del self._open[own]
        return begun

    # --- spans and contexts -------------------------------------------------------------------------------------------

    def _start(self, record: Record, topic: str, kind: SpanKind, links: list[Link] | None = None) -> Span:
        return self._tracer.start_span(
            f"send {topic}", kind=kind, attributes=self._of_record(record, topic), links=links or []
        )

    def _of_record(self, record: Record, topic: str) -> dict[str, Any]:
        attributes: dict[str, Any] = {**self._of_spans, "messaging.destination.name": topic}
        if record.value is None:
            attributes["messaging.kafka.message.tombstone"] = True
        if isinstance(record.key, str):
            attributes["messaging.kafka.message.key"] = record.key
        return attributes

    def _inject_created(self, record: Record, topic: str, headers: Pairs, bulk: _Bulk) -> bytes | None:
        if not self._create_spans:
            return self._inject(headers, trace.set_span_in_context(bulk.span))
        attributes = {**self._of_record(record, topic), "messaging.operation.name": "create"}
        attributes["messaging.operation.type"] = "create"
        created = self._tracer.start_span(f"create {topic}", kind=SpanKind.PRODUCER, attributes=attributes)
        created.end()
        bulk.span.add_link(created.get_span_context())
        return self._inject(headers, trace.set_span_in_context(created))

    def _inject(self, headers: Pairs, of: context.Context) -> bytes | None:
        propagate.inject(headers, of, setter=_AsPairs())
        return _context_of(headers)


def observe(producer: Producer, *, meter_provider: MeterProvider | None = None) -> None:
    """Expose all metrics of ``Producer.metrics()`` as observable instruments; call it for each of several producers.

    They are named ``kafka.producer.<Java's name>``, ``kafka.producer.topic.`` and ``kafka.producer.node.`` with ``.``
    for ``-``, with the attribute ``messaging.client.id``, and ``messaging.destination.name`` or
    ``messaging.kafka.node.id``. Names that end in ``-total`` in Java are counters, all others gauges. The exporter
    reads them in its own thread, while the program holds the producer: no instrument keeps it alive.
    """
    key = _GLOBAL if meter_provider is None or meter_provider is metrics.get_meter_provider() else meter_provider
    latest = _observed.get(key)
    if latest is None:
        latest = _observed[key] = _Latest()
        _create_instruments(metrics.get_meter(SCOPE, meter_provider=meter_provider), latest)
    latest.add(producer)


def _create_instruments(meter: Meter, latest: _Latest) -> None:
    for group, names in NAMES.items():
        short = group.removesuffix("-metrics").replace("-", "_")
        for name in names:
            create = meter.create_observable_counter if name.endswith("-total") else meter.create_observable_gauge
            create(
                f"kafka.{short.replace('_', '.')}.{name.replace('-', '.')}",
                callbacks=[latest.observer(short, name.replace("-", "_"))],
                description=f"{name} of Kafka's Java producer",
            )


class _Latest:
    """One snapshot of all producers serves all instruments of a collection.

    Instruments can't be removed and live as long as their provider, and a second one of the same name is ignored. So
    one set of them shows all producers; those of a garbage-collected producer show nothing.
    """

    FRESH_S = 0.1

    def __init__(self) -> None:
        self._producers: tuple[weakref.ref[Producer], ...] = ()
        """Never changed, only replaced: an exporter's thread may be reading it."""
        self._taken_s = float("-inf")
        self._taken_of: list[weakref.ref[Producer]] = []
        self._readings: dict[tuple[str, str], list[Observation]] = {}

    def add(self, producer: Producer) -> None:
        others = [each for each in self._producers if each() not in (None, producer)]
        self._producers = (*others, weakref.ref(producer))

    def observer(self, group: str, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        return lambda _: self._at_hand().get((group, name), [])

    def _at_hand(self) -> dict[tuple[str, str], list[Observation]]:
        living = [each for each in self._producers if each() is not None]
        if living != self._taken_of or time.monotonic() - self._taken_s > self.FRESH_S:
            self._readings = {}
            for each in living:
                producer = each()
                if producer is not None:
                    self._take(producer)
            self._taken_of, self._taken_s = living, time.monotonic()
        return self._readings

    def _take(self, producer: Producer) -> None:
        for reading in read(producer):
            attributes = {"messaging.client.id": producer.client_id}
            if "topic" in reading.labels:
                attributes["messaging.destination.name"] = reading.labels["topic"]
            if "node_id" in reading.labels:
                attributes["messaging.kafka.node.id"] = reading.labels["node_id"]
            observed = Observation(reading.value, attributes)
            self._readings.setdefault((reading.group, reading.name), []).append(observed)


_GLOBAL = NoOpMeterProvider()
"""Stands for the global provider, which may be another object before it is set."""
_observed: weakref.WeakKeyDictionary[MeterProvider, _Latest] = weakref.WeakKeyDictionary()


def _pairs(headers: Any) -> Pairs:
    if headers is None:
        return []
    return list(headers.items()) if isinstance(headers, Mapping) else list(headers)


def _context_of(headers: Pairs) -> bytes | None:
    """The header that identifies a record's context."""
    return next((bytes(value) for name, value in _readable(headers) if name.lower() in CREATION_CONTEXT), None)


def _readable(headers: Pairs) -> Iterator[tuple[str, Buffer]]:
    """Valid headers with a value; the producer itself reports invalid ones."""
    for pair in headers:
        name, value = pair if len(pair) == 2 else ("", None)
        if isinstance(name, str) and isinstance(value, (bytes, bytearray, memoryview)):
            yield name, value


def _end(span: Span, error: BaseException | None) -> None:
    if error is not None:
        span.set_attribute("error.type", getattr(error, "name", "_OTHER"))
        # The producer's own error texts name topic and broker, never a record's content.
        span.set_status(Status(StatusCode.ERROR, str(error) if isinstance(error, KafkaError) else type(error).__name__))
    span.end()
