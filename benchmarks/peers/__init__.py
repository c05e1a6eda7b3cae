"""The compared clients, one file each, and the table that names them."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks import programs
from benchmarks.peers.base import Publisher, Sender, Settings

if TYPE_CHECKING:
    from benchmarks.peers.web import WebApp

IMPORT_NAMES = {"confluent-kafka": "confluent_kafka", "kafka-python": "kafka"}
"""Import names of packages where they differ."""

WEB_PACKAGES = ("fastapi", "uvicorn", "h11", "httptools")
"""Packages the web server benches need, whose versions are reported."""


@dataclass(frozen=True, slots=True)
class Client:
    """One client library in one way of use.

    Attributes:
        name: its name on the command line and in tables.
        package: its distribution, whose version is reported.
        implementation: ``module:class`` of a `Publisher` or a `Sender`.
        use: how it is used, for the report.
        records: how many 100-byte records keep it busy for a second or two.
    """

    name: str
    package: str
    implementation: str
    use: str
    records: int = 0

    def missing(self) -> str | None:
        """Return why it can't run if the library is not installed, else None; only workers import the library."""
        if importlib.util.find_spec(IMPORT_NAMES.get(self.package, self.package)) is None:
            return f"{self.package} is not installed"
        return None

    def publisher(self, settings: Settings) -> Publisher:
        """Create the client for benches that publish a stream of records."""
        made: Publisher = self._class()(settings)
        return made

    def sender(self, settings: Settings) -> Sender:
        """Create the client for benches that wait for each record's acknowledgement."""
        made: Sender = self._class()(settings)
        return made

    def version(self) -> str:
        """Return the library's version."""
        return importlib.metadata.version(self.package)

    def _class(self) -> type:
        module, _, name = self.implementation.partition(":")
        found: type = getattr(importlib.import_module(f"benchmarks.peers.{module}"), name)
        return found


@dataclass(frozen=True, slots=True)
class ProgramClient(Client):
    """A client that is a separate program, built and run by `benchmarks.programs`."""

    def missing(self) -> str | None:
        return programs.missing(self.name)

    def version(self) -> str:
        if self.package == "franz-go":
            return programs.franz_version()
        if self.package == "Kafka's Java client":
            return programs.java_version()
        return importlib.metadata.version(self.package)


@dataclass(frozen=True, slots=True)
class ArrowClient(Client):
    """A client whose records are in Arrow columns."""

    def missing(self) -> str | None:
        return None if importlib.util.find_spec("pyarrow") else "pyarrow is not installed"


@dataclass(frozen=True, slots=True)
class WebClient(Client):
    """A client in a web application; its implementation is a `web.WebApp`."""

    def missing(self) -> str | None:
        for package in (self.package, *WEB_PACKAGES):
            if importlib.util.find_spec(IMPORT_NAMES.get(package, package)) is None:
                return f"{package} is not installed"
        return None

    def web_app(self, settings: Settings) -> WebApp:
        """Create the application."""
        made: WebApp = self._class()(settings)
        return made


PUBLISHERS = (
    Client(
        "aioproducer submit_nowait",
        "aioproducer",
        "aioproducer:SubmitNowait",
        "submit_nowait until BufferExhaustedError, then await ready(); every Delivery awaited, in chunks of 1,000",
        1_000_000,
    ),
    Client(
        "aioproducer submit",
        "aioproducer",
        "aioproducer:Submit",
        "await submit one by one; every Delivery awaited, in chunks of 1,000",
        1_000_000,
    ),
    Client(
        "aioproducer send_many",
        "aioproducer",
        "aioproducer:SendMany",
        "one await send_many of an iterator of pairs; its result counts every record's end",
        1_500_000,
    ),
    ArrowClient(
        "aioproducer send_arrow",
        "aioproducer",
        "aioproducer:SendArrow",
        "one await send_arrow of a stream of record batches of 8,192 rows; its result counts every record's end",
        3_000_000,
    ),
    ProgramClient(
        "librdkafka",
        "confluent-kafka",
        "programs:Librdkafka",
        "its C API in a C program (the library of confluent-kafka): rd_kafka_produce with a delivery report per record",
        1_000_000,
    ),
    ProgramClient(
        "franz-go",
        "franz-go",
        "programs:Franz",
        "a Go program: Produce with a promise per record",
        1_500_000,
    ),
    ProgramClient(
        "java",
        "Kafka's Java client",
        "programs:ProducerPerformance",
        "Kafka's ProducerPerformance: no keys; its times include the JVM's start",
        1_000_000,
    ),
    Client(
        "confluent",
        "confluent-kafka",
        "confluent:CallbackPublisher",
        "Producer.produce with a delivery callback per record, poll(0) after each as its documentation shows, flush",
        1_000_000,
    ),
    Client(
        "confluent batch",
        "confluent-kafka",
        "confluent:BatchPublisher",
        "Producer.produce_batch of 1,000 messages with one delivery callback, flush",
        1_000_000,
    ),
    Client(
        "confluent-aio",
        "confluent-kafka",
        "confluent_aio:FuturePublisher",
        "AIOProducer.produce, its future checked for every record; poll when 60,000 are open, flush",
        250_000,
    ),
    Client(
        "aiokafka",
        "aiokafka",
        "aiokafka:FuturePublisher",
        "await send, the returned future awaited for every record, in chunks of 1,000; flush",
        200_000,
    ),
    Client(
        "aiokafka batch",
        "aiokafka",
        "aiokafka:BatchPublisher",
        "create_batch, append, send_batch to one partition after the other: no key is hashed; every future awaited",
        500_000,
    ),
    Client(
        "kafka-python",
        "kafka-python",
        "kafka_python:FuturePublisher",
        "send, the returned future's get for every record, in chunks of 1,000; flush",
        80_000,
    ),
)

