"""A Kafka cluster as its clients see it: state and rules, without a loop, a socket or a clock. Pure.

Time comes in as ``now_ms`` (milliseconds since the epoch, never decreasing), randomness from one ``random.Random``. All
brokers share one view of the cluster, except those that are cut off from it.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from aioproducer.error_codes import Code
from aioproducer.errors import broker_error
from aioproducer.protocol.metadata import MetadataResponse
from aioproducer.testing.fake.batches import BatchLimits
from aioproducer.testing.fake.broker import Broker
from aioproducer.testing.fake.client_metrics import RANGES, ClientMetrics
from aioproducer.testing.fake.coordinators import Coordinators
from aioproducer.testing.fake.faults import FaultScript
from aioproducer.testing.fake.partition import NO_LEADER, Partition
from aioproducer.testing.fake.partition_log import LogRecord, PartitionLog
from aioproducer.testing.fake.topology import (
    MAX_INT,
    Topic,
    TopicConfig,
    is_topic_name,
    metric_name,
)
from aioproducer.testing.fake.versions import NEWEST, KafkaVersion, Ranges, kafka_version

PRODUCER_ID_BLOCK = 1000
"""How many producer ids a broker takes from the controller at a time."""
DEFAULT_REPLICAS = 3

Address = tuple[str, int]


class Connection(Protocol):
    """The model's view of a connection to one of its brokers."""

    node_id: int

    def close(self) -> None:
        """The broker has stopped."""


