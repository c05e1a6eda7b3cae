"""Where the records go: the sink or a broker, and what each says it received."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field

import psutil
from confluent_kafka import Consumer, TopicPartition

from aioproducer.testing import ExistingCluster, KafkaCluster
from benchmarks.sink import running_sink

PARTITIONS = 6
ANSWER_TIMEOUT_S = 30
HEAP_MB = 1024
FAST_JVM = ("-XX:TieredStopAtLevel=4",)
"""The cluster's own options make for a fast start; a broker that is measured shall be compiled in full."""
TOPIC_CONFIG = {"retention.ms": "3600000", "file.delete.delay.ms": "1000"}
"""A run's topic is deleted after it, and its files shall go soon: all runs together write tens of gigabytes."""
SPARE_BYTES = 1024**3
"""Memory that a run may want beside its records."""


@dataclass(slots=True)
class Visit:
    """One run at a server.

    Attributes:
        codec: what the batches should be compressed with.
        tls_bootstrap, ca_pem: the addresses for TLS, and who signed the certificates there; empty where there is none.
        sent: how many records the client says it sent; the runner sets it, None when the client came to no end.
        problems: what the server saw differently; set when the visit ends, as is the next one.
        server_cpu_seconds: the server's own in the whole run, warm-up included; None where it can't be measured.
    """

    bootstrap: str
    topic: str
    codec: str
    tls_bootstrap: str = ""
    ca_pem: str = ""
    sent: int | None = None
    problems: list[str] = field(default_factory=list)
    server_cpu_seconds: float | None = None


class Server(ABC):
    """Something that clients publish to.

    Attributes:
        reaped: its process ends with each run, so that its CPU time is in that of our ended children.
        warms_up: it gets faster with use, so some runs go before those that count.
    """

    reaped: bool
    warms_up: bool

    @abstractmethod
    def describe(self) -> str:
        """Return what the report says about it."""

    @abstractmethod
    def visit(
        self, codec: str, partitions: int = PARTITIONS, payload_bytes: int = 0
    ) -> contextlib.AbstractContextManager[Visit]:
        """Give one run a topic of its own, with nothing in it, and check at the end what came.

        Args:
            payload_bytes: about how much it will send, if that is known.
        """


class SinkServer(Server):
    """A fresh sink for each run; it counts records, codecs, formats and sequences from the batch headers.

    Args:
        metrics_interval_ms: how often it wants the metrics of its clients; 0 for never.
    """

    reaped = True
    warms_up = False

    def __init__(self, metrics_interval_ms: int = 0) -> None:
        self._metrics_interval_ms = metrics_interval_ms

    def describe(self) -> str:
        wish = f"; it wants metrics every {self._metrics_interval_ms} ms" if self._metrics_interval_ms else ""
        return (
            "a sink that answers Produce requests and stores nothing (benchmarks/sink.c), a process of its own with "
            f"the receive buffer of a broker{wish}"
        )

    @contextlib.contextmanager
    def visit(self, codec: str, partitions: int = PARTITIONS, payload_bytes: int = 0) -> Iterator[Visit]:
        with running_sink(partitions, self._metrics_interval_ms) as sink:
            visit = Visit(sink.bootstrap, "bench", codec)
            yield visit
        if sink.counts is not None and visit.sent is not None:
            visit.problems = sink.counts.problems(codec, visit.sent)
            visit.server_cpu_seconds = sink.counts.cpu_seconds


class BrokerServer(Server):
    """A Kafka cluster; a new topic for each run, counted by its end offsets.

    Args:
        processes: the brokers' process ids, if they run here, to measure their CPU time.
        tls: addresses and authority of a listener for TLS.
    """

    reaped = False
    warms_up = True

    def __init__(
        self, bootstrap: str, description: str, processes: tuple[int, ...] = (), tls: tuple[str, str] = ("", "")
    ) -> None:
        self._tls = tls
        self._description = description
        self._processes = [psutil.Process(pid) for pid in processes]
        self._topics = ExistingCluster(bootstrap)
        self._numbers = itertools.count(1)

    def describe(self) -> str:
        return self._description

    @contextlib.contextmanager
    def visit(self, codec: str, partitions: int = PARTITIONS, payload_bytes: int = 0) -> Iterator[Visit]:
        bootstrap = self._topics.bootstrap_servers
        visit = Visit(bootstrap, f"aioproducer-bench-{os.getpid()}-{next(self._numbers)}", codec, *self._tls)
        self._topics.create_topic(visit.topic, partitions, configs=TOPIC_CONFIG)
        if self._processes:
            fetch_memory(payload_bytes + SPARE_BYTES)
        try:
            cpu_before = self._cpu_seconds()
            yield visit
            if self._processes:
                visit.server_cpu_seconds = self._cpu_seconds() - cpu_before
            stored = records_in(bootstrap, visit.topic, partitions)
            if visit.sent is not None and stored != visit.sent:
                visit.problems.append(f"the broker has {stored} records, not {visit.sent}")
        finally:
            self._topics.delete_topic(visit.topic)

    def _cpu_seconds(self) -> float:
        return float(sum(sum(process.cpu_times()[:2]) for process in self._processes))


def fetch_memory(size_bytes: int) -> None:
    """Use so much of the machine's free memory, and free it again, so that it is there for what comes next.

    What a broker writes goes to free memory. A virtual machine hands that back to its host after seconds, and may pay
    1.3 s of a processor for each gigabyte that it fetches again: as much as a broker needs to write it, and charged to
    whichever client comes after a pause.
    """
    size_bytes = min(size_bytes, psutil.virtual_memory().available // 2)
    if size_bytes:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0)
        mmap.mmap(-1, size_bytes, flags=flags).close()


def records_in(bootstrap: str, topic: str, partition_count: int) -> int:
    """Return the sum of a new topic's end offsets, read by a consumer of confluent-kafka made for it."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "aioproducer-bench", "log_level": 1})
    try:
        partitions = [TopicPartition(topic, number) for number in range(partition_count)]
        return sum(reader.get_watermark_offsets(one, timeout=ANSWER_TIMEOUT_S)[1] for one in partitions)
    finally:
        reader.close()


@contextlib.contextmanager
def broker(bootstrap: str | None) -> Iterator[BrokerServer]:
    """Give the cluster at ``bootstrap``, or else an own Kafka of one broker that ends with the block."""
    if bootstrap is not None:
        yield BrokerServer(bootstrap, "a Kafka cluster that was there before")
        return
    with KafkaCluster(heap_mb=HEAP_MB, jvm_options=FAST_JVM, listeners=["SSL"]) as cluster:
        children = psutil.Process().children(recursive=True)
        processes = tuple(child.pid for child in children if child.name() == "java")
        description = f"Apache Kafka {cluster.version}, one broker on the same machine, heap {HEAP_MB} MiB"
        tls = (cluster.bootstrap_of("SSL"), cluster.authority.pem)
        yield BrokerServer(cluster.bootstrap_servers, description, processes, tls)
