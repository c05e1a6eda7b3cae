"""Where the records go: the sink or a broker, and what each received."""

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
"""The cluster's own options favour a fast start; a measured broker must be fully compiled."""
TOPIC_CONFIG = {"retention.ms": "3600000", "file.delete.delay.ms": "1000"}
"""A run's topic is deleted afterwards, and its files must go soon: all runs together write tens of gigabytes."""
SPARE_BYTES = 1024**3
"""Memory a run may need besides its records."""


@dataclass(slots=True)
class Visit:
    """One run at a server.

    Attributes:
        codec: expected compression of the batches.
        tls_bootstrap, ca_pem: the addresses for TLS, and the authority of the certificates; empty without TLS.
        sent: offsets that the records take which the client says it sent, and their transactions' markers; set by the
            runner; None if the client did not finish.
        problems: what the server saw differently; set when the visit ends, like the next one.
        server_cpu_seconds: the server's own, in the whole run, warm-up included; None if it can't be measured.
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
    """A destination that clients publish to.

    Attributes:
        reaped: its process ends with each run, so its CPU time is included in that of our ended children.
        warms_up: it gets faster with use, so some uncounted runs come first.
    """

    reaped: bool
    warms_up: bool

    @abstractmethod
    def describe(self) -> str:
        """Return its description for the report."""

    @abstractmethod
    def visit(
        self, codec: str, partitions: int = PARTITIONS, payload_bytes: int = 0
    ) -> contextlib.AbstractContextManager[Visit]:
        """Give one run its own empty topic, and check at the end what arrived.

        Args:
            payload_bytes: about how much it will send, if known.
        """


class SinkServer(Server):
    """A fresh sink for each run; it counts records, codecs, formats and sequences from the batch headers.

    Args:
        metrics_interval_ms: how often it requests client metrics; 0 for never.
        answer_delay_ms: how late each answer is, as from a distant cluster.
    """

    reaped = True
    warms_up = False

    def __init__(self, metrics_interval_ms: int = 0, answer_delay_ms: int = 0) -> None:
        self._metrics_interval_ms = metrics_interval_ms
        self._answer_delay_ms = answer_delay_ms

    def describe(self) -> str:
        wish = f"; it wants metrics every {self._metrics_interval_ms} ms" if self._metrics_interval_ms else ""
        late = f"; each answer leaves {self._answer_delay_ms} ms late" if self._answer_delay_ms else ""
        return (
            "a sink that answers Produce requests and stores nothing (benchmarks/sink.c), a process of its own with "
            f"the receive buffer of a broker{wish}{late}"
        )

    @contextlib.contextmanager
    def visit(self, codec: str, partitions: int = PARTITIONS, payload_bytes: int = 0) -> Iterator[Visit]:
        with running_sink(partitions, self._metrics_interval_ms, self._answer_delay_ms) as sink:
            visit = Visit(sink.bootstrap, "bench", codec)
            yield visit
        if sink.counts is not None and visit.sent is not None:
            visit.problems = sink.counts.problems(codec, visit.sent)
            visit.server_cpu_seconds = sink.counts.cpu_seconds


class BrokerServer(Server):
    """A Kafka cluster; a new topic per run, counted by its end offsets.

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
    """Allocate and free this much memory, so that the machine has it ready for the next run.

    What a broker writes goes to free memory. A virtual machine returns that to its host after seconds, and may pay
    1.3 s of CPU for each gigabyte it gets back: as much as a broker needs to write it, and charged to whichever client
    comes after a pause.
    """
    size_bytes = min(size_bytes, psutil.virtual_memory().available // 2)
    if size_bytes:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0)
        mmap.mmap(-1, size_bytes, flags=flags).close()


def records_in(bootstrap: str, topic: str, partition_count: int) -> int:
    """Return the sum of a new topic's end offsets, read by a new confluent-kafka consumer."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "aioproducer-bench", "log_level": 1})
    try:
        partitions = [TopicPartition(topic, number) for number in range(partition_count)]
        return sum(reader.get_watermark_offsets(one, timeout=ANSWER_TIMEOUT_S)[1] for one in partitions)
    finally:
        reader.close()


@contextlib.contextmanager
def broker(bootstrap: str | None, brokers: int = 1) -> Iterator[BrokerServer]:
    """Yield the cluster at ``bootstrap``, or a new Kafka that ends with the block."""
    if bootstrap is not None:
        yield BrokerServer(bootstrap, "a Kafka cluster that was there before")
        return
    with KafkaCluster(brokers, heap_mb=HEAP_MB, jvm_options=FAST_JVM, listeners=["SSL"]) as cluster:
        children = psutil.Process().children(recursive=True)
        processes = tuple(child.pid for child in children if child.name() == "java")
        how_many = "one broker" if brokers == 1 else f"{brokers} brokers, a replica on each,"
        description = f"Apache Kafka {cluster.version}, {how_many} on the same machine, heap {HEAP_MB} MiB"
        tls = (cluster.bootstrap_of("SSL"), cluster.authority.pem)
        yield BrokerServer(cluster.bootstrap_servers, description, processes, tls)