METRICS_PUBLISHERS = (
    Client(
        "metrics nobody reads",
        "aioproducer",
        "aioproducer_metrics:Unread",
        "submit_nowait as above, enable_metrics_push=False",
        8_000_000,
    ),
    Client(
        "Prometheus each second",
        "aioproducer",
        "aioproducer_metrics:Scraped",
        "the same, and a thread that makes the text of a scrape of ProducerCollector each second",
        8_000_000,
    ),
    Client(
        "OpenTelemetry each second",
        "aioproducer",
        "aioproducer_metrics:Observed",
        "the same with observe(), and a reader of the SDK that exports to nowhere each second",
        8_000_000,
    ),
    Client(
        "pushed each second",
        "aioproducer",
        "aioproducer_metrics:Pushed",
        "the same with enable_metrics_push=True: all metrics go to the server each second (KIP-714)",
        8_000_000,
    ),
)
"""One client whose metrics are read in several ways."""

TOPIC_PUBLISHERS = (
    Client(
        "aioproducer submit_nowait to topics",
        "aioproducer",
        "aioproducer:SubmitNowaitToTopics",
        "submit_nowait to one topic after the other, else as with one",
        300_000,
    ),
    Client(
        "aioproducer submit to topics",
        "aioproducer",
        "aioproducer:SubmitToTopics",
        "await submit to one topic after the other, else as with one",
        300_000,
    ),
    Client(
        "confluent to topics",
        "confluent-kafka",
        "confluent:TopicsPublisher",
        "Producer.produce to one topic after the other, else as with one",
        300_000,
    ),
)

SENDERS = (
    Client("aioproducer send", "aioproducer", "aioproducer:Send", "await send"),
    Client(
        "confluent",
        "confluent-kafka",
        "confluent:LoopFutureSender",
        "Producer.produce whose delivery callback completes a loop future; a thread polls",
    ),
    Client(
        "confluent-aio",
        "confluent-kafka",
        "confluent_aio:FutureSender",
        "await (await AIOProducer.produce), defaults",
    ),
    Client(
        "confluent-aio tuned",
        "confluent-kafka",
        "confluent_aio:TunedFutureSender",
        "the same with batch_size=50, buffer_timeout=0.05 instead of 1,000 and 1 s",
    ),
    Client("aiokafka", "aiokafka", "aiokafka:AwaitingSender", "await send_and_wait"),
    Client(
        "kafka-python",
        "kafka-python",
        "kafka_python:LoopFutureSender",
        "send whose callback completes a loop future",
    ),
)

TRANSACTION_SENDERS = (
    Client(
        "aioproducer transaction",
        "aioproducer",
        "aioproducer:TransactionSender",
        "submit in a transaction() block",
    ),
    Client(
        "confluent transaction",
        "confluent-kafka",
        "confluent:TransactionSender",
        "begin_transaction, produce, commit_transaction; these calls block the thread",
    ),
    Client(
        "aiokafka transaction",
        "aiokafka",
        "aiokafka:TransactionSender",
        "await send in a transaction() block",
    ),
)

WEB_CLIENTS = (
    WebClient("without Kafka", "fastapi", "web:WithoutKafka", "the same application, which publishes nothing"),
    WebClient(
        "aioproducer",
        "aioproducer",
        "web:Aioproducer",
        "producer_lifespan, await producer_of(request).send in a request; submit_nowait in the background",
    ),
    WebClient("aiokafka", "aiokafka", "web:Aiokafka", "await send_and_wait in a request; await send in the background"),
    WebClient(
        "confluent-aio",
        "confluent-kafka",
        "web:ConfluentAio",
        "await AIOProducer.produce in the background, defaults",
    ),
    WebClient(
        "confluent-aio tuned",
        "confluent-kafka",
        "web:TunedConfluentAio",
        "await (await AIOProducer.produce) in a request, with batch_size=8, buffer_timeout=0.01 and a task that polls; "
        "at its defaults a request waits for seconds",
    ),
)