class ClusterModel:
    """See the module.

    Args:
        brokers: how many; their node ids count from 1.
        rng: source of all randomness: ids, initial leaders, garbage.
        version: Kafka version, a name in ``versions.VERSIONS``: API ranges, and rules that changed over time.
        transaction_version: the finalized level of ``transaction.version``; None for the newest the brokers know.
        auto_create_topics: whether a topic is created when a client asks for it.
        default_partitions: of topics created that way.
        min_insync_replicas, message_max_bytes: the defaults of topics.
        addresses: host and port of each broker by node id; otherwise made up.
        receives_metrics: whether brokers have a receiver for client metrics.
        guard: of the fault script, if requests and script come from different threads.
    Raises:
        ValueError: such a Kafka cluster is impossible.
    """

    def __init__(
        self,
        *,
        brokers: int = 3,
        rng: random.Random,
        version: str = NEWEST,
        transaction_version: int | None = None,
        auto_create_topics: bool = True,
        default_partitions: int = 1,
        min_insync_replicas: int = 1,
        message_max_bytes: int = 1_048_588,
        addresses: Mapping[int, Address] | None = None,
        receives_metrics: bool = False,
        guard: AbstractContextManager[Any] | None = None,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster of {brokers} brokers")
        self.rng = rng
        self.version: KafkaVersion = kafka_version(version)
        self.ranges: Ranges = {**self.version.ranges, **(RANGES if receives_metrics else {})}
        newest = self.version.transaction_version
        self.transaction_version: int = newest if transaction_version is None else transaction_version
        if not 0 <= self.transaction_version <= newest:
            raise ValueError(f"transaction_version={transaction_version}: Kafka {version} has 0 to {newest}")
        _check("default_partitions", default_partitions, 1)
        _check("min_insync_replicas", min_insync_replicas, 1)
        _check("message_max_bytes", message_max_bytes, 0)
        self.auto_create_topics = auto_create_topics
        self.default_partitions = default_partitions
        self.faults: FaultScript = FaultScript(range(1, brokers + 1), guard)
        self.features_epoch = 1
        self.cluster_id: str = base64.urlsafe_b64encode(rng.randbytes(16)).decode().rstrip("=")
        self.brokers: dict[int, Broker] = {
            node_id: Broker(node_id, *(addresses or {}).get(node_id, (f"broker{node_id}.invalid", 9092)))
            for node_id in range(1, brokers + 1)
        }
        self.topics: dict[str, Topic] = {}
        self.outdated: dict[int, MetadataResponse] = {}
        """What brokers tell that are behind, by node id."""
        self.now_ms: int = 0
        self.coordinators: Coordinators = Coordinators(
            self.brokers, self.topics, self.new_producer_id, self.transaction_version
        )
        self.client_metrics: ClientMetrics = ClientMetrics(rng)
        self._topics_by_id: dict[bytes, Topic] = {}
        limits = BatchLimits(message_max_bytes, timestamp_after_ms=self.version.timestamp_after_ms)
        self._topic_defaults = TopicConfig(limits, min_insync_replicas)
        self._connections: dict[int, list[Connection]] = {node_id: [] for node_id in self.brokers}
        self._producer_ids: dict[int, range] = {}
        self._next_block = 0

    # --- connections

    def accept(self, connection: Connection) -> None:
        """Register a new connection to a broker; it is closed when the broker stops.

        Raises:
            ConnectionRefusedError: the broker is not running.
        """
        if not self.broker(connection.node_id).up:
            raise ConnectionRefusedError(f"broker {connection.node_id} is down")
        self._connections[connection.node_id].append(connection)

    def forget(self, connection: Connection) -> None:
        """Remove a connection that has ended."""
        if connection in self._connections[connection.node_id]:
            self._connections[connection.node_id].remove(connection)

    def advance(self, now_ms: int) -> None:
        """Advance time: transactions time out, late markers are written. Every request does this."""
        self.now_ms = max(self.now_ms, now_ms)
        self.coordinators.advance(self.now_ms)

    # --- topics

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, object] | None = None,
        *,
        assignments: Mapping[int, Sequence[int]] | None = None,
    ) -> Topic:
        """Create a topic.

        Args:
            partitions: None for the cluster's default.
            replication_factor: None for as many as there are brokers, at most 3.
            configs: by their Kafka names. These have an effect: max.message.bytes, segment.bytes, min.insync.replicas,
                cleanup.policy (compact: records need a key), message.timestamp.type and
                message.timestamp.{before,after}.max.ms.
            assignments: the brokers of each partition, its leader first; replaces the two numbers.
        Raises:
            BrokerError: as a real cluster answers, for instance TopicAlreadyExistsError.
        """
        if name in self.topics:
            raise broker_error(Code.TOPIC_ALREADY_EXISTS, f"topic {name} exists")
        if not is_topic_name(name):
            raise broker_error(Code.INVALID_TOPIC_EXCEPTION, f"{name!r} is not a valid topic name")
        if (other := self.colliding(name)) is not None:
            raise broker_error(Code.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")
        overrides = dict(configs or {})
        topic = Topic(name, self.rng.randbytes(16), self._topic_defaults.with_overrides(overrides), overrides)
        if assignments is not None:
            self._check_assignments(assignments)
            for index in sorted(assignments):
                self._add_partition(topic, list(assignments[index]))
        else:
            self._grow(topic, self.default_partitions if partitions is None else partitions, replication_factor)
        self.topics[name] = self._topics_by_id[topic.topic_id] = topic
        return topic

    def colliding(self, name: str) -> str | None:
        """The topic whose metric names collide with those of this name."""
        return next((one for one in self.topics if metric_name(one) == metric_name(name)), None)

    def delete_topic(self, name: str) -> None:
        """Remove a topic with its records. A recreated topic has another id."""
        topic = self.topic(name)
        del self.topics[name], self._topics_by_id[topic.topic_id]

    def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic to ``total`` partitions."""
        topic = self.topic(name)
        if total <= len(topic.partitions):
            raise broker_error(Code.INVALID_PARTITIONS, f"topic {name} has {len(topic.partitions)} partitions already")
        self._grow(topic, total, len(topic.partitions[0].replicas))

    def alter_configs(self, topic: str, configs: Mapping[str, object]) -> None:
        """Set configs of a topic (None restores the default); see ``create_topic`` for those with an effect."""
        found = self.topic(topic)
        overrides = {name: value for name, value in {**found.overrides, **configs}.items() if value is not None}
        found.config = self._topic_defaults.with_overrides(overrides)
        found.overrides = overrides

    def topic(self, name: str) -> Topic:
        """The topic of this name.

        Raises:
            UnknownTopicOrPartitionError: there is none.
        """
        if name not in self.topics:
            raise broker_error(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        return self.topics[name]

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """The topic with this id; None if there is none."""
        return self._topics_by_id.get(topic_id)

    def has_partition(self, topic: str, partition: int) -> bool:
        """Whether there is such a partition."""
        return topic in self.topics and self.topics[topic].partition(partition) is not None

    def partition(self, topic: str, partition: int) -> Partition:
        """One partition.

        Raises:
            UnknownTopicOrPartitionError: there is none.
        """
        found = self.topic(topic).partition(partition)
        if found is None:
            raise broker_error(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition} of topic {topic}")
        return found

    # --- the log

    def records(self, topic: str, partition: int = 0, *, read_committed: bool = False) -> list[LogRecord]:
        """The records of a partition that consumers see, in the order of the log: those that are committed.

        Args:
            read_committed: leave out records of open and aborted transactions, and those that follow an open one.
        """
        log = self.partition(topic, partition).log
        return log.read(read_committed=read_committed, until=log.high_watermark)

    def end_offsets(self, topic: str) -> dict[int, int]:
        """The offset of the next record in each partition, as consumers see it."""
        return {partition.index: partition.log.high_watermark for partition in self.topic(topic).partitions}

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Drop the oldest records, as retention does."""
        self.partition(topic, partition).delete_before(before_offset)

    def forget_producers(self, topic: str, partition: int, producer_id: int | None = None) -> None:
        """Make a partition forget one producer or all, as after ``producer.id.expiration.ms``.

        It keeps those that have an open transaction there.
        """
        for log in self.partition(topic, partition).logs.values():
            log.forget_producers(producer_id)

    # --- leaders and replicas

    def leader_of(self, topic: str, partition: int = 0) -> int | None:
        """The node id of the leader, None during an election."""
        leader = self.partition(topic, partition).leader
        return None if leader == NO_LEADER else leader

    def move_leader(self, topic: str, partition: int = 0, to: int | None = None) -> int:
        """Make another replica the leader, by default the next one in sync; returns its node id.

        Raises:
            ValueError: the broker can't lead the partition now.
        """
        found = self.partition(topic, partition)
        candidates = [one for one in found.isr if self.brokers[one].alive and one != found.leader]
        leader = to if to is not None else next(iter(candidates), found.leader)
        if leader not in found.isr or not self.brokers[leader].alive:
            raise ValueError(f"broker {leader} can't lead {topic}-{partition}: in sync and up are {candidates}")
        found.lead(leader)
        return leader

    def remove_leader(self, topic: str, partition: int = 0) -> None:
        """Leave a partition without a leader until ``move_leader``."""
        self.partition(topic, partition).lead(NO_LEADER)

    def shrink_isr(self, topic: str, partition: int, isr: Sequence[int]) -> None:
        """Set the replicas in sync: those that acks=all waits for, and that may lead.

        Raises:
            ValueError: it has brokers that are no replicas, or lacks the leader.
        """
        found = self.partition(topic, partition)
        if not set(isr) <= set(found.replicas) or (found.leader != NO_LEADER and found.leader not in isr):
            raise ValueError(f"isr {list(isr)} of {topic}-{partition}: leader {found.leader} of {found.replicas}")
        found.isr = list(isr)
        if found.leader != NO_LEADER:
            found.replicate(found.leader)

    # --- brokers

    def stop_broker(self, node_id: int, *, elect: bool = True) -> None:
        """Stop a broker and close its connections; its partitions get other leaders.

        Of what is in its logs by then, it will remember only the last batch of each producer.

        Args:
            elect: False leaves them without a leader until ``elect_leaders``, like a crash not yet noticed.
        """
        broker = self.broker(node_id)
        broker.up = broker.cut_off = False
        for connection in tuple(self._connections[node_id]):
            connection.close()
        for partition in self._partitions_of(node_id):
            partition.give_up(node_id)
            partition.logs[node_id].reload()
            partition.leave(node_id)
        if elect:
            self.elect_leaders()

    def start_broker(self, node_id: int) -> None:
        """Start a stopped broker; it is in sync again at once, unless it copies nothing."""
        self.broker(node_id).up = True
        self._come_back()

    def pause_replication(self, node_id: int) -> None:
        """Let a broker copy nothing more of what leaders write, for instance because it is slow.

        It stays in sync, so that nobody gets an answer with acks=all, until ``shrink_isr``.
        """
        self.broker(node_id).fetches = False

    def resume_replication(self, node_id: int) -> None:
        """Let a broker copy again; it is in sync again at once."""
        self.broker(node_id).fetches = True
        self._come_back()

    def cut_off(self, node_id: int) -> None:
        """Let the controller and a broker lose each other: others lead its partitions, and it does not know that.

        Clients still reach it. What it tells them about the cluster is not changed here; see ``fall_behind``.
        """
        broker = self.broker(node_id)
        if not broker.alive:
            return
        broker.cut_off = True
        for partition in self._partitions_of(node_id):
            partition.cut_off(node_id)
        self.elect_leaders()

    def reconnect(self, node_id: int) -> None:
        """Let a broker that was cut off find out who leads; it is in sync again at once."""
        self.broker(node_id).cut_off = False
        for partition in self._partitions_of(node_id):
            partition.give_up(node_id)
        self._come_back()

    def elect_leaders(self, *, unclean: bool = False) -> None:
        """Make the first running in-sync replica the leader of each partition without one.

        Args:
            unclean: take any replica if none of those in sync runs; what it does not have is lost.
        """
        for partition in self._partitions():
            if partition.leader != NO_LEADER:
                continue
            ready = [one for one in partition.replicas if self.brokers[one].alive]
            in_sync = [one for one in ready if one in partition.isr]
            if in_sync:
                partition.lead(in_sync[0])
            elif unclean and ready:
                partition.isr = ready[:1]
                partition.lead(ready[0])

    def change_addresses(self, addresses: Mapping[int, Address]) -> None:
        """Change the addresses of brokers. Existing connections stay open."""
        for node_id, (host, port) in addresses.items():
            broker = self.broker(node_id)
            broker.host, broker.port = host, port

    # --- producer ids

    def new_producer_id(self, node_id: int) -> int:
        """A new, unique producer id, from the block of a broker."""
        block = self._producer_ids.get(node_id, range(0))
        if not block:
            block = range(self._next_block, self._next_block + PRODUCER_ID_BLOCK)
            self._next_block += PRODUCER_ID_BLOCK
        self._producer_ids[node_id] = block[1:]
        return block[0]

    def broker(self, node_id: int) -> Broker:
        """One of the brokers.

        Raises:
            ValueError: no broker has this node id.
        """
        if node_id not in self.brokers:
            raise ValueError(f"there is no broker {node_id}, only {list(self.brokers)}")
        return self.brokers[node_id]

    # ---

    def _come_back(self) -> None:
        self.elect_leaders()
        for partition in self._partitions():
            partition.catch_up()

    def _partitions(self) -> list[Partition]:
        return [partition for topic in self.topics.values() for partition in topic.partitions]

    def _partitions_of(self, node_id: int) -> list[Partition]:
        return [partition for partition in self._partitions() if node_id in partition.replicas]

    def _grow(self, topic: Topic, partitions: int, replication_factor: int | None) -> None:
        nodes = list(self.brokers)
        replicas = min(DEFAULT_REPLICAS, len(nodes)) if replication_factor is None else replication_factor
        if partitions < 1:
            raise broker_error(Code.INVALID_PARTITIONS, f"{partitions} partitions")
        if not 1 <= replicas <= len(nodes):
            raise broker_error(Code.INVALID_REPLICATION_FACTOR, f"{replicas} replicas on {len(nodes)} brokers")
        start = self.rng.randrange(len(nodes))
        for index in range(len(topic.partitions), partitions):
            self._add_partition(topic, [nodes[(start + index + number) % len(nodes)] for number in range(replicas)])

    def _check_assignments(self, assignments: Mapping[int, Sequence[int]]) -> None:
        if not assignments or sorted(assignments) != list(range(len(assignments))):
            raise broker_error(Code.INVALID_REPLICA_ASSIGNMENT, f"partitions {sorted(assignments)} do not count from 0")
        for index, replicas in assignments.items():
            known = all(node_id in self.brokers for node_id in replicas)
            if not replicas or not known or len(set(replicas)) != len(replicas):
                text = f"partition {index} on {list(replicas)}: the brokers are {list(self.brokers)}, each once"
                raise broker_error(Code.INVALID_REPLICA_ASSIGNMENT, text)

    def _add_partition(self, topic: Topic, replicas: list[int]) -> None:
        def new_log(start_offset: int) -> PartitionLog:
            return PartitionLog(self.version.unknown_producer, self.version.remembered_batches, start_offset)

        topic.partitions.append(Partition(len(topic.partitions), replicas, self.brokers, new_log))


def _check(name: str, value: int, least: int) -> None:
    if not least <= value <= MAX_INT:
        raise ValueError(f"{name}={value}: Kafka takes {least} to {MAX_INT}")
